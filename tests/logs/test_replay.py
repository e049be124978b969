"""Replaying a log gives the values that a training loop would have seen, and nothing from the future."""

import numpy as np
import pytest
from hypothesis import given

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
