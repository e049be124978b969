"""``python -m paper_figures.training.evaluations FOLDER...``: accuracies of models in the layout of Tables 3 and 4."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd

try:
    import typer

    from paper_figures.shared.output import markdown, write_table
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; tables need: pip install -e '.[simulations]'")

# Columns in the paper's order, under its names. GSM8K has a figure there and no column: it is shown beside the average.
COLUMNS = {
    "aime24": "AIME24",
    "aime25": "AIME25",
    "amc": "AMC",
    "math500": "MATH",
    "minerva": "Minerva",
    "olympiadbench": "Olympiad",
    "paper_average": "Avg",
    "average": "Avg of these",
    "gsm8k": "GSM8K",
}
CAPTION = (
    "Accuracy with its standard error over problems (completions of a problem are one cluster). Avg is over the "
    "paper's six sets."
)


def evaluations_table(folders: Sequence[str | os.PathLike]) -> pd.DataFrame:
    """A row for each evaluation, a column for each set: text cells.

    Parameters
    ----------
    folders : sequence of path
        Results folders of evaluations, ``results/evaluations/NAME``; NAME becomes the row's.

    Raises
    ------
    FileNotFoundError
        If one of them holds no evaluation.
    ValueError
        If they were evaluated on different sets: their averages would not compare.
    """
    found = {Path(folder).name: _accuracies(Path(folder)) for folder in folders}
    sets = [set(frame.index) for frame in found.values()]
    if any(each != sets[0] for each in sets):
        raise ValueError(
            "the evaluations are of different sets: "
            + "; ".join(f"{name} of {', '.join(frame.index)}" for name, frame in found.items())
            + ". Evaluate all on the same suite."
        )
    rows = [
        {"Method": name}
        | {
            title: f"{frame.loc[column, 'accuracy']:.4f} ± {frame.loc[column, 'se']:.4f}"
            for column, title in COLUMNS.items()
            if column in frame.index
        }
        for name, frame in found.items()
    ]
    return pd.DataFrame(rows)


def _accuracies(folder: Path) -> pd.DataFrame:
    path = folder / "accuracy.csv"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; name the results folder of an evaluation.")
    return pd.read_csv(path).set_index("set")


def main(
    folders: Annotated[list[Path], typer.Argument(help="Results folders of evaluations.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the table as Markdown and LaTeX.")] = None,
) -> None:
    """Print the table; with --out, write it too."""
    try:
        table = evaluations_table(folders)
        if out is not None:
            write_table(table, out, "evaluations", CAPTION)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(markdown(table, CAPTION))


if __name__ == "__main__":
    typer.run(main)
