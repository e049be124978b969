"""Table 1: value MSE of KAE, GRPO and REINFORCE++ on populations calibrated to the paper's last two rows."""

from simulations.bandits.calibration import calibrate, table_cells
from simulations.bandits.value_diagnostic import METHODS, ValueDiagnostic
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, reduction

DIAGNOSTIC = ValueDiagnostic()
MEASURES = ("mse", "mse_debiased")


def simulate(cell: Cell, streams: Streams) -> Samples:
    population = calibrate(cell["reinforce_mse"], cell["grpo_mse"], DIAGNOSTIC)
    return DIAGNOSTIC.simulate(population.rates(streams, DIAGNOSTIC.prompts), streams, DIAGNOSTIC.estimators)


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Levels, then KAE's reductions (per cent) and advantages (differences) against the other two."""
    estimates = [average(name, column) for name, column in samples.items()]
    for measure in MEASURES:
        ours = samples[f"kae|{measure}"]
        for other in METHODS[1:]:
            theirs = samples[f"{other}|{measure}"]
            estimates.append(reduction(f"{other}|reduction_{measure}", ours, theirs))
            estimates.append(average(f"{other}|advantage_{measure}", theirs - ours))
    return estimates


STUDY = Study(
    name="table1",
    aims="The paper's Table 1: KAE's row and all reductions, predicted from the other two rows.",
    mechanisms="Prompts with Beta-distributed success rates, mean and spread solved from the REINFORCE++ and GRPO rows "
    "(inputs, with one N_oracle); values stand still over the four past steps. A replicate is a fresh population, its "
    "pools and R repeats.",
    estimands="Each prompt's success rate; the paper's diagnostic takes the mean of an oracle pool for it.",
    cells=table_cells(DIAGNOSTIC),
    replicates=1500,
    shard=50,
    simulate=simulate,
    summarise=summarise,
)
