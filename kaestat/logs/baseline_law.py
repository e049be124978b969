"""The law of the baseline (`kaestat.theory.baseline_law`) applied to a log: its inputs, and the predicted order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from kaestat.core.checks import check_positive
from kaestat.logs.gradient_risk import measure_of
from kaestat.logs.jackknife import jackknife_groups, jackknife_interval
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import eligible_visits
from kaestat.logs.tuning import wide_grid
from kaestat.logs.units import LogUnits
from kaestat.logs.value_mixture import ATOMS, Counts
from kaestat.theory.baseline_law import GROUP_SIZES, PromptMoments, predict_noise

if TYPE_CHECKING:
    import pandas as pd

LEAST_COUNTED = 4  # completions behind a count of right ones: fewer say little of how values are spread
ROWS = 400  # prompts that stand for the distribution of success rates
BETWEEN = 0.2  # of the synthetic tasks; free answers of SmolLM2-135M-Instruct had .001 +- .007


@dataclass(frozen=True, eq=False)
class LawInputs:
    """The inputs of the law."""

    moments: PromptMoments  # Of `ROWS` prompts that represent those of the log
    history: float  # Effective number of completions in a kernel mean of a prompt's past
    drift: np.ndarray  # shape (P,); the part of its squared error due to a policy that changes, as if all logits do
    bandwidth: float  # Bandwidth of that mean, in the log's steps: the one with least error, for an exponential kernel


def law_inputs(log: RewardLog, *, weights: str | None = None, between: float = 0.0, min_visits: int = 1) -> LawInputs:
    """Inputs of the law, averaged along a run; other arguments are as for `gradient_risk`.

    - *Success rates* have the maximum-likelihood distribution, given the counts of right completions
      (`kaestat.logs.value_mixture`). Visits with few completions are joined until there are four.
    - *Weights* of right and wrong completions are means at each success rate, by its posterior given the count.
    - *The history* is a mean of the prompt's own past. The part of its squared error beyond ``p (1 - p) / history`` is
      drift.

    ``between`` is ``E ||g_x||^2 - ||g||^2`` divided by the value's noise within prompts. Norms do not determine it: 0
    is about right for long free answers (measured: .001 +- .007), .2 for synthetic tasks with short ones. The
    prediction is valid for an optimiser only if W, the squared score norms, are in the metric of its step.
    """
    return _Log.of(log, weights, min_visits).inputs(np.ones(len(log.prompts), dtype=bool), between)


@dataclass(frozen=True, eq=False)
class LawPrediction:
    """Noise of each design on a log, at equal completions, as the law predicts it."""

    inputs: LawInputs
    threshold: tuple[float, float, float]  # `kaestat.theory.PromptMoments.threshold` of the moments, and its interval
    # The log's own design: the leave-one-out mean of groups of its median size, or ``none`` if that size is 1
    unit: str
    noise: pd.Series  # By design, for ``between`` 0 and `BETWEEN`
    with_between: pd.Series
    left_out: pd.DataFrame  # ``noise`` without each group of prompts, one row each

    def ratio(self, design: str, reference: str) -> tuple[float, float, float]:
        """Noise of a design divided by that of another one, with the jackknife's 95 % interval of the logarithm."""
        left_out = self.left_out[design].to_numpy() / self.left_out[reference].to_numpy()
        return _with_interval(float(self.noise[design] / self.noise[reference]), left_out)

    def table(self) -> pd.DataFrame:
        """One row per design, least noise first, relative to ``unit``; ``with_between`` is at `BETWEEN`."""
        import pandas as pd

        rows = [(design, *self.ratio(str(design), self.unit)) for design in self.noise.index]
        table = pd.DataFrame(rows, columns=["design", "noise", "ci_low", "ci_high"])
        table["with_between"] = (self.with_between / self.with_between[self.unit])[self.noise.index].to_numpy()
        return table.assign(unit=self.unit).sort_values("noise", kind="stable", ignore_index=True)


def law_of_log(
    log: RewardLog,
    *,
    weights: str | None = None,
    group_sizes: Sequence[int] = GROUP_SIZES,
    seed: int = 0,
    min_visits: int = 1,
) -> LawPrediction:
    """The law's predictions for the designs on a log, at its completions per step and its history's effective size."""
    import pandas as pd

    whole = _Log.of(log, weights, min_visits)
    size = int(np.median(log.group_sizes))
    sizes = sorted({*group_sizes, *([size] if size > 1 else [])})
    completions = max(2, round(len(log.arrays["step"]) / log.n_steps))

    def predicted(inputs: LawInputs) -> pd.Series:
        designs = predict_noise(
            inputs.moments, completions=completions, history=inputs.history, drift=inputs.drift, group_sizes=sizes
        )
        return pd.Series({each.design: each.relative_noise for each in designs})

    everyone = np.ones(len(log.prompts), dtype=bool)
    inputs = whole.inputs(everyone, 0.0)
    noise = predicted(inputs)
    group = jackknife_groups(len(log.prompts), seed=seed)
    without = [group != k for k in range(int(group.max()) + 1)]
    left_out = [whole.inputs(chosen, 0.0) for chosen in without if _tells(whole.counts, chosen)]
    thresholds = np.array([each.moments.threshold for each in left_out])
    return LawPrediction(
        inputs=inputs,
        threshold=_with_interval(inputs.moments.threshold, thresholds),
        unit=f"rloo_{size}" if size > 1 else "none",
        noise=noise,
        with_between=predicted(whole.inputs(everyone, BETWEEN)),
        left_out=pd.DataFrame([predicted(each) for each in left_out], columns=noise.index),
    )


def law_applies(log: RewardLog, *, weights: str | None = None, min_visits: int = 1) -> bool:
    """Whether `law_of_log` applies: prompts return, some with right and wrong answers at once, and have weights."""
    units = log.prompt_units
    eligible = units.earlier >= max(min_visits, 1)
    if not (eligible.any() and np.isin(units.reward, (0.0, 1.0)).all()):
        return False
    counts = _counts(units, log.completion_weights(measure_of(log, weights)), eligible)
    return _tells(counts, np.ones(len(log.prompts), dtype=bool))


@dataclass(frozen=True, eq=False)
class _Log:
    """What is summed over some prompts again and again; ``error, inverse`` as `_of_past` returns them."""

    counts: Counts
    bandwidths: np.ndarray
    prompt: np.ndarray
    size: np.ndarray
    variance: np.ndarray
    error: np.ndarray
    inverse: np.ndarray

    @classmethod
    def of(cls, log: RewardLog, weights: str | None, min_visits: int) -> _Log:
        weight = log.completion_weights(measure_of(log, weights))
        units = log.prompt_units
        if not np.isin(units.reward, (0.0, 1.0)).all():
            raise ValueError("rewards must be 0 and 1: the law of the baseline is for right and wrong answers.")
        eligible = eligible_visits(log, max(min_visits, 1), absolute=False)
        counts = _counts(units, weight, eligible)
        if not _tells(counts, np.ones(len(log.prompts), dtype=bool)):
            raise ValueError(
                "rewards must be both right and wrong for some prompts that come back, and weights not all 0: there is "
                "hardly any noise by which designs could differ."
            )
        bandwidths = np.array(wide_grid(log))
        error, inverse = _of_past(units, bandwidths)
        return cls(
            counts=counts,
            bandwidths=bandwidths,
            prompt=units.visit_prompt[eligible],
            size=units.counts[eligible].astype(float),
            variance=units.variance[eligible],
            error=error[:, eligible],
            inverse=inverse[:, eligible],
        )

    def inputs(self, chosen: np.ndarray, between: float) -> LawInputs:
        """Those of some prompts."""
        between = check_positive("between", between, allow_zero=True)
        mixture, sums = self.counts.pooled(chosen)
        rows = mixture.quantiles(ROWS)
        right, wrong = sums["n_right"], sums["n_wrong"]
        moments = PromptMoments(
            value=ATOMS[rows],
            right=mixture.means(sums["right"], right)[rows],
            wrong=mixture.means(sums["wrong"], wrong)[rows],
            right_square=mixture.means(sums["right_square"], right)[rows],
            wrong_square=mixture.means(sums["wrong_square"], wrong)[rows],
            signal=np.zeros(ROWS),
            common=0.0,
        )
        p = moments.value
        moved = _to_mean_one((p * (1 - p)) ** 2)
        level = between / (1 + between) * float(moments.second_moment(p).mean())
        moments = replace(moments, signal=level * _to_mean_one(moved * moments.weight))
        history, drift, bandwidth = self._history(chosen, float(np.mean(p * (1 - p))))
        return LawInputs(moments, history, drift * moved, bandwidth)

    def _history(self, chosen: np.ndarray, of_values: float) -> tuple[float, float, float]:
        """Effective completions, drift and bandwidth."""
        some = chosen[self.prompt]
        size, error, inverse = self.size[some], self.error[:, some], self.inverse[:, some]
        variance = np.where(size > 1, self.variance[some], of_values)
        best = int(np.argmin(error @ size))
        of_noise, of_mean = float(size @ variance), float((size * variance) @ inverse[best])
        squared = float(error[best] @ size - variance.sum()) / float(size.sum())
        history = of_noise / of_mean if of_noise > 0 else float(1 / inverse[best].mean())
        return history, max(squared - of_mean / float(size.sum()), 0.0), float(self.bandwidths[best])


def _with_interval(positive: float, left_out: np.ndarray) -> tuple[float, float, float]:
    """An estimate and its interval on the scale of logarithms, from the same without each group of prompts."""
    if len(left_out) < 2 or not np.isfinite([positive, *left_out]).all():
        return positive, math.nan, math.nan
    _, low, high = jackknife_interval(math.log(positive), np.log(left_out)[:, None])
    return positive, math.exp(low[0]), math.exp(high[0])


def _to_mean_one(shape: np.ndarray) -> np.ndarray:
    return shape / shape.mean() if shape.any() else shape


def _tells(counts: Counts, chosen: np.ndarray) -> bool:
    """Whether some prompts have weights, and enough counts with both kinds that one of `ROWS` is between 0 and 1."""
    some = chosen[counts.prompt]
    right, size = counts.right[some], counts.size[some]
    weight = sum(counts.sums[name][some].sum() for name in ("right", "wrong"))
    return bool(weight > 0 and size[(right > 0) & (right < size)].sum() * ROWS >= size.sum())


def _counts(units: LogUnits, weight: np.ndarray, eligible: np.ndarray) -> Counts:
    """Counts of right completions and sums of W over visits, those of few completions joined within a prompt."""
    right = units.reward
    columns = {
        "n_right": right,
        "n_wrong": 1 - right,
        "right": weight * right,
        "wrong": weight * (1 - right),
        "right_square": weight**2 * right,
        "wrong_square": weight**2 * (1 - right),
    }
    order = units.by_unit[eligible[units.by_unit]]
    prompt, size = units.visit_prompt[order], units.counts[order]
    before = np.cumsum(size) - size
    starts = np.append(True, prompt[1:] != prompt[:-1])
    before -= before[starts][np.cumsum(starts) - 1]  # completions of the prompt before this visit
    piece = before // LEAST_COUNTED
    first = np.flatnonzero(starts | np.append(True, piece[1:] != piece[:-1]))
    sums = {
        name: np.add.reduceat(np.add.reduceat(column, units.first)[order], first) for name, column in columns.items()
    }
    whole = np.add.reduceat(size, first)
    return Counts(prompt[first], np.rint(sums["n_right"]).astype(np.int64), whole, sums)


def _of_past(units: LogUnits, bandwidths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared error and inverse effective size of the past mean at every visit, (bandwidths, W); NaN at first ones."""
    error, inverse = np.full((2, len(bandwidths), len(units.first)), np.nan)
    mass, squares, total = np.zeros((3, len(bandwidths), int(units.visit_unit.max()) + 1))
    last = np.zeros(mass.shape[1])
    by_rank = np.argsort(units.earlier, kind="stable")
    for rank, visits in enumerate(np.split(by_rank, np.cumsum(np.bincount(units.earlier))[:-1])):
        unit, step, count = units.visit_unit[visits], units.visit_step[visits], units.counts[visits]
        if rank:
            mean = total[:, unit] / mass[:, unit]
            error[:, visits] = (units.total[visits] / count - mean) ** 2
            inverse[:, visits] = squares[:, unit] / mass[:, unit] ** 2
        fade = np.exp(-(step - last[unit]) / bandwidths[:, None])
        mass[:, unit] = fade * mass[:, unit] + count
        squares[:, unit] = fade**2 * squares[:, unit] + count
        total[:, unit] = fade * total[:, unit] + units.total[visits]
        last[unit] = step
    return error, inverse
