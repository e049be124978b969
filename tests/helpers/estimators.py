"""Estimators of every method for the tests of `AdvantageEstimator`, and one ragged step of samples."""

from functools import partial

from kaestat import AdvantageEstimator, AsynchronousEstimator, SeveralRewards, make_baseline, methods

PARAMETERS = {
    "oracle": {"value": lambda prompts, step: [0.25] * len(prompts)},
    "outside_value": {"outside": lambda prompts, step: [0.25] * len(prompts)},
    "remax": {"greedy": lambda prompts, step: [1.0] * len(prompts)},
}

UNWEIGHTED = tuple(name for name in methods() if not make_baseline(name).needs_weights)  # serve rewards alone

OF_EVERY_STATE = {
    "kae": partial(AdvantageEstimator, "kae", bandwidth=10),
    "kae, any order": partial(AsynchronousEstimator, "kae", bandwidth=10),
    "kae, deltas kept": partial(AsynchronousEstimator, "kae", bandwidth=10, keep_deltas=True),
    "kae_eb": partial(AdvantageEstimator, "kae_eb"),  # has a carry
    "kae_eb, any order": partial(AsynchronousEstimator, "kae_eb"),
    "bayes_filter": partial(AdvantageEstimator, "bayes_filter"),  # has numbers of each prompt
    "several rewards": partial(SeveralRewards.of, "kae", ["right", "format"], bandwidth=10),
}

PROMPTS = ["a", "b", "a", "c", "b", "a"]
REWARDS = [1.0, 0.0, 0.0, 1.0, 1.0, 0.5]


def make(name: str, order: str = "strict", **params) -> AdvantageEstimator:
    kind = AsynchronousEstimator if order == "any" else AdvantageEstimator
    return kind(name, **PARAMETERS.get(name, {}) | params)


def with_past(name: str, n_steps: int = 3, **params) -> AdvantageEstimator:
    estimator = make(name, **params)
    for step in range(n_steps):
        estimator.step(PROMPTS, REWARDS[step:] + REWARDS[:step], step)
    return estimator
