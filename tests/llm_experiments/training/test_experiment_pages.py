"""The page on training says what the code says of memory and time."""

import re
from pathlib import Path

import pytest

from llm_experiments import cli
from llm_experiments.training.config import RunConfig
from llm_experiments.training.shapes import SHAPES, shape_of
from llm_experiments.training.trl.resources import estimate
from llm_experiments.training.verl.launch import verl_run_config

ROOT = Path(cli.__file__).parents[1]
PAGE = (ROOT / "docs" / "experiments" / "trl.md").read_text()


def test_the_table_of_memory_and_time_is_the_estimate():
    rows = re.findall(r"^\| `(\S+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for name, *cells in rows:
        config = verl_run_config(ROOT / "llm_experiments" / "configs" / "training" / f"{name}.yaml")
        lora = config.model_copy(update={"updates": config.updates.model_copy(update={"lora_rank": 64})})
        shape = shape_of(config.model)
        four = estimate(config, shape, gpus=4, sharded=True)
        expected = [
            estimate(config, shape, gpus=1, sharded=False).total_gib,
            estimate(lora, shape, gpus=1, sharded=False).total_gib,
            four.total_gib,
            four.hours,
        ]
        assert cells == [f"{value:.0f}" for value in expected]


def test_the_stack_on_a_gpu_is_eight_times_the_estimate_of_a_run():
    config = RunConfig(
        name="stack",
        model={"name": "smollm2"},
        task={"name": "columns"},
        sampling={"max_new_tokens": 8},
        method="kae",
        updates={"steps": 1, "prompts": 32, "group_size": 1, "micro_batch": 32},
    )
    one = estimate(config, SHAPES["smollm2"], gpus=1, sharded=False, prompt_tokens=8)
    assert f"Eight times the estimate for one run is {8 * one.passes_gib:.1f} GiB" in PAGE
    assert one.generation_s + one.passes_s + one.optimizer_s == pytest.approx(0.38, abs=0.02)
