"""What `kaestat compare` says of two runs of one configuration, which differ by chance alone."""

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from kaestat import RewardLog
from kaestat.report.comparison import compare_runs
from kaestat.report.comparison_text import comparison_headline
from simulations.bandits.paths import start_values
from simulations.harness import Cell, Samples, Streams, Study
from simulations.harness.performance import pooled_share
from simulations.harness.study import grid, proportions

VISITS, GROUP, BATCHES = 10, 4, 4  # an epoch takes as many steps as batches
DRIFT, WALK = 0.05, 0.15  # logits per visit
N_BOOT = 200


def simulate(cell: Cell, streams: Streams) -> Samples:
    n = cell["prompts"]
    first = start_values(streams, n)
    second = first if cell["shared"] else start_values(Streams(streams.seed, f"{streams.key} b", streams.replicates), n)
    names = "ab" if not cell["shared"] else "aa"
    runs = [
        _logs(start, streams, run, name) for run, (start, name) in enumerate(zip((first, second), names, strict=True))
    ]
    found = [compare_runs(*pair, n_boot=N_BOOT) for pair in zip(*runs, strict=True)]
    told = [comparison_headline(each)[0] for each in found]
    return {
        "compare|no_difference": np.array([text.startswith("No difference") for text in told], dtype=float),
        "compare|share_in_headline": np.array(["of the completions" in text for text in told], dtype=float),
    }


def _logs(start: np.ndarray, streams: Streams, run: int, name: str) -> list[RewardLog]:
    """A run for each replicate."""
    replicates, n = start.shape
    walk = np.cumsum(WALK * streams.normal(f"walk {run}", VISITS, n), axis=1)
    value = expit(logit(start)[:, None] + walk + DRIFT * np.arange(VISITS)[:, None])
    reward = streams.uniform(f"rewards {run}", VISITS, n, GROUP) < value[..., None]
    visit, prompt, _ = np.indices(reward.shape[1:])
    step = visit * BATCHES + prompt * BATCHES // n
    ids = np.char.add(name, prompt.astype(str)).ravel()
    return [RewardLog(ids, step.ravel(), reward[k].astype(float).ravel()) for k in range(replicates)]


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """One row per measure over all pairs: ``measure, share, se, pairs``."""
    rows = [(measure, *pooled_share(part)) for measure, part in summary.groupby("measure", sort=False)]
    return pd.DataFrame(rows, columns=["measure", "share", "se", "pairs"])


STUDY = Study(
    name="identical_runs",
    aims="How often compare says that two runs of one configuration differ.",
    mechanisms="Two runs over ten epochs of 20 or 100 prompts, each prompt's logit with a walk of its own in each run "
    "and a common rise; the same prompts in both, or others from one distribution.",
    estimands="No difference: both runs have one distribution.",
    cells=grid(prompts=(20, 100), shared=(True, False)),
    replicates=50,
    shard=25,
    simulate=simulate,
    summarise=proportions,
    conclude=conclude,
)
