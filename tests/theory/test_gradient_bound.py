"""Theorem 2's bound: a hand-computed case, and no bandit of its assumptions that exceeds it."""

import numpy as np
import pytest
from scipy.stats import binom

from kaestat.theory import algorithm1_error, excess_gradient_mse, theorem2_bound

CASE = dict(step=100, prompts=50, batch=10, group_size=2, h=0.1, drift=0.1, score_norm2=1.5)


def test_the_four_terms_of_a_hand_computed_case():
    # Triangular kernel: K(0) = 2, mu1 = 1/3, R = 4/3; i h = 10, B G = 20, m / (i B) = 1/20.
    bound = theorem2_bound(**CASE, value_bound=1.0, noise_variance=0.25)
    assert bound.drift == pytest.approx(2 * 1.5 * (0.1 * 0.1 * (1 / 3 + 1 / 10) / 0.9) ** 2 / 20)
    assert bound.discretisation == pytest.approx(2 * 1.5 * (2 / 10) ** 2 / 20)
    assert bound.variance == pytest.approx(1.5 * (4 / 3 * (0.25 + 2 * 1)) / 0.1 * (1 / 20) / 20)  # 1/(G - 1) = 1
    assert bound.mutual == pytest.approx(2 * 1.5 * 0.25 * (2 / 0.1) ** 2 * (1 / 20) ** 2 / 20)
    assert bound.excess == pytest.approx(bound.drift + bound.discretisation + bound.variance + bound.mutual)


def bandit(arms: int, tilt: float, steps: int, seed: int) -> dict[str, np.ndarray | float]:
    """Softmax policies that arrive at the uniform one, where all scores are of one norm: Assumption 6 holds.

    Logits at step t are ``tilt * direction * log(i / t)``, so they move as learning rates of beta / t move them.
    """
    rng = np.random.default_rng(seed)
    success, direction = rng.uniform(0, 1, size=(6, arms)), rng.normal(size=(6, arms))
    time = np.maximum(np.arange(steps + 1), 1e-3)
    logits = tilt * direction[:, None] * np.log(steps / time)[:, None]
    policy = np.exp(logits - logits.max(axis=-1, keepdims=True))
    path = (policy / policy.sum(axis=-1, keepdims=True) * success[:, None]).sum(axis=-1)
    change = np.abs(np.diff(path[:, 1:], axis=1)) / np.log(time[2:] / time[1:-1])
    scores = np.eye(arms) - 1 / arms
    gradient = (success[..., None] * scores).mean(axis=1)
    return {
        "path": path,
        "drift": float(change.max()),
        "norm2": float((scores**2).sum(axis=1)[0]),
        "gradient_norm2": (gradient**2).sum(axis=1),
    }


def exact_excess(made: dict, *, step: int, prompts: int, batch: int, group_size: int, h: float) -> float:
    """The identity of `excess_gradient_mse` in expectation over the number of past visits."""
    excess = 0.0
    for visits in range(step + 1):
        probability = binom.pmf(visits, step, batch / prompts)
        if probability > 1e-12:
            mass = h * group_size * visits + 2 * (group_size - 1)
            excess += probability * excess_gradient_mse(
                algorithm1_error(made["path"], visits=visits, group_size=group_size, h=h).mse,
                made["norm2"],
                batch=batch,
                group_size=group_size,
                own_derivative=2 / mass,
                value_gradient_norm2=made["gradient_norm2"],
            )
    return excess


SETTINGS = [
    (step, h, group_size, tilt, batch)
    for step in (40, 160)
    for h in (0.1, 0.4)
    for group_size in (2, 8)
    for tilt in (0.0, 0.3, 1.5)
    for batch in (1, 6)
]


def exact_and_bound(step, h, group_size, tilt, batch):
    made = bandit(3, tilt, step, seed=step)
    sizes = dict(step=step, prompts=12, batch=batch, group_size=group_size, h=h)
    top = float(made["path"].max())
    bound = theorem2_bound(**sizes, drift=made["drift"], score_norm2=made["norm2"], value_bound=top)
    return exact_excess(made, **sizes), bound


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_no_bandit_exceeds_the_bound(setting):
    exact, bound = exact_and_bound(*setting)
    assert 0 < exact <= bound.excess


@pytest.mark.parametrize(
    ("term", "setting"), [("drift", (2000, 0.5, 8, 3.0, 12)), ("variance", (2000, 0.1, 2, 0.0, 6))]
)
def test_without_its_drift_or_its_variance_the_bound_is_exceeded(term, setting):
    exact, bound = exact_and_bound(*setting)
    assert bound.excess - getattr(bound, term) < exact <= bound.excess


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 1}, "group_size must be a whole number of at least 2"),
        ({"batch": 51}, "batch must be at most the number of prompts, 50"),
        ({"h": 1.0}, r"h must lie in \(0, 1\)"),
        ({"kernel": "exponential"}, "support"),
        ({"score_norm2": -1.0}, "score_norm2 must be non-negative"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        theorem2_bound(**CASE | change)
