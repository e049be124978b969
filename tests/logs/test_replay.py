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
    "outside_value": {"outside": {prompt: 0.1 * i for i, prompt in enumerate(PROMPTS)}},
    "remax": {"greedy": {prompt: float(i % 2) for i, prompt in enumerate(PROMPTS)}},
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


def served_step_by_step(log: RewardLog, baseline, weights=None) -> np.ndarray:
    """Values in the order of ``log.frame``, from a training loop that sees one step at a time."""
    estimator = AdvantageEstimator(baseline)
    values = np.empty(len(log.frame))
    for step, frame in log.frame.groupby("step", sort=True):
        prompts = [log.prompts[code] for code in frame["prompt"]]
        streams = frame["group"].tolist() if log.has_groups and baseline.unit == "group" else None
        given_weights = None if weights is None else frame[weights].to_numpy()
        estimator.step(prompts, frame["reward"].to_numpy(), step, stream_ids=streams, weights=given_weights)
        values[frame.index] = estimator.values
    return values


@pytest.mark.parametrize("specification", SPECIFICATIONS)
@given(columns=rows())
def test_replay_equals_a_training_loop_over_the_same_rewards(specification, columns):
    """Which has not seen later steps."""
    baseline, log = make(specification), RewardLog(*columns)
    np.testing.assert_allclose(replay(log, baseline)[0], served_step_by_step(log, baseline), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("specification", ["kae", "kae_eb", "kae_eb:bandwidth=3", "kae_stream", "local_linear"])
def test_a_weighted_replay_does_too(specification):
    """Through several blocks of steps; `kae_eb` mixes two ways to use the weights."""
    rng, baseline = np.random.default_rng(0), make(specification)
    prompt, step = rng.integers(0, 40, 3000), np.sort(rng.integers(0, 150, 3000))
    reward, weight = rng.random(3000) < (prompt + step % 60) / 100, rng.exponential(1.0, 3000)
    log = RewardLog(prompt, step, reward, weight=weight * (1 + 4 * reward))
    expected = served_step_by_step(log, baseline, "weight")
    np.testing.assert_allclose(replay(log, baseline, "weight")[0], expected, rtol=1e-10, atol=1e-10)
