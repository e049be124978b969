"""Populations of prompts on which the diagnostic reproduces the paper's REINFORCE++ and GRPO rows of Table 1.

A cell of Table 1 gives two equations for two unknowns, ``sigma2 = E[p(1-p)]`` and ``tau2 = Var(p)``::

    GRPO's entry         sigma2 [1 / (G-1) + 1 / N_oracle]
    REINFORCE++'s entry  tau2 (1 + small) + sigma2 [1 / (B G - 1) + 1 / N_oracle]

The mean follows from ``mu (1 - mu) = sigma2 + tau2``: the upper root, since these models answer most training prompts
rightly. No prediction depends on the root. Success rates are Beta-distributed with that mean and variance.

Inputs are these twelve numbers, N_oracle, the number of prompts and the shape of the distribution. The paper tells
none of the last three. N_oracle is one constant for all cells, fitted by likelihood to the paper's six KAE entries;
`paper_figures.studies.pool_sizes` gives its interval, and the fits with cells held out.
"""

import math
from dataclasses import dataclass

import numpy as np

from simulations.bandits.value_diagnostic import ValueDiagnostic
from simulations.harness import Cell, Streams

# The paper's Table 1: MSE of REINFORCE++ and of GRPO.
INPUTS: dict[tuple[str, int], tuple[float, float]] = {
    ("math", 10): (78.8e-3, 19.4e-3),
    ("math", 90): (89.2e-3, 8.62e-3),
    ("math", 170): (71.9e-3, 5.07e-3),
    ("gsm8k", 10): (73.2e-3, 15.5e-3),
    ("gsm8k", 90): (30.7e-3, 5.65e-3),
    ("gsm8k", 170): (30.9e-3, 2.50e-3),
}


@dataclass(frozen=True)
class Population:
    """Prompts with Beta-distributed success rates p.

    reward_variance: ``sigma2 = E[p(1-p)]``: mean variance of a reward given its prompt.
    value_variance: ``tau2 = Var(p)``.
    """

    reward_variance: float
    value_variance: float

    @property
    def mean(self) -> float:
        """Mean success rate, the upper root of ``mu (1 - mu) = sigma2 + tau2``."""
        return 0.5 + math.sqrt(0.25 - self.reward_variance - self.value_variance)

    @property
    def shape(self) -> tuple[float, float]:
        """Parameters (alpha, beta); ``sigma2 / tau2 = alpha + beta``."""
        size = self.reward_variance / self.value_variance
        return self.mean * size, (1 - self.mean) * size

    def rates(self, streams: Streams, prompts: int) -> np.ndarray:
        """Success rates of fresh prompts; shape (N, prompts) for N replicates."""
        return streams.each("rates", lambda rng: rng.beta(*self.shape, prompts))


def calibrate(reinforce_mse: float, grpo_mse: float, diagnostic: ValueDiagnostic) -> Population:
    """The population on which the diagnostic reports these two MSEs on average.

    Examples
    --------
    >>> population = calibrate(78.8e-3, 19.4e-3, ValueDiagnostic())
    >>> round(population.mean, 3), round(population.reward_variance, 3), round(population.value_variance, 3)
    (0.737, 0.118, 0.076)
    """
    weights = diagnostic.weights()
    # Both entries are linear in sigma2 and tau2, and GRPO's has no tau2.
    sigma2 = grpo_mse / diagnostic.expected_mse(weights["grpo"], 1.0, 0.0)
    of_sigma2 = diagnostic.expected_mse(weights["reinforce++"], 1.0, 0.0)
    return Population(sigma2, (reinforce_mse - sigma2 * of_sigma2) / weights["reinforce++"].spread)


def table_cells(diagnostic: ValueDiagnostic, datasets: tuple[str, ...] = ("math", "gsm8k")) -> tuple[Cell, ...]:
    """One cell for each column of the paper's Tables 1 and 2, with its inputs among the factors."""
    names = ("dataset", "step", "reinforce_mse", "grpo_mse", "n_oracle")
    return tuple(
        Cell(dict(zip(names, (*cell, *inputs, diagnostic.n_oracle), strict=True)))
        for cell, inputs in INPUTS.items()
        if cell[0] in datasets
    )
