"""The paper's diagnostic of the gradient MSE (appendix, 'Gradient-evaluation diagnostic'), in Gram form.

For each prompt a pool of N_ref completions gives the reference value, its mean reward, and the reference gradient. In
each of M repeats G completions are drawn with replacement from this pool and from the pool of each past step; with the
advantages ``A_g = Z_g - V_g``, not standardised, the error is ``||ghat - gref||^2``, averaged over repeats and prompts.

Both gradients are sums of scores ``s_h = grad log pi(y_h)`` over the pool, ``-sum_h c_h s_h``, so the error needs only
the scores' inner products. Here the scores of different completions are orthogonal and of norm 1. This is the limit
of a softmax policy with one logit for each of K equally likely completions, whose scores ``e_y - 1/K`` have the inner
products ``1{y = y'} - 1/K``: for pools of distinct completions its error is the one below less
``(sum_h c_h - cref_h)^2 / K``. All score norms are equal, so Assumption 6 holds exactly, and one prompt's signal,
``||grad V||^2 = p (1-p) / K``, is far below the noise, as with a language model.

An absolute gradient MSE depends on the scores' norm and means nothing beside the paper's; ratios of methods are free
of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kaestat import Groups, Visits
from kaestat.baselines.base import Baseline
from simulations.bandits.value_diagnostic import GroupWeights, ValueDiagnostic, per_replicate
from simulations.harness import Samples, Streams


@dataclass(frozen=True)
class GradientDiagnostic:
    """Sizes of the diagnostic.

    value: Gives group size, prompts and past steps; its pools and repeats are not used here.
    n_reference: Completions of each pool, N_ref, at the current step and at each past step. The paper does not tell it;
        `paper_figures.studies.pool_sizes` fits it. A small pool's mean score is far from zero, which works against
        REINFORCE++ (see `expected_mse`).
    repeats: M.
    """

    value: ValueDiagnostic
    n_reference: int = 61
    repeats: int = 4

    def expected_mse(self, weights: GroupWeights, reward_variance: float, value_variance: float) -> float:
        """What the diagnostic reports on average, for values that stand still over the past steps.

        With ``s = sigma2 (1 - 1/N)``, the variance in a pool of N = N_ref, ``d`` the variance between the means of the
        pools that are averaged (``sigma2 / N``, plus tau2 across prompts), own weight a and group weights b_j::

            [s + d spread + s noise(G-1)] / G
            + (G-1)/(G N) [s (1-a)^2 + d spread + s noise(G-2)]  -  s / N

        where ``noise(k) = k a^2 + sum_j b_j^2 / G`` and ``spread = (sum_j b_j)^2 + sum_j b_j^2``. The first line is
        ``E[A^2] / G``; the second holds pairs in which one completion was drawn twice, and the reference.

        reward_variance, value_variance: ``sigma2 = E[p(1-p)]`` and ``tau2 = Var(p)``.
        """
        g, n = self.value.group_size, self.n_reference
        s = reward_variance * (1 - 1 / n)
        bias = weights.spread * (reward_variance / n + (value_variance if weights.across else 0.0))
        single = s + bias + s * weights.noise(g - 1, g)
        twice = s * (1 - weights.own) ** 2 + bias + s * weights.noise(g - 2, g)
        return single / g + (g - 1) / (g * n) * twice - s / n

    def simulate(self, rates: np.ndarray, streams: Streams, estimators: Mapping[str, Baseline]) -> Samples:
        """One run of the diagnostic for each replicate.

        Completions of a pool are numbered so that the right ones come first; which is which matters to no estimator.

        rates (ndarray, shape (N, P)): Success rate of each prompt, of N replicates.
        streams: Of these replicates.
        Returns dict of str to ndarray, shape (N,): ``NAME|gradient_mse`` of each estimator.
        """
        prompts, steps, g = rates.shape[-1], self.value.past_steps, self.value.group_size
        pools = per_replicate(
            streams,
            "reference pools",
            rates,
            lambda rng, p: rng.binomial(self.n_reference, p[:, None], (prompts, steps + 1)),
        )
        drawn = streams.each("draws", lambda rng: rng.integers(self.n_reference, size=(self.repeats, prompts, g)))
        right = pools[:, None, :, :1]
        reward = (drawn < right).astype(float)
        visits = self._past(pools[..., 1:] / self.n_reference, streams)
        columns = {}
        for name, estimator in estimators.items():
            advantage = reward - estimator.values(Groups(reward), visits, step=steps)
            errors = gradient_errors(advantage, drawn, right[..., 0], self.n_reference)
            columns[f"{name}|gradient_mse"] = errors.mean(axis=(1, 2))
        return columns

    def _past(self, shares: np.ndarray, streams: Streams) -> Visits:
        """Past groups, drawn with replacement from pools with these shares of right completions, shape (N, P, V)."""
        g = self.value.group_size
        successes = per_replicate(
            streams, "past draws", shares, lambda rng, share: rng.binomial(g, share, (self.repeats, *share.shape))
        ).astype(float)
        return Visits.of_successes(self.value.lags, successes, g)


def gradient_errors(advantage: np.ndarray, drawn: np.ndarray, right: np.ndarray, pool: int) -> np.ndarray:
    """``||ghat - gref||^2`` of gradients sampled from a pool whose scores are orthonormal.

    With the reference's coefficients ``cref_h = (z_h - mean z) / H``::

        sum_gk A_g A_k 1{h_g = h_k} / G^2  -  2 sum_g A_g cref_{h_g} / G  +  sum_h cref_h^2

    advantage (ndarray, shape (..., G)): Of each drawn completion.
    drawn (integer ndarray, shape (..., G)): Which completion h of the pool it is, counted from 0.
    right: The first so many completions of the pool have reward 1, the others 0.
    pool: H, completions in the pool.
    Returns ndarray, shape (...).
    """
    g = advantage.shape[-1]
    share = right / pool
    same = (drawn[..., :, None] == drawn[..., None, :]).astype(float)
    sampled = np.einsum("...g,...g->...", np.squeeze(same @ advantage[..., None], axis=-1), advantage) / g**2
    reference = ((drawn < right[..., None]) - share[..., None]) / pool
    return sampled - 2 * np.sum(advantage * reference, axis=-1) / g + share * (1 - share) / pool
