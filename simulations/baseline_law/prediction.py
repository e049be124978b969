"""What the law predicts in a cell, from moments on one short path of the true value; no design's training is used."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kaestat.theory.baseline_law import PromptMoments, predict_completions, predict_noise
from simulations.baseline_law.cells import Cell
from simulations.baseline_law.designs import HISTORY_EPOCHS
from simulations.baseline_law.inputs import measured
from simulations.baseline_law.optimisers import plain_units
from simulations.baseline_law.study import bases, draws
from simulations.baseline_law.training import path

POINTS = (0.1, 0.5)  # of the budget, at which inputs are measured
PATH_DESIGN = "value"
UNIT = "batch_mean"  # whose predictions are 1


def path_inputs(cell: Cell, *, plain: bool = False) -> list[tuple[float, list[PromptMoments], np.ndarray]]:
    """Inputs on each base at `POINTS`, at a rate fixed in advance: point, moments, and the history's squared drift.

    Parameters
    ----------
    cell : Cell
    plain : bool
        Measure them in plain units whatever the optimiser: what a check of the units needs.
    """
    numbers, world = draws(cell, "path", 1), bases(cell)
    each = cell.spec.prompts / cell.batch  # steps of a pass
    at = [round(point * cell.budget.steps) for point in POINTS]
    passes = [round(each * k) for k in range(int(at[-1] / each) + 1)]
    moments = path(
        world.astype(np.float32), numbers, PATH_DESIGN, cell.path_rate, cell.optimiser, cell.budget,
        sorted({*at, *passes}),
    )  # fmt: skip
    values = {moment.step: world.values(moment.theta)[..., 0] for moment in moments}
    found = []
    for point, step in zip(POINTS, at, strict=True):
        moment = next(m for m in moments if m.step == step)
        units = plain_units(moment.theta.shape) if plain else moment.units
        past = [before for before in passes if before < step]
        kernel = np.exp([(before - step) / (HISTORY_EPOCHS * each) for before in past])
        mean = np.tensordot(kernel, np.stack([values[before] for before in past]), 1) / kernel.sum()
        found.append((point, measured(world, moment.theta, units), (mean - values[step]) ** 2))
    return found


def effective_visits(cell: Cell, point: float) -> float:
    """``(sum k)^2 / sum k^2`` of the visits of a prompt up to a point of the budget, one a pass."""
    visits = point * cell.budget.completions / cell.spec.prompts
    kernel = np.exp(-np.arange(1, max(round(visits), 1) + 1) / HISTORY_EPOCHS)
    return float(kernel.sum() ** 2 / (kernel**2).sum())


def inputs_table(cell: Cell) -> pd.DataFrame:
    """The law's inputs summed up: one row for each base and point, in the optimiser's units."""
    rows = []
    for point, moments, drift in path_inputs(cell):
        for base, own in enumerate(moments):
            p, value_noise = own.value, own.second_moment(own.value).mean() - own.signal.mean()
            rows.append(
                {
                    "cell": cell.name,
                    "point": point,
                    "base": base,
                    "value": p.mean(),
                    "none_right_of_8": ((1 - p) ** 8).mean(),
                    "all_right_of_8": (p**8).mean(),
                    "ratio": own.ratio,
                    "median_ratio": np.median(own.wrong / own.right),
                    "constant": own.constant,
                    "between_within": own.between / value_noise,
                    "noise_scale": (value_noise + own.between) / own.common,
                    "drift": drift[base].mean(),
                }
            )
    return pd.DataFrame(rows)


def predictions(cell: Cell, *, plain: bool = False) -> pd.DataFrame:
    """``cell, design, noise, completions``: relative to `UNIT`, geometric means over bases and points.

    Parameters
    ----------
    cell : Cell
    plain : bool
        As in `path_inputs`.
    """
    logs: dict[str, list[tuple[float, float]]] = {}
    sizes = sorted({int(name.rpartition("_")[2]) for name in cell.group_designs})
    for point, moments, drift in path_inputs(cell, plain=plain):
        history = effective_visits(cell, point)
        for base, own in enumerate(moments):
            found = {
                each.design: each
                for each in predict_noise(
                    own, completions=cell.batch, history=history, drift=drift[base], group_sizes=sizes
                )
            }
            unit = found[UNIT]
            for name in cell.designs:
                ratio = predict_completions(found[name], unit, completions=cell.batch)
                pair = np.log([found[name].relative_noise / unit.relative_noise, ratio])
                logs.setdefault(name, []).append((float(pair[0]), float(pair[1])))
    mean = {name: np.exp(np.mean(pairs, axis=0)) for name, pairs in logs.items()}
    rows = [(cell.name, name, noise, completions) for name, (noise, completions) in mean.items()]
    return pd.DataFrame(rows, columns=["cell", "design", "noise", "completions"])
