"""Sampling policies: each scores the prompts from their past alone. Published rules are functions of a few lines."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from kaestat.estimator.prediction import Prediction
from kaestat.sampling.expected_noise import expected_noise

Memory = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class Ask:
    """What a policy may use, with all rewards mapped to [0, 1]."""

    prediction: Prediction  # of the P prompts that can be sampled
    memory: Memory  # arrays of shape (P,); see `Policy`
    share: np.ndarray  # shape (P,); weights pi of the prompts in the objective; they sum to 1
    cost: np.ndarray  # shape (P,); expected cost of one completion
    budget: float  # in completions, or in groups if these have a fixed size
    most: float  # largest amount for one prompt, in the same unit
    group_size: int  # completions of a group; 1 if numbers of completions are free
    rng: np.random.Generator


@dataclass(frozen=True)
class Policy:
    """A score of each prompt; expected numbers of completions are proportional to it.

    Attributes
    ----------
    score : function of an `Ask`
        Returns the scores, shape (P,), 0 for a prompt that should not be sampled. Its name is the policy's.
    leaves_out : bool
        Whether some prompts may have a score of 0.
    takes_groups : bool
        Whether prompts can get whole groups of a fixed size; False if the policy chooses the size.
    memory : mapping
        Names and initial values of the numbers that the sampler keeps of each prompt for the policy.
    seen : function, optional
        ``seen(memory, rows, count, mean)`` changes the memory in place once the completions of a step are scored.
        ``rows`` are the positions of the step's prompts, ``count`` their completions, ``mean`` their mean rewards.
    """

    score: Callable[[Ask], np.ndarray]
    leaves_out: bool = False
    takes_groups: bool = True
    memory: Mapping[str, float] = field(default_factory=dict)
    seen: Callable[[Memory, np.ndarray, np.ndarray, np.ndarray], None] | None = None

    @property
    def name(self) -> str:
        """The name of the score function."""
        return self.score.__name__

    @property
    def summary(self) -> str:
        """The first line of the score function's docstring."""
        return (self.score.__doc__ or "").strip().partition("\n")[0].rstrip(".")


def make_policy(policy: str | Policy) -> Policy:
    """The policy of that name, or the given `Policy`. A ValueError if the name is unknown."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str) or policy not in POLICIES:
        raise ValueError(f"policy: unknown {policy!r}; choose one of {', '.join(POLICIES)}, or give a Policy.")
    return POLICIES[policy]


def uniform(ask: Ask) -> np.ndarray:
    """Every prompt as often as the objective weights it."""
    return ask.share


def neyman(ask: Ask) -> np.ndarray:
    """Least gradient noise for the cost (Neyman, 1934)."""
    return ask.share * np.sqrt(expected_noise(ask.prediction, group_size=ask.group_size) / ask.cost)


def dapo(ask: Ask) -> np.ndarray:
    """Uniform; `live_groups` are kept, and the others were generated in vain (DAPO, arXiv 2503.14476)."""
    return ask.share


def live_groups(rewards: np.ndarray) -> np.ndarray:
    """DAPO's filter: which groups are kept, those whose rewards, shape (..., G), differ."""
    return rewards.max(axis=-1) > rewards.min(axis=-1)


def learnability(ask: Ask) -> np.ndarray:
    """The variance of success (Foster et al., arXiv 2502.12272)."""
    value = ask.prediction.value
    return ask.share * value * (1 - value)


def spo(ask: Ask) -> np.ndarray:
    """The standard deviation of success, plus .05 (SPO, arXiv 2509.13232)."""
    value = ask.prediction.value
    return ask.share * (np.sqrt(value * (1 - value)) + 0.05)


def near_half(ask: Ask) -> np.ndarray:
    """Values nearest to one half (SPEED-RL, arXiv 2506.09016)."""
    return _nearest_to_half(ask, ask.prediction.value)


def mopps(ask: Ask) -> np.ndarray:
    """Thompson draws nearest to one half (MoPPS, arXiv 2507.04632)."""
    return _nearest_to_half(ask, ask.rng.beta(ask.memory["successes"], ask.memory["failures"]))


def pools(ask: Ask) -> np.ndarray:
    """Difficulty pools by the newest group (prime-rl)."""
    mean = ask.memory["newest_mean"]
    return ask.share * np.where((mean <= 0.25) | (mean > 0.75), 0.2, 1.0)


def greso(ask: Ask) -> np.ndarray:
    """Prompts that were all right or all wrong again and again are skipped (GRESO, arXiv 2506.02177)."""
    memory = ask.memory
    kept = memory["easy"] ** memory["right"] * memory["hard"] ** memory["wrong"]  # one of the exponents is 0
    return ask.share * (ask.rng.random(len(kept)) < np.maximum(kept, 0.01))


def knapsack(ask: Ask) -> np.ndarray:
    """Numbers of completions by their marginal gain (Knapsack RL, arXiv 2509.25849)."""
    p = ask.prediction.value
    gain, most = p * (1 - p) ** 2, int(min(128, ask.most, ask.budget))  # the published largest group
    if not (gain > 0).any() or most < 2:
        return ask.share
    low, high = 0.0, float((gain * p * (1 - p)).max()) * (1 + 1e-6)  # of the price at which the budget is spent
    for _ in range(30):  # to 1e-9 of the highest price: nearer ones differ by rounding
        price = (low + high) / 2
        low, high = (price, high) if _bought(p, gain, price, most).sum() > ask.budget else (low, price)
    few, many = _bought(p, gain, high, most), _bought(p, gain, low, most)
    missing = many.sum() - few.sum()
    return few + (many - few) * min(1.0, (ask.budget - few.sum()) / missing) if missing > 0 else few


def _bought(p: np.ndarray, gain: np.ndarray, price: float, most: int) -> np.ndarray:
    """How many completions of each prompt are worth the price.

    The k-th is worth ``gain p (1 - p) (p^(k-2) + (1 - p)^(k-2))``, which falls with k; the first two together are worth
    twice half of the second's.
    """
    low, high = np.full(len(p), 2), np.full(len(p), most)
    while (low < high).any():  # the largest k that is worth it, for all prompts at once
        k = (low + high + 1) // 2
        worth = gain * p * (1 - p) * (p ** (k - 2.0) + (1 - p) ** (k - 2.0)) >= price
        low, high = np.where(worth, k, low), np.where(worth, high, k - 1)
    return np.where(gain * p * (1 - p) >= price, low, 0.0)


def _nearest_to_half(ask: Ask, value: np.ndarray) -> np.ndarray:
    """1 for as many prompts as the budget allows (one completion each if there is no limit), 0 for the others."""
    number = math.ceil(ask.budget / (ask.most if math.isfinite(ask.most) else 1.0) - 1e-9)  # not one more by rounding
    distance = np.round(np.abs(value - 0.5), 9)  # values that differ by rounding are ties, which chance decides
    score = np.zeros(len(value))
    score[np.lexsort((ask.rng.random(len(value)), distance))[: max(number, 1)]] = 1.0
    return score


def _count_mopps(memory: Memory, rows: np.ndarray, count: np.ndarray, mean: np.ndarray) -> None:
    """Decay the counts by half towards the prior's 1, and add the new ones."""
    for name, new in (("successes", count * mean), ("failures", count * (1 - mean))):
        memory[name][rows] = 0.5 * memory[name][rows] + 0.5 + new


def _count_greso(memory: Memory, rows: np.ndarray, count: np.ndarray, mean: np.ndarray) -> None:
    """Count all-right and all-wrong groups in a row, and adapt both probabilities; the constants are its code's."""
    for run, kept, alike, target in (
        ("right", "easy", mean >= 0.98, 0.25 / 3),
        ("wrong", "hard", mean <= 0.11, 0.5 / 3),
    ):
        memory[run][rows] = np.where(alike, memory[run][rows] + 1, 0.0)
        change = -0.01 if alike.mean() >= target else 0.01
        memory[kept][:] = np.clip(memory[kept][0] + change, 0.05, 0.95)


def _keep_mean(memory: Memory, rows: np.ndarray, count: np.ndarray, mean: np.ndarray) -> None:
    memory["newest_mean"][rows] = mean


POLICIES = {
    policy.name: policy
    for policy in (
        Policy(uniform),
        Policy(neyman),
        Policy(dapo),
        Policy(learnability, leaves_out=True),
        Policy(knapsack, leaves_out=True, takes_groups=False),
        Policy(greso, leaves_out=True, memory=dict(right=0.0, wrong=0.0, easy=0.5, hard=0.5), seen=_count_greso),
        Policy(mopps, leaves_out=True, memory=dict(successes=1.0, failures=1.0), seen=_count_mopps),
        Policy(spo),
        Policy(near_half, leaves_out=True),
        Policy(pools, memory=dict(newest_mean=0.5), seen=_keep_mean),  # as if a prompt's first group were normal
    )
}
