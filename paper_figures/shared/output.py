"""Tables as CSV, Markdown and LaTeX files, figures as PNG and PDF."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from kaestat.core.result_tables import write_table as write_table_file
from kaestat.core.storage import write_atomically
from kaestat.report.plots import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATEX_ESCAPES = str.maketrans({character: f"\\{character}" for character in "%&_#$"})


def write_table(shown: pd.DataFrame, folder: str | os.PathLike, name: str, caption: str) -> None:
    """Write ``tables/NAME.md`` and ``tables/NAME.tex`` below ``folder``.

    shown: Text cells, as readers shall see them.
    caption: Plain text.
    """
    tables = Path(folder) / "tables"
    write_atomically(tables / f"{name}.md", markdown(shown, caption))
    write_atomically(tables / f"{name}.tex", latex(shown, caption, label=f"tab:{name}"))


def write_csv(frame: pd.DataFrame, folder: str | os.PathLike, name: str) -> None:
    """Write ``NAME.csv`` in ``folder``; a name that ends in ``.csv.gz`` is the file's."""
    write_table_file(Path(folder) / (name if name.endswith(".gz") else f"{name}.csv"), frame)


def write_figure(figure: Figure, folder: str | os.PathLike, name: str) -> None:
    """Write ``figures/NAME.png`` and ``figures/NAME.pdf`` below ``folder``."""
    for file_format in ("png", "pdf"):
        write_atomically(Path(folder) / "figures" / f"{name}.{file_format}", render(figure, file_format))


def markdown(shown: pd.DataFrame, caption: str) -> str:
    """A pipe table under its caption."""
    rows = [[str(cell).replace("|", "\\|") for cell in row] for row in (shown.columns, *shown.itertuples(index=False))]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|" + "|".join(["---"] * shown.shape[1]) + "|"
    return "\n".join([caption, "", lines[0], rule, *lines[1:], ""])


def latex(shown: pd.DataFrame, caption: str, *, label: str) -> str:
    """A booktabs table."""
    columns = "l" + "r" * (shown.shape[1] - 1)
    caption = caption.translate(LATEX_ESCAPES)
    return shown.to_latex(index=False, escape=True, caption=caption, label=label, column_format=columns)
