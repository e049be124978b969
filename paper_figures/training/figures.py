"""Figures of training runs: test accuracy, reward and entropy along them, and errors of gradient and value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.charts import line_key, styled
from paper_figures.training.results import Variant, draw_means, label, line_style, variants_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What is drawn of the tests and of the training curve, and its axis.
TEST_PANELS = {"greedy": "Test accuracy, greedy", "accuracy": "Test accuracy, sampled"}
CURVE_PANELS = {"mean_reward": "Training reward", "entropy": "Entropy (nats)"}
ACCURACY_TICKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


def curves(tests: pd.DataFrame, training: pd.DataFrame) -> Figure:
    """Four panels against the training step: greedy and sampled test accuracy, training reward, entropy.

    Lines are means over seeds, bands one standard error over seeds to either side.

    tests, training: ``tests.csv`` and ``curves.csv`` of the results.
    """
    rows = [[(tests, *panel) for panel in TEST_PANELS.items()], [(training, *panel) for panel in CURVE_PANELS.items()]]
    return panels(rows, variants_of(tests))


def panels(rows: Sequence[Sequence[tuple[pd.DataFrame, str, str]]], variants: Sequence[Variant]) -> Figure:
    """A grid of panels against the training step under one legend.

    rows: Each panel's table, column, and name of its axis.
    """
    height = 3.2 * len(rows) + 0.22 * -(-len(variants) // 2)
    with styled(9.2, height) as drawing:
        grid = drawing.subplots(len(rows), len(rows[0]), sharex=True, squeeze=False)
        for axes_row, row in zip(grid, rows, strict=True):
            for axes, (frame, column, name) in zip(axes_row, row, strict=True):
                draw_means(axes, frame, column, variants)
                if column in TEST_PANELS:
                    _spread_near_one(axes)
                axes.set_ylabel(name)
        for axes in grid[-1]:
            axes.set_xlabel("Training step")
        keys = [line_key(label(*variant), **line_style(variant)) for variant in variants]
        drawing.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False)
    return drawing


def _spread_near_one(axes: Axes) -> None:
    """Log odds on an axis of accuracies that go from below 0.8 to above 0.9."""
    low, high = axes.get_ylim()
    if low < 0.8 and high > 0.9:
        axes.set_yscale("logit", nonpositive="clip")
        axes.set_ylim(max(low, 0.01), min(high, 0.999))
        axes.set_yticks(ACCURACY_TICKS, map(str, ACCURACY_TICKS))
        axes.set_ylim(max(low, 0.01), min(high, 0.999))  # ticks widen it
        axes.minorticks_off()
