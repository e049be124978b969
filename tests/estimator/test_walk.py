"""A step of a plain method is a short walk: few lines in few files, so that a reader can follow it."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kaestat
from kaestat import AdvantageEstimator

ROOT = str(Path(kaestat.__file__).parent)


def walk(method: str) -> set[tuple[str, int]]:
    """The lines of kaestat, by file, that the sixth of six steps runs; 64 prompts have 8 completions each."""
    estimator, rng, lines = AdvantageEstimator(method), np.random.default_rng(0), set()
    ids = [f"p{k // 8}" for k in range(512)]
    rewards = rng.integers(0, 2, (6, 512)).astype(float)

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOT):
            return None
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    for step in range(5):
        estimator.step(ids, rewards[step], step)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        estimator.step(ids, rewards[5], 5)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize(("method", "most_lines", "most_files"), [("rloo", 120, 8), ("kae:bandwidth=10", 200, 12)])
def test_a_step_runs_few_lines_in_few_files(method, most_lines, most_files):
    lines = walk(method)
    files = {file for file, _ in lines}
    assert len(lines) <= most_lines and len(files) <= most_files, f"{len(lines)} lines in {len(files)} files"
