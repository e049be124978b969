"""Commands of ``python -m llm_experiments``."""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from llm_experiments.config import load_config
from llm_experiments.console import progress_bar

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # exit codes
UsageError, Abort = typer.BadParameter.__base__, typer.Abort  # typer exports the first under no name of its own


class Stage(StrEnum):
    """Parts of the diagnostic, each reading what those before it have written."""

    pools = "pools"
    value = "value"
    gradient = "gradient"
    all = "all"


@app.callback()
def _commands() -> None:
    """Value and gradient diagnostics of real language models."""


@app.command()
def diagnose(
    config: Annotated[Path, typer.Option(help="YAML file, such as llm_experiments/configs/tiny.yaml.")],
    stage: Annotated[Stage, typer.Option(help="What to do; all does one after the other.")] = Stage.all,
    runs: Annotated[Path, typer.Option(help="Folder of models, checkpoints and pools.")] = Path("runs"),
    results: Annotated[Path, typer.Option(help="Folder of result tables, a run's in NAME below it.")] = Path("results"),
) -> None:
    """How wrong each baseline's value is, and how noisy the gradient, at the checkpoints of a run.

    Interrupt it at any moment, and run it again: it goes on where it stopped.
    """
    from transformers.utils.logging import disable_progress_bar

    from llm_experiments.diagnose import Diagnosis

    disable_progress_bar()  # those of loading and saving weights; ours tell what matters
    console = Console(stderr=True)
    diagnosis = Diagnosis(load_config(config), runs=runs, results=results, progress=partial(progress_bar, console))
    for part in (Stage.pools, Stage.value, Stage.gradient) if stage is Stage.all else (stage,):
        getattr(diagnosis, part)()
    console.print(f"Results: {diagnosis.results}", highlight=False, markup=False, soft_wrap=True)


def main() -> None:
    """Entry point: faults of the user's input are told in one line, without a trace."""
    try:
        sys.exit(app(prog_name="python -m llm_experiments", standalone_mode=False) or 0)
    except UsageError as error:
        sys.exit(_fail(f"{error.format_message().rstrip('.')}. See python -m llm_experiments --help.", USAGE))
    except (ValueError, OSError, ModuleNotFoundError) as error:
        sys.exit(_fail(str(error), FAILED))
    except (KeyboardInterrupt, Abort):
        sys.exit(_fail("interrupted; run it again to go on.", INTERRUPTED))


def _fail(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code
