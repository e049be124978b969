"""The common part of the commands of ``kaestat``: options, and checks before the work."""

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from kaestat.logs.readers import FORMATS
from kaestat.report.application import Interruption
from kaestat.report.out_folder import check_folder

Log = Annotated[Path | None, typer.Argument(metavar="LOG", help="Reward log: a file or folder.", show_default=False)]
Simulated = Annotated[bool, typer.Option("--simulated", help="Use the simulated run instead of LOG.")]
Format = Annotated[str, typer.Option(metavar="NAME", help=f"Format of LOG: auto, {', '.join(FORMATS)}.")]
Hint = Annotated[
    list[str],
    typer.Option(metavar="KEY=VALUE", help="What LOG cannot tell: group_size=8, prompt=question, ...; repeatable."),
]
Missing = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="Rows that lack a value: refuse or drop.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
P = ParamSpec("P")


def interruptible(command: Callable[P, None]) -> Callable[P, None]:
    """The command, which raises `Interruption` for KeyboardInterrupt: Typer would lose the message."""

    @wraps(command)
    def call(*arguments: P.args, **options: P.kwargs) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as cause:
            raise Interruption from cause

    return call


def hints_by_name(texts: list[str], missing: str | None = None) -> dict[str, Any]:
    """The hints by name, with that of ``--missing``; a hint given several times is a list."""
    texts = texts if missing is None else [*texts, f"missing={missing}"]
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ValueError(f"--hint {text!r}: write KEY=VALUE, for example group_size=8.")
        found.setdefault(key, []).append(_hint_value(key, value))
    return {key: values if len(values) > 1 or key == "reward_weights" else values[0] for key, values in found.items()}


def _hint_value(key: str, value: str) -> str | int | float:
    kinds: dict[str, type[int] | type[float]] = {"group_size": int, "reward_weights": float}
    try:
        return kinds[key](value) if key in kinds else value
    except ValueError:
        raise ValueError(f"--hint {key}={value}: {key} must be a number.") from None


def check_out(out: Path, *, needs: tuple[str, ...] = ("jinja2", "matplotlib")) -> None:
    """Raise an error before the work starts if its results could not be written."""
    missing = [name for name in needs if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"--out needs {' and '.join(missing)}: pip install 'kaestat[plots]'")
    check_folder(out)
