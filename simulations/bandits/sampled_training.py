"""Training on what is sampled: a shared policy, an estimator, and a sampler that follows what it has seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.baselines.registry import parse_method
from kaestat.sampling import Draw, PromptSampler
from simulations.bandits.softmax import SoftmaxBandit

PREDICTOR = "kae_eb:bandwidth=20"
FIRST_DECAY, SECOND_DECAY, EPSILON = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True)
class Way:
    """How completions are spent and turned into advantages.

    estimator: Specification of the method of the advantages.
    policy: Of the sampler.
    group_size: Completions of each prompt drawn, once a step; None leaves their number free.
    """

    estimator: str = PREDICTOR
    policy: str = "uniform"
    group_size: int | None = None
    floor: float = 0.1
    correction: str = "full"

    def sampler(self, n_prompts: int, budget: int, seed: int, most: int | None = None) -> PromptSampler:
        """A new sampler, with a predictor of its own if the method of the advantages keeps no history."""
        estimator = _estimator(self.estimator)
        return PromptSampler(
            range(n_prompts),
            budget,
            policy=self.policy,
            predictor=estimator if estimator.baseline.horizon > 0 else _estimator(PREDICTOR),
            group_size=self.group_size,
            floor=self.floor,
            most=most,
            correction=self.correction,
            seed=seed,
        )


@dataclass
class Adam:
    """Ascent with Adam (Kingma and Ba, 2015)."""

    rate: float
    first: np.ndarray | float = 0.0
    second: np.ndarray | float = 0.0
    steps: int = field(default=0)

    def move(self, gradient: np.ndarray) -> np.ndarray:
        """What is added to the parameters."""
        self.steps += 1
        self.first = FIRST_DECAY * self.first + (1 - FIRST_DECAY) * gradient
        self.second = SECOND_DECAY * self.second + (1 - SECOND_DECAY) * gradient**2
        first = self.first / (1 - FIRST_DECAY**self.steps)
        second = self.second / (1 - SECOND_DECAY**self.steps)
        return self.rate * first / (np.sqrt(second) + EPSILON)


def completions(
    bandit: SoftmaxBandit, theta: np.ndarray, prompts: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rewards, shape (B,), and scores, shape (B, d), of one sampled action of each of B prompts."""
    of = SoftmaxBandit(bandit.features[prompts], bandit.success[prompts], bandit.base[prompts])
    chances = np.cumsum(of.policy(theta), axis=-1)
    action = np.minimum((chances < rng.random(len(prompts))[:, None]).sum(axis=-1), chances.shape[-1] - 1)
    row = np.arange(len(prompts))
    reward = (rng.random(len(prompts)) < of.success[row, action]).astype(float)
    return reward, of.scores(theta)[row, action]


def training(
    bandit: SoftmaxBandit, way: Way, sampler: PromptSampler, *, steps: int, rate: float, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, Draw]]:
    """Parameters before each step and the step's draw, and at the end those learned with what would be drawn next."""
    estimator = sampler.predictor if way.estimator == PREDICTOR else _estimator(way.estimator)
    theta, optimizer = np.zeros(bandit.features.shape[-1]), Adam(rate)
    for step in range(steps):
        draw = sampler.draw(step)
        yield theta, draw
        prompts = np.asarray(draw.rows())
        reward, score = completions(bandit, theta, prompts, rng)
        advantage = estimator.step(prompts, reward, step) * draw.correction_of(prompts.tolist())
        sampler.observe(prompts, reward, step)
        theta = theta + optimizer.move(advantage @ score / len(reward))
    yield theta, sampler.draw(steps)


def _estimator(specification: str) -> AdvantageEstimator:
    method, parameters = parse_method(specification)
    return AdvantageEstimator(method, **parameters)
