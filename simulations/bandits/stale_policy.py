"""A softmax policy that moves while its completions are on their way: what was sampled, by which version, used when.

Every prompt has answers of its own, half of them right, with one logit each: scores are ``e_y - pi``, nearly of one
norm and nearly orthogonal between answers, and a prompt's signal is far below the noise, as with a language model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logit, softmax

from simulations.bandits.paths import START_MEAN, START_WITHIN

N_ANSWERS = 32
RIGHT = np.arange(N_ANSWERS) % 2 == 0
UNEVEN = 0.3  # standard deviation of an answer's own logit before training
TREND = 0.2  # drift of right answers' logits towards success, in standard deviations of a step, as `paths.linear`
ARRIVALS = ("together", "spread", "singly", "waiting")
HEAVY, MOST = 1.0, 4  # sigma of log-normal completion times, and where they are cut off, in mean times


def policy_path(rng: np.random.Generator, n_steps: int, n_prompts: int, speed: float) -> np.ndarray:
    """Answers' probabilities under the policy of each step, shape (T, P, K).

    The logit of success walks at random by ``speed`` a step with a trend upwards, and so does each answer's own logit
    without one: what changes in a policy and what that does to the value are both there.
    """
    size = START_WITHIN / (START_MEAN * (1 - START_MEAN) - START_WITHIN)
    start = np.clip(rng.beta(START_MEAN * size, (1 - START_MEAN) * size, n_prompts), 0.01, 0.99)
    own = rng.normal(scale=UNEVEN, size=(1, n_prompts, N_ANSWERS))
    moves = speed * rng.normal(size=(n_steps, n_prompts, 1 + N_ANSWERS))
    moves[..., 0] += TREND * speed
    moves[0] = 0.0
    path = np.cumsum(moves, axis=0)
    return softmax(own + path[..., 1:] + RIGHT * (logit(start)[None, :, None] + path[..., :1]), axis=-1)


def delays(rng: np.random.Generator, arrival: str, staleness: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Steps from a completion's sampling to its use, of mean ``staleness`` before any waiting; shape (T, P, G).

    Parameters
    ----------
    rng : Generator
    arrival : str
        ``together``: all are late by as much. ``spread``: whole groups, each late by anything from 0 to twice as much.
        ``singly``: completions have log-normal times and are used as they come. ``waiting``: with the same times, a
        group is used when its last one has come.
    staleness : int
    shape : tuple of int
    """
    if arrival == "together":
        return np.full(shape, staleness)
    if arrival == "spread":
        return np.broadcast_to(rng.integers(2 * staleness + 1, size=(*shape[:2], 1)), shape)
    times = staleness * np.exp(HEAVY * rng.normal(size=shape) - HEAVY**2 / 2)
    late = np.floor(np.minimum(times, MOST * staleness) + rng.random(shape)).astype(int)
    late = np.minimum(late, MOST * staleness)
    return late if arrival == "singly" else np.broadcast_to(late.max(axis=-1, keepdims=True), shape)


def longest(arrival: str, staleness: int) -> int:
    """The longest of the `delays`."""
    return {"together": 1, "spread": 2}.get(arrival, MOST) * staleness


@dataclass(frozen=True, eq=False)
class Sampled:
    """Completions, by the step that sampled them, the prompt, and their place in the group.

    Attributes
    ----------
    policy : ndarray, shape (T, P, K)
        Of each step.
    answer, used : ndarray of int, shape (T, P, G)
        What the policy of each step sampled, and the step at which it is used for training; one after the last is
        taken for the last.
    """

    policy: np.ndarray
    answer: np.ndarray
    used: np.ndarray

    @classmethod
    def of(cls, policy: np.ndarray, drawn: np.ndarray, delay: np.ndarray) -> Sampled:
        """The answers that uniform numbers ``drawn``, shape (T, P, G), choose."""
        answer = np.zeros(drawn.shape, dtype=int)
        for chance in np.moveaxis(np.cumsum(policy, axis=-1), -1, 0)[:-1]:
            answer += drawn >= chance[..., None]
        return cls(policy, answer, np.arange(len(drawn))[:, None, None] + delay)

    @property
    def reward(self) -> np.ndarray:
        """1 for a right answer, else 0; shape (T, P, G)."""
        return RIGHT[self.answer].astype(float)

    @property
    def values(self) -> np.ndarray:
        """Of every policy, shape (T, P)."""
        return self.policy[..., RIGHT].sum(axis=-1)

    @property
    def value_then(self) -> np.ndarray:
        """Value of the policy that sampled each completion, shape (T, P, G)."""
        return np.broadcast_to(self.values[..., None], self.answer.shape)

    @property
    def value_now(self) -> np.ndarray:
        """Value of the policy that is trained with each completion, shape (T, P, G)."""
        now, prompt = self._place()
        return self.values[now, prompt]

    @property
    def importance(self) -> np.ndarray:
        """Probability of each completion under the policy trained with it over that under its sampler; (T, P, G)."""
        now, prompt = self._place()
        step = np.arange(len(self.answer))[:, None, None]
        return self.policy[now, prompt, self.answer] / self.policy[step, prompt, self.answer]

    def gradient_error(self, terms: np.ndarray, scored: slice) -> float:
        """Mean squared error of a prompt's gradient from its completions of one step.

        Each completion contributes ``terms * (e_y - pi_now)``, which is to be the gradient of the prompt's value under
        the policy that is trained with it; the contributions of a group are averaged.

        Parameters
        ----------
        terms : ndarray, shape (T, P, G)
            Advantages, times importance weights if there are any.
        scored : slice
            Of the steps of sampling.
        """
        policy, target = self._now(scored)
        sampled = np.zeros(policy.shape[:2] + policy.shape[-1:])
        step, prompt, _ = np.indices(self.answer[scored].shape)
        np.add.at(sampled, (step, prompt, self.answer[scored]), terms[scored])
        sampled -= np.einsum("tpg,tpgk->tpk", terms[scored], policy)
        return float(((sampled / terms.shape[-1] - target) ** 2).sum(axis=-1).mean())

    def bias(self, scored: slice) -> tuple[float, float]:
        """Squared bias of the gradient without importance weights about the samplers' own values, and its squared norm.

        By enumeration of the answers: ``E_then[(R - V_then) (e_y - pi_now)]`` against the gradient now.
        """
        _, target = self._now(scored)
        then = self.policy[: len(self.answer)][scored]
        expected = then * (RIGHT - self.values[: len(self.answer)][scored][..., None])  # sums to 0, so pi_now cancels
        return float(((expected - target) ** 2).sum(axis=-1).mean()), float((target**2).sum(axis=-1).mean())

    def _now(self, scored: slice) -> tuple[np.ndarray, np.ndarray]:
        """The policy at each completion's use, (T', P, G, K), and the mean gradient of a group, (T', P, K)."""
        now, prompt = (np.broadcast_to(part, self.used.shape)[scored] for part in self._place())
        gradient = self.policy * (RIGHT - self.values[..., None])
        return self.policy[now, prompt], gradient[now, prompt].mean(axis=2)

    def _place(self) -> tuple[np.ndarray, np.ndarray]:
        return np.minimum(self.used, len(self.policy) - 1), np.arange(self.policy.shape[1])[None, :, None]
