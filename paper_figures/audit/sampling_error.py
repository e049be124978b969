"""The sampling error of the differences in Tables 3 and 4, which the paper does not give.

Two errors, under assumptions that are stated because the paper's data do not tell:

- ``se_binomial``: all completions independent, methods independent. The error if the benchmark's problems are all that
  is of interest and the models are evaluated again; conservative then, since the success rates differ between problems.
- ``se_problems``: the problems are a sample of such problems, and the samples of one problem go together. A method's
  success rate varies between problems with intraclass correlation `INTRACLASS`, that of the calibrated MATH
  population at step 170 (``Var(p) / [mu (1 - mu)]`` = 0.70), and two methods' rates correlate by `BETWEEN_METHODS`,
  high since both were trained from one model; both are guesses.

Neither holds the largest part: each method was trained once, and the variation between training runs is unknown.
"""

import numpy as np
import pandas as pd

from kaestat.core.bootstrap import NORMAL_975
from paper_figures.shared import paper

INTRACLASS = 0.7
BETWEEN_METHODS = 0.9


def difference_errors() -> pd.DataFrame:
    """KAE's differences to the other methods with their errors.

    Returns: ``table, benchmark, versus, difference, se_binomial, low, high, z_binomial, se_problems, z_problems,
        verdict`` in accuracy points (0..1); low and high are the 95 % interval from se_binomial. The benchmark
        "average" is the mean over the six. The verdict says which intervals exclude 0.
    """
    sizes = paper.benchmarks().set_index("benchmark")
    wide = paper.accuracies().query("benchmark != 'average'")
    wide = wide.pivot_table(index=["table", "benchmark"], columns="method", values="accuracy", sort=False)
    assumed = {"binomial": (0.0, 0.0), "problems": (INTRACLASS, BETWEEN_METHODS)}
    rows = []
    for (number, benchmark), accuracy in wide.iterrows():
        ours = accuracy["kae"]
        for versus, theirs in accuracy.drop("kae").items():
            variances = [difference_variance(ours, theirs, *sizes.loc[benchmark], *each) for each in assumed.values()]
            rows.append((number, benchmark, versus, ours - theirs, *variances))
    frame = pd.DataFrame(rows, columns=["table", "benchmark", "versus", "difference", *assumed])
    grouped = frame.groupby(["table", "versus"], sort=False)[["difference", *assumed]]
    averages = grouped.mean()
    averages[list(assumed)] = averages[list(assumed)].div(grouped.size(), axis=0)  # the benchmarks are independent
    frame = pd.concat([frame, averages.reset_index().assign(benchmark="average")], ignore_index=True)
    se, clustered = (np.sqrt(frame.pop(name)) for name in assumed)
    frame = frame.assign(
        se_binomial=se,
        low=frame["difference"] - NORMAL_975 * se,
        high=frame["difference"] + NORMAL_975 * se,
        z_binomial=frame["difference"] / se,
        se_problems=clustered,
        z_problems=frame["difference"] / clustered,
    )
    names = {(True, True): "both", (True, False): "binomial only", (False, True): "problems only"}
    clear = zip(frame["z_binomial"].abs() > NORMAL_975, frame["z_problems"].abs() > NORMAL_975, strict=True)
    return frame.assign(verdict=[names.get(each, "neither") for each in clear])


def difference_variance(
    ours: float, theirs: float, problems: int, samples: int, intraclass: float, between: float
) -> float:
    """Variance of the difference of two accuracies on the same problems.

    With ``v = p (1 - p)`` of each method, J problems and m samples of each::

        sum of both  v [rho + (1 - rho) / m] / J   -   2 c rho sqrt(v_1 v_2) / J

    ours, theirs: Accuracies p.
    problems, samples: J and m.
    intraclass: rho, the share of v that is between problems; 0 makes all completions independent.
    between: c, the correlation of the two methods' success rates over problems.
    """
    v1, v2 = ours * (1 - ours), theirs * (1 - theirs)
    alone = (v1 + v2) * (intraclass + (1 - intraclass) / samples)
    return float((alone - 2 * between * intraclass * np.sqrt(v1 * v2)) / problems)
