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

from paper_figures.shared import paper

INTRACLASS = 0.7
BETWEEN_METHODS = 0.9
NORMAL_975 = 1.959964


def difference_errors() -> pd.DataFrame:
    """KAE's differences to the other methods with their errors.

    Returns: ``table, benchmark, versus, difference, se_binomial, low, high, z_binomial, se_problems, z_problems,
        verdict`` in accuracy points (0..1); low and high are the 95 % interval from se_binomial. The benchmark
        "average" is the mean over the six. The verdict says which intervals exclude 0.
    """
    sizes = paper.benchmarks().set_index("benchmark")
    rows = []
    for (number, benchmark), part in paper.accuracies().groupby(["table", "benchmark"], sort=False):
        if benchmark == "average":
            continue
        accuracy = part.set_index("method")["accuracy"]
        problems, samples = sizes.loc[benchmark]
        for versus in accuracy.index.drop("kae"):
            ours, theirs = accuracy["kae"], accuracy[versus]
            rows.append(
                (
                    number,
                    benchmark,
                    versus,
                    ours - theirs,
                    difference_variance(ours, theirs, problems, samples, intraclass=0.0, between=0.0),
                    difference_variance(
                        ours, theirs, problems, samples, intraclass=INTRACLASS, between=BETWEEN_METHODS
                    ),
                )
            )
    frame = pd.DataFrame(rows, columns=["table", "benchmark", "versus", "difference", "binomial", "problems"])
    frame = pd.concat([frame, _averages(frame)], ignore_index=True)
    se = np.sqrt(frame.pop("binomial"))
    clustered = np.sqrt(frame.pop("problems"))
    frame = frame.assign(
        se_binomial=se,
        low=frame["difference"] - NORMAL_975 * se,
        high=frame["difference"] + NORMAL_975 * se,
        z_binomial=frame["difference"] / se,
        se_problems=clustered,
        z_problems=frame["difference"] / clustered,
    )
    return frame.assign(verdict=_verdicts(frame))


def difference_variance(
    ours: float, theirs: float, problems: int, samples: int, *, intraclass: float, between: float
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


def _averages(frame: pd.DataFrame) -> pd.DataFrame:
    grouped = frame.groupby(["table", "versus"], sort=False)
    count = grouped["difference"].size()
    return (
        pd.DataFrame(
            {
                "difference": grouped["difference"].mean(),
                "binomial": grouped["binomial"].sum() / count**2,
                "problems": grouped["problems"].sum() / count**2,
            }
        )
        .reset_index()
        .assign(benchmark="average")
    )


def _verdicts(frame: pd.DataFrame) -> list[str]:
    names = {(True, True): "both", (True, False): "binomial only", (False, True): "problems only"}
    clear = zip(frame["z_binomial"].abs() > NORMAL_975, frame["z_problems"].abs() > NORMAL_975, strict=True)
    return [names.get((bool(one), bool(other)), "neither") for one, other in clear]
