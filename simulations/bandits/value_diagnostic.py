"""The paper's diagnostic of the value MSE (appendix, 'Value-estimation MSE diagnostic'), to the letter.

For each prompt an oracle pool of N_oracle completions gives the target, the mean reward Ṽ. A disjoint pool gives, in
each of R repeats, a current group of G completions, drawn without replacement; pools of the same size at the past steps
give groups of G for KAE. The MSE is the mean of ``(V_g - Ṽ)^2`` over completions, repeats and prompts.

Ṽ is not the truth: its own noise adds ``E[p(1-p)] / N_oracle`` to every entry. The debiased figure takes it off again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines.base import Baseline
from kaestat.smoothing.kernels import as_kernel
from simulations.harness import Samples, Streams

METHODS = ("kae", "grpo", "reinforce++")


@dataclass(frozen=True)
class GroupWeights:
    """A leave-one-out value as a weighted mean of completions, for groups of equal size.

    own: a, the weight of each other completion of the same group.
    groups: b_j, the total weight of each other group.
    across: Whether these are groups of other prompts, not of the same prompt at past steps.
    """

    own: float
    groups: tuple[float, ...] = ()
    across: bool = False

    def noise(self, others: int, group_size: int) -> float:
        """``others a^2 + sum_j b_j^2 / G``: variance in units of one reward's variance."""
        return others * self.own**2 + sum(b**2 for b in self.groups) / group_size

    @property
    def spread(self) -> float:
        """``(sum_j b_j)^2 + sum_j b_j^2``: mean squared bias per unit of variance between the groups' values."""
        return sum(self.groups) ** 2 + sum(b**2 for b in self.groups)


@dataclass(frozen=True)
class ValueDiagnostic:
    """Sizes of the diagnostic, and the estimators that it compares.

    n_oracle: Completions of the oracle pool, N_oracle.
    n_estimation: Completions of each pool that groups are drawn from, at least the group size.
    group_size, prompts, repeats: G, B and R.
    past_steps: KAE reads the groups at lags 1..past_steps.
    bandwidth: In steps.
    """

    n_oracle: int = 45
    n_estimation: int = 16
    group_size: int = 8
    prompts: int = 256
    repeats: int = 4
    past_steps: int = 4
    kernel: str = "triangular"
    bandwidth: float = 10.0

    @property
    def lags(self) -> np.ndarray:
        """Lags of the past groups, oldest first; shape (past_steps,)."""
        return np.arange(self.past_steps, 0, -1, dtype=float)

    @property
    def estimators(self) -> dict[str, Baseline]:
        """Table 1's three, all leave-one-out."""
        return {
            "kae": make_baseline("kae", kernel=self.kernel, bandwidth=self.bandwidth),
            "grpo": make_baseline("grpo").leave_one_out(),
            "reinforce++": make_baseline("reinforce++").leave_one_out(),
        }

    def weights(self) -> dict[str, GroupWeights]:
        """What Table 1's three are made of, with ``w_l = K(l / b) / K(0)``."""
        kernel = as_kernel(self.kernel)
        past = kernel(self.lags / self.bandwidth) / kernel.at_zero
        g, everyone = self.group_size, self.prompts * self.group_size - 1
        mass = (g - 1) + g * float(np.sum(past))
        return {
            "kae": GroupWeights(1 / mass, tuple((g * past / mass).tolist())),
            "grpo": GroupWeights(1 / (g - 1)),
            "reinforce++": GroupWeights(1 / everyone, (g / everyone,) * (self.prompts - 1), across=True),
        }

    def expected_mse(self, weights: GroupWeights, reward_variance: float, value_variance: float) -> float:
        """What the diagnostic reports on average, for values that stand still over the past steps.

        The exact MSE against the true value, plus the oracle pool's noise. With ``sigma2 = E[p(1-p)]`` and
        ``tau2 = Var(p)`` of independent prompts, own weight a and group weights b_j::

            sigma2 [(G-1) a^2 + sum_j b_j^2 / G]  +  tau2 [(sum_j b_j)^2 + sum_j b_j^2] if across  +  sigma2 / N_oracle

        reward_variance, value_variance: sigma2 and tau2.
        """
        noise = weights.noise(self.group_size - 1, self.group_size) + 1 / self.n_oracle
        return noise * reward_variance + (weights.spread * value_variance if weights.across else 0.0)

    def simulate(self, rates: np.ndarray, streams: Streams, estimators: Mapping[str, Baseline]) -> Samples:
        """One run of the diagnostic for each replicate.

        Rewards are 0 or 1 and the estimators do not look at their order, so successes are counted instead of drawn one
        by one: binomial in a pool, hypergeometric in a group from it.

        rates (ndarray, shape (N, P)): Success rate of each prompt, of N replicates.
        streams: Of these replicates.
        Returns dict of str to ndarray, shape (N,): ``NAME|mse`` and ``NAME|mse_debiased`` of each estimator.
        """
        oracle = per_replicate(streams, "oracle", rates, lambda rng, p: rng.binomial(self.n_oracle, p))
        groups, visits = self._draw(rates, streams)
        target = (oracle / self.n_oracle)[:, None, :, None]
        # Unbiased for p(1-p) / N_oracle.
        noise = (oracle * (self.n_oracle - oracle)).mean(axis=-1) / (self.n_oracle**2 * (self.n_oracle - 1))
        columns = {}
        for name, estimator in estimators.items():
            value = estimator.values(groups, visits, step=self.past_steps)
            mse = np.mean((value - target) ** 2, axis=(1, 2, 3))
            columns |= {f"{name}|mse": mse, f"{name}|mse_debiased": mse - noise}
        return columns

    def _draw(self, rates: np.ndarray, streams: Streams) -> tuple[Groups, Visits]:
        """Current groups, shape (N, R, P, G), and past visits, shape (N, R, P, V)."""
        prompts, steps = rates.shape[-1], self.past_steps + 1
        pool = per_replicate(
            streams, "pools", rates, lambda rng, p: rng.binomial(self.n_estimation, p[:, None], (prompts, steps))
        )
        drawn = per_replicate(
            streams,
            "groups",
            pool,
            lambda rng, k: rng.hypergeometric(
                k, self.n_estimation - k, self.group_size, (self.repeats, prompts, steps)
            ),
        )
        reward = (np.arange(self.group_size) < drawn[..., :1]).astype(float)
        return Groups(reward), Visits.of_successes(self.lags, drawn[..., 1:].astype(float), self.group_size)


def per_replicate(streams: Streams, name: str, given: np.ndarray, draw: Callable) -> np.ndarray:
    """``draw(generator, given[i])`` of each replicate i, stacked."""
    return np.stack([draw(rng, one) for rng, one in zip(streams.generators(name), given, strict=True)])
