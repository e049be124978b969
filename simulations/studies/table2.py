"""Table 2: gradient MSE of KAE, GRPO and REINFORCE++ on the populations of Table 1."""

import math

import numpy as np

from simulations.bandits.calibration import calibrate, table_cells
from simulations.bandits.gradient_diagnostic import GradientDiagnostic
from simulations.bandits.value_diagnostic import METHODS
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, reduction
from simulations.harness.performance import correlation, empirical_se
from simulations.studies.table1 import DIAGNOSTIC as VALUE_DIAGNOSTIC

DIAGNOSTIC = GradientDiagnostic(VALUE_DIAGNOSTIC)
RIVALS = METHODS[1:]
PROMPTS = ("separate", "shared")  # whether Tables 1 and 2 share their prompts; the paper does not say
STEP = 0.01  # of the logarithm of an input, for a numerical derivative


def simulate(cell: Cell, streams: Streams) -> Samples:
    """One run of both diagnostics: Table 1's gives the inputs that Table 2 is predicted from."""
    population = calibrate(cell["reinforce_mse"], cell["grpo_mse"], VALUE_DIAGNOSTIC)
    rates = population.rates(streams, VALUE_DIAGNOSTIC.prompts)
    values = VALUE_DIAGNOSTIC.simulate(rates, streams, VALUE_DIAGNOSTIC.estimators)
    gradients = DIAGNOSTIC.simulate(rates, streams, VALUE_DIAGNOSTIC.estimators)
    return gradients | {f"{name}|value_mse": values[f"{name}|mse"] for name in RIVALS}


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Levels, KAE's reductions (per cent) and advantages (differences), and how far single runs stray."""
    estimates = [average(name, column) for name, column in samples.items() if name.endswith("|gradient_mse")]
    ours = samples["kae|gradient_mse"]
    for other in RIVALS:
        theirs = samples[f"{other}|gradient_mse"]
        estimates.append(reduction(f"{other}|reduction_gradient_mse", ours, theirs))
        estimates.append(average(f"{other}|advantage_gradient_mse", theirs - ours))
    for prompts in PROMPTS:
        residuals = {other: _residual(cell, samples, other, prompts) for other in RIVALS}
        estimates += [empirical_se(f"{other}|residual_sd_{prompts}", column) for other, column in residuals.items()]
        estimates.append(correlation(f"kae|residual_correlation_{prompts}", *residuals.values()))
    return estimates


def expected_reduction(diagnostic: GradientDiagnostic, reinforce_mse: float, grpo_mse: float, versus: str) -> float:
    """KAE's expected reduction of the gradient MSE in per cent, given two entries of Table 1."""
    population = calibrate(reinforce_mse, grpo_mse, diagnostic.value)
    weights = diagnostic.value.weights()
    ours, theirs = (
        diagnostic.expected_mse(weights[name], population.reward_variance, population.value_variance)
        for name in ("kae", versus)
    )
    return 100 * (1 - ours / theirs)


def _residual(cell: Cell, samples: Samples, versus: str, prompts: str) -> np.ndarray:
    """A run's reduction less what a run of Table 1 predicts, to first order about the means; shape (R,)."""
    share = {name: samples[name] / np.mean(samples[name]) - 1 for name in samples}
    ours, theirs = (samples[f"{name}|gradient_mse"] for name in ("kae", versus))
    moved = 100 * np.mean(ours) / np.mean(theirs) * (share[f"{versus}|gradient_mse"] - share["kae|gradient_mse"])
    # Of the two inputs only their ratio matters.
    up, down = (
        expected_reduction(DIAGNOSTIC, cell["reinforce_mse"] * math.exp(sign * STEP), cell["grpo_mse"], versus)
        for sign in (1, -1)
    )
    inputs = share["reinforce++|value_mse"] - share["grpo|value_mse"]
    # The next replicate has other prompts.
    return moved - (up - down) / (2 * STEP) * (np.roll(inputs, 1) if prompts == "separate" else inputs)


STUDY = Study(
    name="table2",
    aims="The percentage rows of the paper's Table 2, predicted from the populations of Table 1.",
    mechanisms="The populations of study table1; orthonormal scores, the limit of a softmax policy over many equally "
    "likely completions. A replicate is a fresh population, its pools and repeats of both diagnostics.",
    estimands="The reference gradient of a pool of N_ref completions per prompt (an input).",
    cells=table_cells(VALUE_DIAGNOSTIC),
    replicates=600,
    shard=30,
    simulate=simulate,
    summarise=summarise,
)
