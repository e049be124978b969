"""The studies of what `analyze` recommends and `compare` says: their logs, true errors and committed rates."""

import numpy as np
import pandas as pd
import pytest

from kaestat import AdvantageEstimator
from simulations.harness import Streams
from simulations.harness.study import PROJECT
from simulations.studies import recommended
from simulations.studies.recommended import KINDS, ONCE, SHAPES, Shape, made_logs, true_error

RESULTS = PROJECT / "results" / "recommended"


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_has_its_shape_and_each_completion_its_true_value(kind):
    shape = Shape(70, 12, 4, 2)
    one, other = made_logs(kind, shape, Streams(0, "ab", [3, 7]))
    frame = one.log.frame
    assert len(one.log.prompts) == 70 - 3 * (kind == ONCE) and len(frame) == len(one.value)
    assert frame.groupby("prompt")["step"].nunique().max() <= (1 if kind == ONCE else 12)
    assert (frame.groupby(["prompt", "step"]).size() == 4).all()
    spread = np.sqrt(np.sum(one.value * (1 - one.value))) if kind != "Beta rewards" else 0.22 * np.sqrt(len(frame))
    assert abs(frame["reward"].sum() - one.value.sum()) < 4 * spread
    assert not np.array_equal(frame["reward"], other.log.frame["reward"])


def test_true_errors_are_those_of_an_estimator_fed_step_by_step():
    (made,) = made_logs("walk .15", Shape(5, 6, 2, 2), Streams(0, "ab", [0]))
    frame = made.log.frame.assign(value=made.value)
    estimator, squared, seen = AdvantageEstimator("kae_eb"), {}, set()
    for step, rows in frame.groupby("step"):
        estimator.step(rows["prompt"].tolist(), rows["reward"].to_numpy(), int(step))
        errors = (np.asarray(estimator.values) - rows["value"]) ** 2
        for prompt, error in zip(rows["prompt"], errors, strict=True):
            if (prompt, step) not in seen and any(p == prompt for p, _ in seen):
                squared.setdefault(prompt, []).append(error)
        seen |= {(prompt, step) for prompt in rows["prompt"]}
    expected = np.mean([np.mean(errors) for errors in squared.values()])
    assert true_error(made, "kae_eb", 1) == pytest.approx(expected, rel=1e-9)


def test_the_best_error_is_measured_on_other_logs_than_those_that_chose_the_contenders(monkeypatch):
    names = [f"m{k}" for k in range(40)]
    monkeypatch.setattr(recommended, "candidates", lambda kind: names)
    asked = {}

    def expected_error(seed, key, kind, shape, method, first, n):  # all are equal but m0, which a first look rules out
        asked.setdefault(method, []).append((first, first + n))
        return 2.0 if method == "m0" else 1 + (0.15 if first == 0 else 0.02) * np.sin(7 * names.index(method))

    monkeypatch.setattr(recommended, "expected_error", expected_error)
    best = recommended.lowest_error(0, "ab", "static", Shape(6, 30, 2, 1))
    assert 0.97 < best <= 1  # 0.85 by the first look
    assert len(asked["m0"]) == 1 and all(first[1] <= other[0] for first, other in list(asked.values())[1:])


@pytest.mark.parametrize("seeds", [("",), ("_seed_1", "_seed_2")], ids=["tuned", "held out"])
def test_committed_rates_reach_their_goals(seeds):
    rates = pd.concat(pd.read_csv(RESULTS / f"recommended{seed}.csv") for seed in seeds)
    found = rates.groupby(["shape", "measure"])["share"].mean()["all"]  # of as many logs each
    pairs = pd.read_csv(RESULTS / f"identical_runs{seeds[0]}.csv").set_index("measure")["share"]
    assert found["near_best"] >= 0.95 and found["covers"] >= 0.94
    assert found["says_100"] == 0 == found["wrongly_better"]
    assert pairs["no_difference"] >= 0.94
    assert set(rates["shape"]) == {"all", *SHAPES}
