"""Table 2: gradient MSE of KAE, GRPO and REINFORCE++ on the populations of Table 1."""

from __future__ import annotations

from simulations.bandits.calibration import calibrate, table_cells
from simulations.bandits.gradient_diagnostic import GradientDiagnostic
from simulations.bandits.value_diagnostic import METHODS
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, paired_difference, reduction
from simulations.studies.table1 import DIAGNOSTIC as VALUE_DIAGNOSTIC

DIAGNOSTIC = GradientDiagnostic(VALUE_DIAGNOSTIC)


def simulate(cell: Cell, streams: Streams) -> Samples:
    population = calibrate(cell["reinforce_mse"], cell["grpo_mse"], VALUE_DIAGNOSTIC)
    return DIAGNOSTIC.simulate(
        population.rates(streams, VALUE_DIAGNOSTIC.prompts), streams, VALUE_DIAGNOSTIC.estimators
    )


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Levels, then KAE's reductions (per cent) and advantages (differences) against the other two."""
    estimates = [average(name, column) for name, column in samples.items()]
    ours = samples["kae|gradient_mse"]
    for other in METHODS[1:]:
        theirs = samples[f"{other}|gradient_mse"]
        estimates.append(reduction(f"{other}|reduction_gradient_mse", ours, theirs))
        estimates.append(paired_difference(f"{other}|advantage_gradient_mse", theirs, ours))
    return estimates


STUDY = Study(
    name="table2",
    aims="The percentage rows of the paper's Table 2, predicted from the populations of Table 1.",
    mechanisms="The populations of study table1; orthonormal scores, the limit of a softmax policy over many equally "
    "likely completions. A replicate is a fresh population, its pools and M repeats.",
    estimands="The reference gradient of a pool of N_ref completions per prompt (an input).",
    methods=METHODS,
    measures=("gradient_mse", "reduction_gradient_mse", "advantage_gradient_mse"),
    cells=table_cells(VALUE_DIAGNOSTIC),
    replicates=600,
    shard=30,
    simulate=simulate,
    summarise=summarise,
)
