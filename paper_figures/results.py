"""``python -m paper_figures.results FOLDER``: tables and figures of a results folder, from what lies in it alone.

The folder is that of a diagnosis, of an experiment's training runs, or of a study of policies.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

try:
    import typer

    from kaestat.core.result_tables import table_file
    from llm_experiments.diagnose.results import read_results as read_diagnosis
    from paper_figures.llm import figures, tables
    from paper_figures.shared.output import write_figure, write_table
    from paper_figures.training.figures import curves
    from paper_figures.training.results import label, read_results
    from paper_figures.training.tables import FINAL_CAPTION, final_table, reference_of
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; tables and figures need: pip install -e '.[simulations]'")


def diagnosis(folder: Path) -> None:
    """Of a diagnosis.

    Raises FileNotFoundError, ValueError if the folder holds no results, or such as cannot be read.
    """
    results = read_diagnosis(folder)
    tables.write(results, folder)
    figures.write(results, folder)


def training(folder: Path) -> None:
    """Of training runs; a FileNotFoundError if the folder holds no results of runs with tests."""
    found = read_results(folder, ("tests", "curves", "final", "differences"))
    write_figure(curves(found["tests"], found["curves"]), folder, "training_curves")
    caption = FINAL_CAPTION.format(reference=label(*reference_of(found["final"])))
    write_table(final_table(found["final"], found["differences"]), folder, "training_final", caption)


def study(folder: Path) -> None:
    """Of a study of policies, whose configuration needs the extra ``llm``."""
    try:
        from paper_figures.policies.build import build
    except ImportError as error:
        sys.exit(f"error: {error.name} is not installed; studies of policies need: pip install -e '.[llm,simulations]'")
    build(folder)


# By a table that no other kind of folder has.
KINDS: dict[str, Callable[[Path], None]] = {"rates": study, "final": training}


def main(folder: Annotated[Path, typer.Argument(help="Results folder.")]) -> None:
    """Build the tables and figures of a results folder."""
    try:
        kinds = [build for name, build in KINDS.items() if table_file(folder / f"{name}.csv").is_file()]
        (kinds or [diagnosis])[0](folder)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"Tables and figures: {folder.resolve()}")


if __name__ == "__main__":
    typer.run(main)
