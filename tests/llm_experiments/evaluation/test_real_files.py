"""The evaluation on the real benchmark files (where `KAESTAT_DATA` names their folder; else on files made here).

A stand-in for a model answers every third problem wrongly, the first of these in a hostile way, so that the score is
known.
"""

import json
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from llm_experiments.evaluation.config import EvaluationConfig
from llm_experiments.evaluation.evaluate import Evaluation
from llm_experiments.evaluation.suites import SETS
from llm_experiments.tasks.mathematics import mathematics
from tests.helpers.small_policies import SIZE, small_policy

DATA = Path(os.environ.get("KAESTAT_DATA", ""))
SAMPLES = 1
# Of sets whose files are not {"problem": ..., "answer": ...}: question, answer and what stands in it.
COLUMNS = {"gsm8k": ("question", "answer", "so #### {}"), "olympiadbench": ("question", "final_answer", "{}")}
HOSTILE = (
    "\\boxed{" * 3000,
    "\\boxed{10^{10^{10^{10}}}}",
    "The answer is \\boxed{\\frac{1}{" + "(" * 4000 + "}}",
    "\x00\ud7ff\\boxed{\\sqrt{\\sqrt{\\sqrt{",
    "and so on " * 5000,
)


def files_of(name: str, folder: Path) -> Path:
    """Folder with the set's file: the real one, or one of twelve made-up problems."""
    if SETS[name].local_file(DATA) is not None:
        return DATA
    question, answer, text = COLUMNS.get(name, ("problem", "answer", "{}"))
    rows = [{question: f"What is {k} + {k}?", answer: text.format(2 * k)} for k in range(12)]
    (folder / SETS[name].files[0]).write_text("\n".join(map(json.dumps, rows)))
    return folder


@contextmanager
def no_progress(part, total):
    yield lambda: None


class KnownAnswers:
    """Rewards are known: problem k is answered rightly unless k is a multiple of three."""

    def __init__(self, task, policy):
        self.number = {problem.prompt: k for k, problem in enumerate(task.problems)}
        self.answers = [problem.answer for problem in task.problems]
        self.some = policy.sample(task.problems[0].prompt[:20], 1, seed=0)[0]
        self.asked = 0

    def text(self, k: int) -> str:
        if k % 3:
            return f"It follows that the answer is $\\boxed{{{self.answers[k].strip('$')}}}$."
        return HOSTILE[k // 3] if k < 3 * len(HOSTILE) else "I think that it is \\boxed{-987654321}."

    def __call__(self, prompts, n, *, seed):
        self.asked += len(prompts)
        return [[replace(self.some, text=self.text(self.number[prompt]))] * n for prompt in prompts]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
@pytest.mark.filterwarnings("ignore:.*have no answer")
def test_the_score_of_known_answers_comes_out_twice(name, tmp_path, monkeypatch):
    data = files_of(name, tmp_path)
    policy = small_policy(0, max_new_tokens=4, size=replace(SIZE, context=8192))
    task = mathematics(name, path=SETS[name].local_file(data), template="{problem}")
    policy.sample_groups = answers = KnownAnswers(task, policy)
    monkeypatch.setattr("llm_experiments.policies.load_policy", lambda *_, **__: policy)
    config = EvaluationConfig(
        name="known",
        model={"name": "known", "chat": False},
        suite=f"{name}:{SAMPLES}",
        options={"template": "{problem}"},
    )
    folders = {"data": data, "runs": tmp_path / "runs", "results": tmp_path / "results"}
    first = Evaluation(config, progress=no_progress, **folders).run().set_index("set")
    rewards = pd.read_csv(tmp_path / "results" / "evaluations" / "known" / "problems.csv")
    by_problem = rewards.groupby("problem", sort=False)["reward"].mean().to_numpy()
    wrong = np.arange(len(by_problem)) % 3 == 0
    assert by_problem[wrong].max() == 0  # a hostile or endless completion costs its own zero
    assert by_problem[~wrong].mean() > 0.97  # some answers of the files are no mathematics, and grade as wrong
    assert first.loc[name, "n_problems"] == len(task.problems)
    assert first.loc[name, "accuracy"] == pytest.approx(by_problem.mean())
    asked = answers.asked
    for regrade in (False, True):
        again = Evaluation(config, progress=no_progress, **folders).run(regrade=regrade).set_index("set")
        pd.testing.assert_frame_equal(again, first)
    assert answers.asked == asked == len(task.problems)
