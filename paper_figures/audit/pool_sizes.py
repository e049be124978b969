"""What the agreement with Tables 1 and 2 owes to the pool sizes, which the paper does not tell; exact numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from paper_figures.shared import paper
from simulations.bandits.calibration import INPUTS, calibrate
from simulations.bandits.gradient_diagnostic import GradientDiagnostic
from simulations.bandits.value_diagnostic import ValueDiagnostic


def oracle_pool_sizes(
    sizes: Sequence[int] = (32, 40, 48, 56, 64, 96, 128), bandwidths: Sequence[float] = (5.0, 10.0)
) -> pd.DataFrame:
    """How far Table 1's expected predictions are from the paper.

    Bandwidth 5 is here because the paper says that four past steps remain "due to truncation", which is where the
    triangular kernel of that bandwidth ends.

    Returns
    -------
    DataFrame
        ``bandwidth, n_oracle, worst_entry_pct, worst_reduction_points``: of KAE's row and of its reduction against
        GRPO, the cell that is furthest off, with its sign.
    """
    rows = []
    for bandwidth in bandwidths:
        for size in sizes:
            off = _kae_off(ValueDiagnostic(n_oracle=size, bandwidth=bandwidth))
            rows.append((bandwidth, size, _furthest(off["entry_pct"]), _furthest(off["reduction_points"])))
    return pd.DataFrame(rows, columns=["bandwidth", "n_oracle", "worst_entry_pct", "worst_reduction_points"])


def least_squares_oracle_pool(bandwidth: float = 10.0) -> int:
    """The N_oracle with the least sum of squared relative deviations from the paper's six KAE entries."""
    sizes = range(8, 129)
    losses = [np.sum(_kae_off(ValueDiagnostic(n_oracle=n, bandwidth=bandwidth))["entry_pct"] ** 2) for n in sizes]
    return sizes[int(np.argmin(losses))]


def reference_pool_sizes(sizes: Sequence[int] = (64, 128, 256, 512, 1024, 4096)) -> pd.DataFrame:
    """How far Table 2's expected percentages are from the paper.

    Returns
    -------
    DataFrame
        ``n_reference, worst_vs_reinforce, worst_vs_grpo``: percentage points, of the cell that is furthest off.
    """
    value = ValueDiagnostic()
    stated = paper.table2_reductions().set_index(["dataset", "step", "versus"])["reduction_pct"]
    rows = []
    for size in sizes:
        diagnostic = GradientDiagnostic(value, n_reference=size)
        off: dict[str, list[float]] = {"reinforce++": [], "grpo": []}
        for cell, inputs in INPUTS.items():
            population = calibrate(*inputs, value)
            expected = {
                name: diagnostic.expected_mse(weights, population.reward_variance, population.value_variance)
                for name, weights in value.weights().items()
            }
            for versus, found in off.items():
                found.append(100 * (1 - expected["kae"] / expected[versus]) - stated[(*cell, versus)])
        rows.append((size, _furthest(off["reinforce++"]), _furthest(off["grpo"])))
    return pd.DataFrame(rows, columns=["n_reference", "worst_vs_reinforce", "worst_vs_grpo"])


def _kae_off(diagnostic: ValueDiagnostic) -> pd.DataFrame:
    stated = paper.table1().set_index(["dataset", "step", "method"])["mse"]
    rows = []
    for cell, (reinforce_mse, grpo_mse) in INPUTS.items():
        population = calibrate(reinforce_mse, grpo_mse, diagnostic)
        weights = diagnostic.weights()["kae"]
        kae = diagnostic.expected_mse(weights, population.reward_variance, population.value_variance)
        entry = stated[(*cell, "kae")]
        rows.append((100 * (kae / entry - 1), 100 * (entry - kae) / grpo_mse))
    return pd.DataFrame(rows, columns=["entry_pct", "reduction_points"])


def _furthest(off: Sequence[float]) -> float:
    return max((float(value) for value in off), key=abs, default=math.nan)
