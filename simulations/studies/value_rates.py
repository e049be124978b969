"""Theorem 1 and Corollary 1: rates of bias, variance and MSE, by simulation, exactly, and in theory.

Every estimator here is linear in the rewards, so its bias and variance at each design point are closed forms. The
Monte Carlo slope of a quantity is to be compared with the slope of its exact values over the same cells, which at
finite sample sizes is not yet the rate of the theory.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from kaestat import Groups, Visits, make_baseline
from kaestat.theory import LinearError, algorithm1_error, integer_bandwidth_error, linear_error
from kaestat.theory import optimal_integer_bandwidth as best_bandwidth
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, grid, variance

GROUP_SIZE = 4
VALUE, DRIFT, LEAST = 0.9, 0.8, 0.1  # V_t = VALUE - DRIFT log(i / t), the drift of a 1/i schedule, and at least LEAST
OTHER_VALUES = np.linspace(0.15, 0.85, 7)  # of the batch's other prompts, which REINFORCE++ averages
SHARE_VISITED = 0.25  # of the steps, where visits are at random
NOISE = 0.25  # reward variance in the worst case, where rewards are V +- 1/2


def path(step: int) -> np.ndarray:
    """V_0..V_i, shape (step + 1,)."""
    t = np.maximum(np.arange(step + 1), 1)
    return np.maximum(VALUE - DRIFT * np.log(step / t), LEAST)


def sample_size(cell: Cell) -> int:
    """N_i(x) of Theorem 1; the number of observations in the worst case."""
    if cell["design"] == "worst case":
        return cell["step"]
    visits = n_visits(cell["step"]) if cell["design"] == "random visits" else cell["step"]
    return GROUP_SIZE * visits + GROUP_SIZE - 1


def n_visits(step: int) -> int:
    """Past visits where visits are at random."""
    return round(SHARE_VISITED * step)


def bandwidth(cell: Cell) -> float:
    """In steps: ``i h`` with h given, or ``h = N^(-1/3)``; in the worst case the best integer."""
    if cell["design"] == "worst case":
        return float(best_bandwidth(lipschitz=1 / cell["step"], noise_variance=NOISE))
    h = cell["h"] if cell["h"] is not None else sample_size(cell) ** (-1 / 3)
    return h * cell["step"]


def draw(cell: Cell, streams: Streams) -> tuple[Groups, Visits]:
    """Current groups, and the past; the studied prompt stands first.

    Visits beyond the bandwidth matter to nobody but Algorithm 1's denominator, which counts them: they are put together
    as the first visit.
    """
    if cell["design"] == "worst case":
        return _draw_worst_case(cell, streams)
    step = cell["step"]
    value = path(step)
    lag = np.arange(min(math.ceil(bandwidth(cell)), step - 1), 0.0, -1)
    seen = value[-len(lag) - 1 : -1]
    visited, visits = np.ones((1, len(lag))), step
    if cell["design"] == "random visits":
        visited, visits = _random_visits(streams, step, len(lag)), n_visits(step)
    reward = streams.uniform("past", len(lag), GROUP_SIZE) < seen[:, None].astype(np.float32)
    beyond = visits - visited.sum(axis=1, keepdims=True)
    count = GROUP_SIZE * np.append(beyond, visited, axis=1)[:, None, :]
    total = np.append(np.zeros((len(streams), 1)), reward.sum(axis=-1, dtype=float) * visited, axis=1)[:, None, :]
    current = np.append(VALUE, OTHER_VALUES)[:, None]
    groups = Groups((streams.uniform("current", len(current), GROUP_SIZE) < current).astype(float))
    return groups, Visits(lag=np.append(float(step), lag)[None], count=count, total=total, total_sq=total)


def _random_visits(streams: Streams, step: int, reach: int) -> np.ndarray:
    """One where there is a visit, shape (R, reach); as under Assumption 1 given the number of visits.

    Every set of `n_visits` of the steps is equally likely; of those only the last ``reach`` are drawn.
    """
    drawn = streams.each("visits", lambda rng: rng.hypergeometric(n_visits(step), step - n_visits(step), reach, size=1))
    rank = np.argsort(np.argsort(streams.normal("places", reach), axis=1), axis=1)
    return (rank < drawn).astype(float)


def _draw_worst_case(cell: Cell, streams: Streams) -> tuple[Groups, Visits]:
    """One observation at each lag k / n of a value that falls at full speed, L = 1; rewards V +- 1/2."""
    lag = np.arange(bandwidth(cell) - 1, 0.0, -1)
    # Up or down by 1/2 from lag / n, in one pass over what may be 50,000 steps.
    total = np.subtract(streams.uniform("past", 1, len(lag)) < 0.5, 0.5 - lag / cell["step"])
    groups = Groups(np.where(streams.uniform("current", 1, 2) < 0.5, -0.5, 0.5))
    return groups, Visits(lag=lag[None], count=np.ones((1, len(lag))), total=total, total_sq=total)


def methods(cell: Cell) -> tuple[str, ...]:
    """Methods that a cell compares."""
    designs = {"worst case": ("kae",), "random visits": ("kae-algorithm1",)}
    return designs.get(cell["design"], ("kae", "kae-algorithm1", "grpo", "reinforce++"))


def simulate(cell: Cell, streams: Streams) -> Samples:
    groups, visits = draw(cell, streams)
    truth = 0.0 if cell["design"] == "worst case" else VALUE
    columns = {}
    for name in methods(cell):
        if name.startswith("kae"):
            normalization = "algorithm1" if name == "kae-algorithm1" else "nadaraya-watson"
            baseline = make_baseline("kae", bandwidth=bandwidth(cell), normalization=normalization)
            values = baseline.values(Groups(groups.reward[:, :1]), visits, step=cell["step"])
        else:
            values = make_baseline(name).leave_one_out().values(groups, Visits.empty(groups), step=cell["step"])
        columns[f"{name}|error"] = values[:, 0, 0] - truth
    return columns


def exact(cell: Cell, method: str) -> LinearError:
    """Bias and variance of a method in a cell, in closed form and without the library's estimators."""
    step, width = cell["step"], bandwidth(cell)
    if cell["design"] == "worst case":
        return integer_bandwidth_error(int(width), lipschitz=1 / step, noise_variance=NOISE)
    if cell["design"] == "random visits":
        return algorithm1_error(path(step), visits=n_visits(step), group_size=GROUP_SIZE, h=width / step)
    if method == "kae-algorithm1":
        return algorithm1_error(path(step), visits=step, group_size=GROUP_SIZE, h=width / step)
    if method == "kae":
        seen = np.append(np.full(GROUP_SIZE - 1, VALUE), np.repeat(path(step)[-2::-1], GROUP_SIZE))
        lag = np.append(np.zeros(GROUP_SIZE - 1), np.repeat(np.arange(1.0, step + 1), GROUP_SIZE))
        weight = np.maximum(1 - lag / width, 0)
    elif method == "grpo":
        seen, weight = np.full(GROUP_SIZE - 1, VALUE), np.ones(GROUP_SIZE - 1)
    else:
        seen = np.append(np.full(GROUP_SIZE - 1, VALUE), np.repeat(OTHER_VALUES, GROUP_SIZE))
        weight = np.ones(len(seen))
    return linear_error(weight / weight.sum(), seen, seen * (1 - seen), target=VALUE)


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Bias, variance and MSE with their errors, and beside each the exact number."""
    estimates = []
    for name, error in samples.items():
        method, known = name.partition("|")[0], exact(cell, name.partition("|")[0])
        estimates += [
            average(f"{method}|bias", error),
            variance(f"{method}|variance", error),
            average(f"{method}|mse", error**2),
        ]
        estimates += [
            Estimate(f"exact_{measure}", float(getattr(known, measure)), 0.0, len(error), method)
            for measure in ("bias", "variance", "mse")
        ]
    return estimates


@dataclass(frozen=True)
class Rate:
    """A slope to be measured: of a method's measure in ``x`` ("h" or "N"), over the cells of a design."""

    design: str
    method: str
    measure: str
    x: str
    theory: float

    @property
    def quantity(self) -> str:
        """What ``rates.csv`` calls it."""
        return f"{self.method} {self.measure} in {self.x} ({self.design})"


RATES = (
    Rate("bandwidth", "kae", "bias", "h", 1.0),
    Rate("bandwidth", "kae", "variance", "N h", -1.0),
    Rate("bandwidth", "kae-algorithm1", "bias", "h", 1.0),
    Rate("bandwidth", "kae-algorithm1", "variance", "N h", -1.0),
    *(
        Rate("sample size", name, measure, "N", slope)
        for name in ("kae", "kae-algorithm1")
        for measure, slope in (("bias", -1 / 3), ("variance", -2 / 3), ("mse", -2 / 3))
    ),
    Rate("sample size", "grpo", "mse", "N", 0.0),
    Rate("sample size", "reinforce++", "mse", "N", 0.0),
    Rate("random visits", "kae-algorithm1", "variance", "N", -2 / 3),
    Rate("random visits", "kae-algorithm1", "mse", "N", -2 / 3),
)
WORST_CASE_SIZES = tuple(10**k for k in range(3, 8))


def conclude(summary: pd.DataFrame) -> pd.DataFrame:
    """``quantity, slope, se, exact_slope, theory_slope``: least-squares slopes of logarithms over the cells.

    A Monte Carlo slope is nan where a scaled-down run leaves an estimate on the wrong side of zero.
    """
    rows = []
    for rate in RATES:
        chosen = summary[summary["design"] == rate.design]
        rows.append({"quantity": rate.quantity} | slopes(chosen, rate) | {"theory_slope": rate.theory})
    for n, larger in pairwise(WORST_CASE_SIZES):
        rate = Rate("worst case", "kae", "mse", "N", -2 / 3)
        chosen = summary[(summary["design"] == rate.design) & summary["step"].isin([n, larger])]
        quantity = f"worst-case Lipschitz mse in N (from {n} to {larger})"
        rows.append({"quantity": quantity} | slopes(chosen, rate) | {"theory_slope": rate.theory})
    return pd.DataFrame(rows, columns=["quantity", "slope", "se", "exact_slope", "theory_slope"])


def slopes(summary: pd.DataFrame, rate: Rate) -> dict[str, float]:
    """Slopes of the simulated and of the exact numbers, and the standard error of the first."""
    chosen = summary[summary["method"] == rate.method]
    simulated = chosen[chosen["measure"] == rate.measure]
    known = chosen[chosen["measure"] == f"exact_{rate.measure}"]["estimate"].to_numpy()
    factors = simulated.to_dict("records")
    size = np.array([sample_size(Cell({"design": f["design"], "step": f["step"]})) for f in factors], dtype=float)
    x = {"h": simulated["h"], "N h": size * simulated["h"], "N": size}[rate.x]
    deviation = np.log(np.asarray(x, dtype=float))
    deviation -= deviation.mean()
    share = deviation / (deviation**2).sum()
    estimate, error = simulated["estimate"].to_numpy(), simulated["mcse"].to_numpy()
    ratio = estimate / known
    known_slope = float(share @ np.log(np.abs(known)))
    if not (ratio > 0).all():
        return {"slope": math.nan, "se": math.nan, "exact_slope": known_slope}
    slope = known_slope + float(share @ np.log(ratio))
    return {"slope": slope, "se": math.sqrt(share**2 @ (error / estimate) ** 2), "exact_slope": known_slope}


STUDY = Study(
    name="value_rates",
    aims="Bias O(h), variance O(1/(N h)), MSE O(N^(-2/3)) at h = N^(-1/3); GRPO and REINFORCE++ do not improve with N.",
    mechanisms="One prompt, value drifting as under a 1/i learning rate, sampled at every step or at a random quarter "
    "of the steps; in the worst case a straight line, best integer bandwidth.",
    estimands="The prompt's current value.",
    cells=(
        *grid(design=("bandwidth",), step=(1600,), h=(0.025, 0.05, 0.1, 0.2)),
        *grid(design=("sample size",), step=(100, 400, 1600, 6400), h=(None,)),
        *grid(design=("random visits",), step=(400, 1600, 6400, 25600), h=(None,)),
        *grid(design=("worst case",), step=WORST_CASE_SIZES, h=(None,)),
    ),
    replicates=5000,
    shard=250,
    simulate=simulate,
    summarise=summarise,
    conclude=conclude,
)
