"""Figures and tables of the paper's section 5.3, small.

From the committed results of training runs, without training: the one-shot figure, the single-stream figure, the
ablation of the schedule, and the analogues of Tables 3 and 4.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from paper_figures.shared.output import write_figure, write_table
from paper_figures.training.figures import panels
from paper_figures.training.results import Variant, label, plus_minus, read_results, rows_of, variants_of
from paper_figures.training.tables import FINAL_COLUMNS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEST, TRAINING = ("tests", "accuracy", "Test accuracy, sampled"), ("curves", "mean_reward", "Training reward")
GREEDY = ("tests", "greedy", "Test accuracy, greedy")


@dataclass(frozen=True)
class CurveFigure:
    """A figure of the paper and its analogue here.

    experiment: Folder of its results.
    panels: Table, column and axis name of each panel, from left to right.
    variants: Methods, without parameters, and reuse, in the order of the legend.
    """

    experiment: str
    panels: tuple[tuple[str, str, str], ...]
    variants: tuple[tuple[str, int], ...]


FIGURES = {
    # Expected reward on the training and the test set; `pooled` is the paper's oracle.
    "one_shot": CurveFigure("tiny_one_shot", (TRAINING, TEST), (("grpo", 1), ("kae_stream", 1), ("pooled", 1))),
    # The paper's REINFORCE with and without its schedule against KAE, one completion per prompt.
    "single_stream": CurveFigure(
        "tiny_single_stream",
        (TEST, GREEDY),
        (("none", 1), ("none", 10), ("reinforce++", 1), ("kae", 1), ("kae", 10)),
    ),
    # The schedule alone and with KAE; Dr. GRPO differs from KAE in the value, GRPO in the scaling too.
    "ablation": CurveFigure(
        "tiny_multi_stream_g8",
        (TEST, GREEDY),
        (("grpo", 1), ("grpo", 10), ("dr_grpo", 10), ("kae", 1), ("kae", 10)),
    ),
}
PAPER_SIZE = {
    "one_shot_paper_size": CurveFigure(
        "one_shot_qwen2.5_math_1.5b", (TRAINING, TEST), (("grpo", 1), ("kae_stream", 1), ("pooled", 1))
    ),
    **{
        f"single_stream_{name}": CurveFigure(
            experiment, (TRAINING, TEST), (("none", 1), ("none", 10), ("reinforce++", 1), ("kae", 10))
        )
        for name, experiment in {"gsm8k": "gsm8k_qwen2.5_1.5b_g1", "math": "math_qwen2.5_math_1.5b_g1"}.items()
    },
    "multi_stream_math": CurveFigure(
        "math_qwen2.5_math_7b_g8",
        (TRAINING, TEST),
        (("grpo", 1), ("grpo", 10), ("dr_grpo", 1), ("gpg", 1), ("kae", 10)),
    ),
    "multi_stream_dapo": CurveFigure(
        "dapo_qwen2.5_math_7b_g4", (TRAINING, TEST), (("grpo", 1), ("grpo", 8), ("dr_grpo", 1), ("gpg", 1), ("kae", 8))
    ),
}
"""Of runs of the paper's own size, on TRL or verl; drawn where their results are there."""

TABLES = {"table3_small": "tiny_multi_stream_g8", "table4_small": "tiny_multi_stream_g4"}
TABLE_METHODS = ("dr_grpo", "gpg", "grpo", "kae", "kae_eb")
CAPTION = (
    "Accuracy at the end of training (mean of the last three tests; the average is that of all tests after the first) "
    "with its standard error over {seeds} seeds, in the layout of the paper's Table {number}: a model of 400,000 "
    "parameters on held-out sums and differences, G = {g}."
)


def figure(folder: Path, wanted: CurveFigure) -> Figure:
    """One figure from its experiment's results.

    Raises FileNotFoundError if the folder lacks a table.
    Raises ValueError if a variant was not run.
    """
    found = read_results(folder, sorted({table for table, _, _ in wanted.panels}))
    known = variants_of(next(iter(found.values())))
    variants = [plain_variant(known, method, reuse) for method, reuse in wanted.variants]
    return panels([[(found[table], column, name) for table, column, name in wanted.panels]], variants)


def plain_variant(known: list[Variant], method: str, reuse: int) -> Variant:
    """The variant of a method with its own scaling and no weights.

    Raises ValueError if there is none.
    """
    for variant in known:
        if (variant[0].partition(":")[0], *variant[1:]) == (method, "none", "own", reuse):
            return variant
    raise ValueError(f"the results have no run of {method} with J = {reuse}, only {', '.join(map(label_of, known))}.")


def label_of(variant: Variant) -> str:
    """A variant's name for readers."""
    return label(*variant)


def accuracy_table(final: pd.DataFrame) -> pd.DataFrame:
    """Text cells in the layout of Tables 3 and 4: methods in rows, kinds of accuracy in columns.

    final: ``final.csv`` of the results.
    """
    known, rows = variants_of(final), []
    for method in TABLE_METHODS:
        variant = plain_variant(known, method, 1)
        values = rows_of(final, variant).set_index("outcome")
        row = {"Method": label_of(variant)}
        for outcome, name in FINAL_COLUMNS.items():
            row[name] = plus_minus(values.loc[outcome, "mean"], values.loc[outcome, "se"], ".4f", ".4f")
        rows.append(row)
    return pd.DataFrame(rows)


def build(results: str | os.PathLike, out: str | os.PathLike) -> None:
    """Write all figures and tables.

    results: Folder of the experiments' results, ``results/training``.
    out: Gets ``figures`` and ``tables``.
    """
    there = {name: wanted for name, wanted in PAPER_SIZE.items() if (Path(results) / wanted.experiment).is_dir()}
    for name, wanted in (FIGURES | there).items():
        write_figure(figure(Path(results) / wanted.experiment, wanted), out, name)
    for name, experiment in TABLES.items():
        final = read_results(Path(results) / experiment, ["final"])["final"]
        caption = CAPTION.format(seeds=final["n_seeds"].max(), number=name[5], g=experiment.rpartition("g")[2])
        write_table(accuracy_table(final), out, name, caption)
