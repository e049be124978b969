"""Slow completions take no honest one's reward; what nobody graded is masked everywhere, and never 0."""

import json
import math
import os
import random

import numpy as np
import pytest

from llm_experiments.tasks.base import Problem
from llm_experiments.tasks.mathematics import MathematicsTask
from llm_experiments.training.identity import IDENTITY
from llm_experiments.training.tables import run_tables
from llm_experiments.training.trl.data import reward_function
from llm_experiments.training.verl import reward as verl_reward
from llm_experiments.verifiers import MathVerifier
from llm_experiments.verifiers.worker_pool import PASSED_OVER, WorkerPool, _environment

PROBLEMS = [Problem("a", "?", "1"), Problem("b", "?", "2")]
HONEST = [(f"{k}/7", rf"\boxed{{\frac{{{k}}}{{7}}}}") for k in range(1, 101)]
TOWERS = [("x^2+5", rf"\boxed{{9^{{9^{{9^{{{k}}}}}}}}}") for k in range(2, 12)]


class Passes:
    """A verifier that passes over every second request."""

    def __init__(self, verdict):
        self.verdict = verdict

    def grade(self, answers, texts, *, patient=False):
        return [1.0 if patient or row % 2 == 0 else self.verdict for row in range(len(texts))]


def test_honest_answers_are_right_beside_hostile_ones_and_in_the_next_batch():
    batch = HONEST + TOWERS
    random.Random(0).shuffle(batch)
    with MathVerifier(timeout=2.0, memory_mib=512, workers=2, budget=1.0) as verifier:
        with pytest.warns(RuntimeWarning, match="skipped"):
            rewards = dict(zip(batch, verifier.grade(*map(list, zip(*batch, strict=True))), strict=True))
        assert [rewards[each] for each in HONEST] == [1] * len(HONEST)
        assert sum(math.isnan(rewards[each]) for each in TOWERS) >= len(TOWERS) / 2  # patience was used up
        assert list(rewards.values()).count(0.0) > 0
        assert verifier.grade([str(k) for k in range(50)], [rf"\boxed{{{k}.0}}" for k in range(50)]) == [1] * 50


@pytest.mark.parametrize(("replies", "expected"), [([True, PASSED_OVER], math.nan), ([PASSED_OVER, None], 0.0)])
def test_of_alternatives_a_wrong_one_decides_and_one_passed_over_leaves_it_open(monkeypatch, replies, expected):
    verifier = MathVerifier()
    monkeypatch.setattr(verifier._pool, "ask", lambda asked, patient: replies)
    np.testing.assert_array_equal(verifier.grade(["7"], [r"\boxed{7.0 \text{ or } 7.00}"]), [expected])


def test_a_list_of_guesses_takes_no_more_time_than_a_completion(monkeypatch):
    """Fifty slow alternatives in each of a hundred texts kept honest answers waiting for 20 minutes."""
    verifier, asked = MathVerifier(), []
    monkeypatch.setattr(verifier._pool, "ask", lambda requests, patient: asked.extend(requests) or [])
    towers = [f"{base}^{{9^{{9}}}}" for base in range(2, 52)]
    texts = [rf"\boxed{{{' or '.join(towers)}}}", f"The answer is {' or '.join(towers)}"]
    assert verifier.grade(["x^2+5"] * 2, texts) == [0.0, 0.0] and asked == []


def test_tasks_hand_on_what_is_ungraded():
    task = MathematicsTask(PROBLEMS, Passes(math.nan))
    np.testing.assert_array_equal(task.grade(PROBLEMS, ["x", "y"]), [1, math.nan])
    assert task.grade(PROBLEMS, ["x", "y"], patient=True) == [1, 1]


def test_trl_gets_none_which_its_trainer_masks():
    """`tests/integrations/trl/test_rewards.py` shows that None has no advantage and no history."""
    reward = reward_function(MathematicsTask(PROBLEMS, Passes(math.nan)))
    assert reward(completions=["x", "y"], problem_id=["a", "b"]) == [1.0, None]


@pytest.mark.parametrize(("patient", "expected"), [(False, math.nan), (True, 1.0)])
def test_verl_gets_nan_in_training_and_a_verdict_in_a_test(monkeypatch, patient, expected):
    class Passed(Passes):
        def grade(self, answers, texts, *, patient=False):
            return [1.0 if patient else math.nan for _ in texts]

    monkeypatch.setattr(verl_reward, "_shared_task", lambda grader: MathematicsTask((), Passed(math.nan)))
    info = {"grader": "{}", "problem_id": "a", "patient": patient}
    np.testing.assert_equal(verl_reward.compute_score("math", "x", "1", info), expected)


def test_tables_leave_out_what_is_ungraded_and_count_it(tmp_path):
    (tmp_path / "records").mkdir()
    (tmp_path / IDENTITY).write_text(json.dumps({"updates": {"group_size": 2}}))
    rewards = {0: [1.0, None, 0.0, 1.0], 1: [None] * 4, 2: [None, None, math.nan, 1.0]}
    for step, each in rewards.items():
        record = {"step": step, "ids": ["a", "a", "b", "b"], "rewards": each}
        (tmp_path / "records" / f"{step:06d}.json").write_text(json.dumps(record))
    tables = run_tables(tmp_path, 1)
    curve, rewards = tables["curve"], tables["rewards"]
    assert curve["ungraded"].tolist() == [1, 4, 3]
    np.testing.assert_allclose(curve["mean_reward"], [2 / 3, np.nan, 1])
    np.testing.assert_allclose(curve["se"], [0.25, np.nan, np.nan])  # prompts' means 1 and 1/2
    assert rewards["reward"].tolist() == [1, 0, 1, 1] and rewards["prompt"].tolist() == ["a", "b", "b", "b"]


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the system shows no environments")
def test_a_workers_environment_holds_no_secret(monkeypatch):
    monkeypatch.setenv("A_SECRET_TOKEN", "s3cret")
    pool = WorkerPool("tests.fakes.greedy_worker", timeout=5, memory_mib=512)
    assert pool.ask(["yes"]) == [True]
    for pid in pool.processes():
        with open(f"/proc/{pid}/environ") as file:
            names = {each.partition("=")[0] for each in file.read().split("\0") if each}
        assert names == set(_environment()) and "A_SECRET_TOKEN" not in names and "PATH" in names
    pool.close()
