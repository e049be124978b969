"""How values may move from visit to visit: the hypotheses of `kaestat.baselines.bayes_filter`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device

from kaestat.core.arrays import Array, namespace

WALKS = (0.03, 0.064, 0.135, 0.29, 0.61, 1.3)  # standard deviations per visit, logits
DRIFTS = ((0.03, 0.1), (0.1, 0.03), (0.22, 0.05))  # logits per visit, either way, and the walk beside it
AGES = 2  # visits since a jump for which the value after it is kept apart
FRESH_WALK = 0.05
DRIFTING, MIXED, OWN_DRIFTS = (
    0.15,
    0.15,
    0.1,
)  # prior probabilities: of a drift; that prompts differ, or differ in drift
OTHERWISE = 0.02  # share of prompts that move in another way where all are expected to move in one
JUMPS = ((0.0005, 0.6), (0.005, 0.25), (0.03, 0.1), (0.15, 0.05))  # probabilities of a jump per visit, and their priors
SHOCKS = np.linspace(-4.0, 4.0, 33)  # logits, of all prompts at once
SHOCK = 0.005  # prior probability of one per return of the prompts
PSEUDO_PROMPTS = 8.0
PRECISION = "float32"  # of what is known of each prompt: a step costs half as much


class Rates(NamedTuple):
    """The hypotheses, in the array kind and on the device of some rewards.

    M hypotheses are K ways in which a value goes on moving, and ``AGES`` more for values that have just jumped.
    """

    variance: Array  # shape (M, 1); of a move, squared logits per visit
    drift: Array  # shape (D, 1); its mean, for the last D of the K ways
    start: Array  # shape (K, 1)
    first: Array  # shape (K,); prior probabilities of the ways
    # shape (C, K), (C, 1) and (C,); how prompts may be spread over the ways: nearly all in one; as learned (the row is
    # 0); each with a drift of its own. What of each row is learned, and their prior probabilities
    mixtures: Array
    as_learned: Array
    mixture_prior: Array
    jump: Array  # shape (J,)
    jump_prior: Array
    shock: Array  # shape (S, 1)
    carry: dict[str, Array]  # What is learned of these, before the first step

    @classmethod
    def of(cls, model: Array) -> Rates:
        """The hypotheses in the kind and on the device of these rewards."""
        return _rates(namespace(model), model.dtype, device(model), PRECISION)


def plain_rates() -> Rates:
    """The hypotheses in double precision."""
    return _rates(namespace(np.zeros(1)), np.dtype(np.float64), "cpu", "float64")


@lru_cache(maxsize=8)
def _rates(xp: Any, dtype: Any, where: Any, precision: str) -> Rates:
    drifts = [(sign * drift, walk) for drift, walk in DRIFTS for sign in (-1, 1)]
    walks = np.array([*WALKS, *(walk for _, walk in drifts)])
    slow = np.maximum(WALKS, 0.1) ** -0.5
    first = np.concatenate([(1 - DRIFTING) * slow / slow.sum(), np.full(len(drifts), DRIFTING / len(drifts))])
    own = np.concatenate([[0.15, 0.15], np.zeros(len(WALKS) - 2), np.full(len(drifts), 0.7 / len(drifts))])
    mixtures = np.concatenate([(1 - OTHERWISE) * np.eye(len(walks)), np.zeros((1, len(walks))), own[None]])
    coarse = {
        "variance": np.concatenate([walks, np.full(AGES, FRESH_WALK)])[:, None] ** 2,
        "drift": np.array([drift for drift, _ in drifts])[:, None],
        "start": first[:, None],
        "shock": SHOCKS[:, None],
    }
    fine = {
        "first": first,
        "mixtures": mixtures,
        "as_learned": 1 - mixtures.sum(axis=1, keepdims=True),
        "mixture_prior": np.concatenate([(1 - MIXED - OWN_DRIFTS) * first, [MIXED, OWN_DRIFTS]]),
        "jump": np.array([jump for jump, _ in JUMPS]),
        "jump_prior": np.array([prior for _, prior in JUMPS]),
    }
    arrays = {name: xp.asarray(array, dtype=dtype, device=where) for name, array in fine.items()}
    arrays |= {name: xp.asarray(array, dtype=getattr(xp, precision), device=where) for name, array in coarse.items()}
    carry = {name: xp.log(arrays[prior]) for name, prior in (("mixture", "mixture_prior"), ("jumps", "jump_prior"))}
    return Rates(**arrays, carry=carry | {"each": PSEUDO_PROMPTS * arrays["first"]})
