"""Replaying a log gives the values that a training loop would have seen, and nothing from the future."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, RewardLog, make_baseline
from kaestat.baselines.registry import parse_method
from kaestat.logs.replay import replay
from kaestat.smoothing.selectors import SELECTORS
from tests.helpers.estimators import UNWEIGHTED
from tests.helpers.log_rows import PROMPTS, rows

KNOWN = {
    "oracle": {"value": {prompt: 0.1 * i for i, prompt in enumerate(PROMPTS)}},
    "cluster_blend": {"clusters": {prompt: i % 2 for i, prompt in enumerate(PROMPTS)}},
    "outside_value": {"outside": {prompt: 0.1 * i for i, prompt in enumerate(PROMPTS)}},
    "remax": {"greedy": {prompt: float(i % 2) for i, prompt in enumerate(PROMPTS)}},
    "critic": {"features": {prompt: [0.3 * i, 1.0 - i] for i, prompt in enumerate(PROMPTS)}},
}
SPECIFICATIONS = [
    *UNWEIGHTED,
    "kae:bandwidth=2.5",
    "kae:bandwidth=3,kernel=exponential",
    *(f"kae:bandwidth={name}" for name in SELECTORS if name != "fixed"),
    "kae:normalization=algorithm1",
    "kae_stream:bandwidth=3",
    "kae_eb:bandwidth=3",
    "local_linear:bandwidth=6",
]


def make(specification: str):
    name, params = parse_method(specification)
    return make_baseline(name, **params, **KNOWN.get(name, {}))


def served_step_by_step(log: RewardLog, baseline) -> np.ndarray:
    """Values in the order of ``log.frame``, from a training loop that sees one step at a time."""
    estimator = AdvantageEstimator(baseline)
    values = np.empty(len(log.frame))
    for step, frame in log.frame.groupby("step", sort=True):
        prompts = [log.prompts[code] for code in frame["prompt"]]
        streams = frame["group"].tolist() if log.has_groups and baseline.unit == "group" else None
        estimator.step(prompts, frame["reward"].to_numpy(), step, stream_ids=streams)
        values[frame.index] = estimator.values
    return values


@pytest.mark.parametrize("specification", SPECIFICATIONS)
@given(columns=rows())
def test_replay_equals_a_training_loop_over_the_same_rewards(specification, columns):
    """Which has not seen later steps."""
    baseline, log = make(specification), RewardLog(*columns)
    np.testing.assert_allclose(replay(log, baseline)[0], served_step_by_step(log, baseline), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("specification", ["kae", "ebpo", "critic", "kalman"])
def test_rewards_of_earlier_steps_do_change_values_of_history_methods(specification):
    before, after = ([replay(RewardLog(["a"] * 4, [0, 0, 5, 5], [r, r, 0, 1]), make(specification))[0]] for r in (0, 1))
    assert not np.allclose(before[0][2:], after[0][2:])


@pytest.mark.parametrize(
    "specification", ["kae", "kae_eb", "bayes_filter", "ebpo", "spo", "critic", "kae:bandwidth=auto"]
)
@given(columns=rows(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(specification, columns, seed):
    baseline, order = make(specification), np.random.default_rng(seed).permutation(len(columns[0]))
    rounding = 2e-6 if specification.startswith("bayes_filter") else 1e-9  # its messages are of single precision
    shuffled = [None if column is None else [column[i] for i in order] for column in columns]
    np.testing.assert_allclose(
        values_by_row(RewardLog(*columns), baseline), values_by_row(RewardLog(*shuffled), baseline), atol=rounding
    )


def values_by_row(log: RewardLog, baseline) -> np.ndarray:
    """Values sorted by what their rows say, so that two orders of the same rows can be compared."""
    frame = log.frame.assign(value=replay(log, baseline)[0], prompt=[str(log.prompts[c]) for c in log.frame["prompt"]])
    return frame.sort_values(["step", "prompt", "reward", "value"])["value"].to_numpy()
