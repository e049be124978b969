"""The model of `kaestat.baselines.bayes_filter` by exact Bayes on a grid of logits.

It knows the distribution of values over prompts. Weights of kinds and the chance of jumps are learned by the same
pooled likelihoods. Rewards are 0 or 1, all prompts come at each step, and there are no shocks.
"""

import numpy as np
from scipy.special import betainc, expit

from kaestat.baselines.bayes_filter import FORGET, JUMPS, SPREADS
from kaestat.baselines.beta_mixture import KINDS, RARE

LOGITS = np.linspace(-8, 8, 81)
SPACING = LOGITS[1] - LOGITS[0]
P = expit(LOGITS)


def transition(walk, drift):
    """Moves with this mean and standard deviation, or with the least one that the grid can have; (X, X)."""
    if walk >= 0.8 * SPACING:
        moved = np.exp(-0.5 * ((LOGITS - LOGITS[:, None] - drift) / walk) ** 2)
        return moved / moved.sum(axis=1, keepdims=True)
    down = int(np.floor(drift / SPACING))
    up = drift / SPACING - down
    more = max((walk / SPACING) ** 2 - up * (1 - up), 0) / 2
    moved = np.zeros((len(LOGITS), len(LOGITS)))
    for by, share in ((-1, more), (0, 1 - up - 2 * more), (1, up), (1, more)):
        np.add.at(moved, (np.arange(len(LOGITS)), np.clip(np.arange(len(LOGITS)) + down + by, 0, 80)), share)
    return moved


MOVES = np.stack([transition(*kind) for kind in KINDS])


def beta_prior(a, b):
    """Beta(a, b) on the grid, the outermost cells with all that lies beyond; (X,)."""
    edges = expit(np.concatenate([[-np.inf], (LOGITS[1:] + LOGITS[:-1]) / 2, [np.inf]]))
    return np.diff(betainc(a, b, edges))


def values(reward, prior):
    """Leave-one-out posterior means of rewards of 0 and 1; (T, P, G)."""
    n_prompts, size = reward.shape[1:]
    rates, log_rate_prior = np.array([*JUMPS]), np.log([*JUMPS.values()])
    spread, log_rate = np.zeros(len(SPREADS)), log_rate_prior.copy()
    belief = np.broadcast_to(prior, (n_prompts, len(KINDS), len(LOGITS)))  # times the evidence of each kind
    out = np.empty(reward.shape)
    for t, now in enumerate(reward):
        kinds = normalised(np.exp(spread - spread.max())) @ SPREADS
        rate = normalised(np.exp(log_rate - log_rate.max())) @ rates
        stayed = belief
        if t:
            belief = belief / np.einsum("k,pkx->p", kinds, belief)[:, None, None]
            changed = (1 - RARE) * belief + RARE * np.einsum("k,pkx->px", kinds, belief)[:, None]
            stayed = np.einsum("pkx,kxy->pky", changed, MOVES)
            belief = (1 - rate) * stayed + rate * prior
        level, total = np.einsum("k,pkx->px", kinds, belief), now.sum(axis=1)
        for z in (0, 1):
            rest = np.clip(total - z, 0, size - 1)[:, None]
            posterior = level * P**rest * (1 - P) ** (size - 1 - rest)
            mean = posterior @ P / posterior.sum(axis=1)
            out[t] = np.where(now == z, mean[:, None], out[t])
        likely = P ** total[:, None] * (1 - P) ** (size - total)[:, None]
        after = belief * likely[:, None]
        if t:
            by_kind = [(each.sum(axis=2) @ SPREADS.T) for each in (after, belief)]
            spread = FORGET * spread + np.log(by_kind[0] / by_kind[1]).sum(axis=0)
            without = np.einsum("k,pkx,px->p", kinds, stayed, likely)
            better = np.log(1 + rates * ((likely @ prior / without)[:, None] - 1)).sum(axis=0)
            log_rate = FORGET * log_rate + (1 - FORGET) * log_rate_prior + better
        belief = after
    return out


def normalised(weight):
    """Weights that sum to 1."""
    return weight / weight.sum()
