"""The distribution of prompts' success rates, from few completions of each: a mixture of binomials."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

ATOMS = np.sin(np.linspace(0, np.pi / 2, 65)) ** 2  # equally far apart for the binomial's standard error
ROUNDS = 300
OF_POOLED = 1.0  # completions of the pooled mean beside each atom's own, for atoms that have hardly any


@dataclass(frozen=True, eq=False)
class ValueMixture:
    """The distribution of success rates on a grid, by maximum likelihood (Laird, 1978), found by EM.

    Averages over it are unbiased; shares k / n have a wider spread than the success rates, posterior means a narrower.
    """

    right: np.ndarray  # of int, shape (C,); k and n of each kind of counts
    size: np.ndarray
    times: np.ndarray  # shape (C,); m, the number of times that each occurs; not all 0

    @cached_property
    def likelihood(self) -> np.ndarray:
        """The likelihood of each kind of counts at each atom, shape (C, A)."""
        from scipy.stats import binom  # takes a second to import

        return np.asarray(binom.pmf(self.right[:, None], self.size[:, None], ATOMS))

    @cached_property
    def share(self) -> np.ndarray:
        """The share of each of `ATOMS`, shape (A,)."""
        share = np.full(len(ATOMS), 1 / len(ATOMS))
        for _ in range(ROUNDS):
            share = share * ((self.times / self.times.sum() / (self.likelihood @ share)) @ self.likelihood)
        return share

    def means(self, total: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Mean of a quantity at each atom, (A,), from its sums and counts at each kind of counts, (C,) each."""
        belongs = self.likelihood * self.share
        belongs = belongs / belongs.sum(axis=1, keepdims=True)
        pooled = total.sum() / count.sum() if count.sum() > 0 else 0.0
        return (total @ belongs + OF_POOLED * pooled) / (count @ belongs + OF_POOLED)

    def quantiles(self, rows: int) -> np.ndarray:
        """Positions in `ATOMS` that represent the distribution in equal shares, shape (rows,)."""
        middle = (np.arange(rows) + 0.5) / rows
        return np.minimum(np.searchsorted(np.cumsum(self.share), middle), len(ATOMS) - 1)


@dataclass(frozen=True, eq=False)
class Counts:
    """Number of right completions in parts of a log, and sums over them."""

    prompt: np.ndarray  # of int, shape (U,); prompt, right completions and completions of each part
    right: np.ndarray
    size: np.ndarray
    sums: Mapping[str, np.ndarray]  # shape (U,) each

    @cached_property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct pairs of right and size, shape (C, 2), and which of them each piece is."""
        pairs, kind = np.unique(np.stack([self.right, self.size], axis=1), axis=0, return_inverse=True)
        return pairs, kind.reshape(-1)

    def pooled(self, chosen: np.ndarray) -> tuple[ValueMixture, dict[str, np.ndarray]]:
        """The mixture of some prompts, with all completions equal, and the sums at each kind of counts."""
        pairs, kind = self._kinds
        rows = chosen[self.prompt]

        def at_each(column: np.ndarray) -> np.ndarray:
            return np.bincount(kind[rows], weights=column[rows], minlength=len(pairs))

        mixture = ValueMixture(pairs[:, 0], pairs[:, 1], at_each(self.size.astype(float)))
        return mixture, {name: at_each(column) for name, column in self.sums.items()}
