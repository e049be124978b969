"""Every method in each order and with each weighting: what the pages promise runs, and everything else is refused."""

import numpy as np
import pytest

from kaestat.baselines.registry import METHODS
from kaestat.smoothing.selectors import Auto
from tests.helpers.estimators import make

IDS = ["a", "a", "b", "b", "c", "c"]
STEPS = 7  # learned bandwidths need a few visits of each prompt
WEIGHTS = np.array([1.0, 2.0, 0.5, 1.5, 1.0, 3.0])
RATIOS = np.array([1.0, 0.5, 1.5, 1.0, 2.0, 1.0])
WEIGHTINGS = {
    "alone": {},
    "weights": {"weights": WEIGHTS},
    "importance": {"importance": RATIOS},
}
NO_SCALE = {"scale": "none"}  # whitening refuses weights


def rewards_at(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, 2, len(IDS)).astype(float)


def run(name: str, order: str, given: dict, **params) -> list[np.ndarray]:
    """Advantages of each step; half of a later step is observed, and every step is predicted and asked for again."""
    estimator, found = make(name, order=order, **NO_SCALE, **params), []
    for step in range(STEPS):
        rewards = rewards_at(step)
        found.append(estimator.step(IDS, rewards, step, **given))
        assert np.isfinite(found[-1]).all() and np.isfinite(estimator.values).all()
        if order == "any":
            assert np.isfinite(estimator.advantages(IDS, rewards, step, **given)).all()
        estimator.observe([f"{key} dropped" for key in IDS], rewards, step, **given)
        if estimator.baseline.horizon > 0:
            prediction = estimator.predict(["a", "b dropped", "never seen"], step + 1)
            assert np.isfinite(prediction.value).all()
    return found


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("name", METHODS)
def test_every_combination_runs_or_is_refused(name, weighting):
    given, plain = WEIGHTINGS[weighting], make(name).baseline
    taken = (
        plain.takes_weights and (not plain.needs_weights or "weights" in given) if given else not plain.needs_weights
    )
    for order in ("strict", "any"):
        if order == "any" and METHODS[name].order == "strict":
            refusal = f"method: {name!r} keeps a running state.*(rho=|such as kae, kae_eb)"
            with pytest.raises(ValueError, match=refusal):
                make(name, order=order)
            continue
        if not taken:
            with pytest.raises(ValueError, match=r"weights|importance"):
                run(name, order, given)
            continue
        found = run(name, order, given)
        if order == "any" and not isinstance(getattr(plain, "bandwidth", None), Auto):
            np.testing.assert_allclose(found, run(name, "strict", given), rtol=0, atol=1e-12)


def test_outside_values_follow_their_prompts_in_every_replay():
    """Rewards are the outside values themselves, so every difference from them is 0, in any order too."""
    values = {"a": 0.1, "b": 0.5, "c": 0.9}
    estimator = make("outside_value", order="any", outside=values)
    for step in range(STEPS):
        ids = [key for key in values for _ in range(2)][2 * (step % 2) :]  # not the same rows at every step
        rewards = np.array([values[key] for key in ids])
        np.testing.assert_allclose(estimator.step(ids, rewards, step), 0, atol=1e-12)
    np.testing.assert_allclose(estimator.predict(["c", "a"], STEPS).value, [0.9, 0.1], atol=1e-12)
