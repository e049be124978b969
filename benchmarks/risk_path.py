"""A whole risk path of KAE against statsmodels' cross-validated kernel regression, per series.

Timed on our side: ``LooCv().select``: the unbiased value MSE of KAE at 31 bandwidths for all prompts at once, the
choice, and 200 bootstrap draws for its standard errors; divided by the number of prompts. On theirs:
``KernelReg(bw="cv_ls", reg_type="lc")``, which minimises the leave-one-out squared error of one series' visit means.
Both see the same visits: once with times that all prompts share, once with times of each prompt's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import Visits
from kaestat.smoothing.kernels import as_kernel
from kaestat.smoothing.selectors import make_selector

CODE = ("kaestat/smoothing",)
CLAIM = "A risk path over 31 bandwidths is at least 1,000 times faster per series than KernelReg(bw='cv_ls')"
SIZES = {"full": (1024, 1000, 5), "tiny": (3, 20, 2)}
GROUP = 8


def run(size: str = "full") -> list[Row]:
    """Seconds per series of both and their ratio, for shared and irregular times."""
    n_prompts, n_visits, repetitions = SIZES[size]
    return [row for times in ("shared", "irregular") for row in _case(n_prompts, n_visits, times, repetitions)]


def _case(n_prompts: int, n_visits: int, times: str, repetitions: int) -> list[Row]:
    series, step = _series(n_prompts, n_visits, times)
    kernel_reg, missing = _kernel_reg(step[0], series.total[0] / GROUP)
    selector, kernel = make_selector("loo_cv"), as_kernel("triangular")
    n_bandwidths = len(selector.select(series, kernel=kernel).path)
    pieces = {"kae risk path": lambda: selector.select(series, kernel=kernel)}
    seconds = interleaved(pieces | ({"KernelReg": kernel_reg} if kernel_reg else {}), repetitions=repetitions)
    seconds["kae risk path"] /= n_prompts
    case = f"{n_prompts:,} prompts × {n_visits:,} visits, {n_bandwidths} bandwidths, {times} times"
    faster = ratio(seconds["KernelReg"], seconds["kae risk path"]) if kernel_reg else None
    return [
        *(Row(case, f"{name}, per series", "ms", estimate(1e3 * sample)) for name, sample in seconds.items()),
        Row(case, "KernelReg / kae risk path", "ratio", faster, at_least=1000.0, note=missing),
    ]


def _series(n_prompts: int, n_visits: int, times: str) -> tuple[Visits, np.ndarray]:
    """Visits whose success rates are random walks in the logit, and their steps."""
    rng = np.random.default_rng(0)
    shape = (n_prompts, n_visits)
    gap = np.ones(shape, dtype=int) if times == "shared" else rng.integers(1, 4, size=shape)
    step = np.cumsum(gap, axis=1).astype(float)
    logit = rng.normal(0, 1, size=(n_prompts, 1)) + np.cumsum(rng.normal(0, 0.05, size=shape), axis=1)
    total = rng.binomial(GROUP, 1 / (1 + np.exp(-logit))).astype(float)
    count = np.full(shape, float(GROUP))
    return Visits(lag=step.max() + 1 - step, count=count, total=total, total_sq=total), step


def _kernel_reg(step: np.ndarray, mean: np.ndarray) -> tuple[Callable[[], object] | None, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from statsmodels.nonparametric.kernel_regression import KernelReg
    except ImportError as error:
        return None, f"The ratio to KernelReg was not measured: statsmodels cannot be imported here ({error})."

    def fit() -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return KernelReg(mean, step, "c", reg_type="lc", bw="cv_ls")

    return fit, ""


if __name__ == "__main__":
    show(CLAIM, run())
