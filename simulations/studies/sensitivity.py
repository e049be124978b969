"""The paper's sensitivity figure: KAE's value MSE against bandwidth, on the MATH populations of Table 1."""

from kaestat import make_baseline
from kaestat.baselines.base import Baseline
from simulations.bandits.calibration import calibrate, table_cells
from simulations.harness import Cell, Samples, Streams, Study
from simulations.studies.table1 import DIAGNOSTIC

KERNELS = ("triangular", "exponential")
BANDWIDTHS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40)


def method(kernel: str, bandwidth: float) -> str:
    """KAE's specification string, the name of its columns."""
    return f"kae:kernel={kernel},bandwidth={bandwidth}"


def estimators() -> dict[str, Baseline]:
    """KAE at every kernel and bandwidth, GRPO and REINFORCE++."""
    smoothed = {
        method(kernel, bandwidth): make_baseline("kae", kernel=kernel, bandwidth=bandwidth)
        for kernel in KERNELS
        for bandwidth in BANDWIDTHS
    }
    return smoothed | {name: DIAGNOSTIC.estimators[name] for name in ("grpo", "reinforce++")}


def simulate(cell: Cell, streams: Streams) -> Samples:
    population = calibrate(cell["reinforce_mse"], cell["grpo_mse"], DIAGNOSTIC)
    return DIAGNOSTIC.simulate(population.rates(streams, DIAGNOSTIC.prompts), streams, estimators())


STUDY = Study(
    name="sensitivity",
    aims="How KAE's value MSE depends on kernel and bandwidth.",
    mechanisms="The MATH populations of study table1, with the same diagnostic. Values stand still and the past has "
    "four steps at every bandwidth, so a larger bandwidth never does harm here.",
    estimands="Each prompt's success rate; the diagnostic takes the mean of an oracle pool for it.",
    cells=table_cells(DIAGNOSTIC, datasets=("math",)),
    replicates=200,
    shard=20,
    simulate=simulate,
)
