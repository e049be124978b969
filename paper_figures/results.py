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
    from paper_figures.llm.build import build as diagnosis
    from paper_figures.training.build import build as training
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; tables and figures need: pip install -e '.[simulations]'")


def study(folder: Path) -> None:
    """Of a study of policies, whose configuration needs the extra ``llm``."""
    try:
        from paper_figures.policies.build import build
    except ImportError as error:
        sys.exit(f"error: {error.name} is not installed; studies of policies need: pip install -e '.[llm,simulations]'")
    build(folder)


# By a table that no other kind of folder has.
KINDS: dict[str, Callable[[Path], list[str] | None]] = {"rates": study, "final": training}


def main(folder: Annotated[Path, typer.Argument(help="Results folder.")]) -> None:
    """Build the tables and figures of a results folder."""
    try:
        built = next((build for name, build in KINDS.items() if table_file(folder / f"{name}.csv").is_file()), None)
        for line in (built or diagnosis)(folder) or ():
            print(line)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"Tables and figures: {folder.resolve()}")


if __name__ == "__main__":
    typer.run(main)
