"""Figures and tables of an experiment's training runs."""

import os

from paper_figures.shared.output import write_figure, write_table
from paper_figures.training.figures import curves
from paper_figures.training.results import label, read_results
from paper_figures.training.tables import FINAL_CAPTION, final_table, reference_of


def build(folder: str | os.PathLike) -> None:
    """Write the figures and tables ``training_*`` below a results folder.

    Raises FileNotFoundError if the folder holds no results of training runs with tests.
    """
    found = read_results(folder, ("tests", "curves", "final", "differences"))
    write_figure(curves(found["tests"], found["curves"]), folder, "training_curves")
    caption = FINAL_CAPTION.format(reference=label(*reference_of(found["final"])))
    write_table(final_table(found["final"], found["differences"]), folder, "training_final", caption)
