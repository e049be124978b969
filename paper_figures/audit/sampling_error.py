"""The sampling error of the differences in Tables 3 and 4, which the paper does not give.

All completions are taken as independent, and so are the methods: the error if the benchmark's problems are all that is
of interest and the models are evaluated again. It is conservative then, since success rates differ between problems.
It does not hold the largest part: each method was trained once, and the variation between training runs is unknown.
"""

import numpy as np
import pandas as pd

from kaestat.core.bootstrap import NORMAL_975
from paper_figures.shared import paper


def difference_errors() -> pd.DataFrame:
    """KAE's differences to the other methods with their errors.

    Returns: ``table, benchmark, versus, difference, se, low, high, z, verdict`` in accuracy points (0..1); low and high
        are the 95 % interval, and the verdict is "clear" where it excludes 0. The benchmark "average" is the mean over
        the six.
    """
    sizes = paper.benchmarks().set_index("benchmark").prod(axis=1)
    wide = paper.accuracies().query("benchmark != 'average'")
    wide = wide.pivot_table(index=["table", "benchmark"], columns="method", values="accuracy", sort=False)
    rows = []
    for (number, benchmark), accuracy in wide.iterrows():
        variance = accuracy * (1 - accuracy) / sizes[benchmark]
        for versus in accuracy.index.drop("kae"):
            difference = accuracy["kae"] - accuracy[versus]
            rows.append((number, benchmark, versus, difference, variance["kae"] + variance[versus]))
    frame = pd.DataFrame(rows, columns=["table", "benchmark", "versus", "difference", "variance"])
    grouped = frame.groupby(["table", "versus"], sort=False)[["difference", "variance"]]
    averages = grouped.mean()
    averages["variance"] /= grouped.size()  # the benchmarks are independent
    frame = pd.concat([frame, averages.reset_index().assign(benchmark="average")], ignore_index=True)
    se = np.sqrt(frame.pop("variance"))
    low, high = (frame["difference"] + sign * NORMAL_975 * se for sign in (-1, 1))
    z = frame["difference"] / se
    verdict = np.where(z.abs() > NORMAL_975, "clear", "not clear")
    return frame.assign(se=se, low=low, high=high, z=z, verdict=verdict)
