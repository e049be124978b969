"""The commands of ``kaestat``, but for ``kaestat watch``. Imports typer and rich."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

import kaestat
from kaestat.core.provenance import Provenance, checksum, versions
from kaestat.datasets import simulated_run
from kaestat.logs.readers import FORMATS, read_log
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.selection import select_bandwidth
from kaestat.report import console
from kaestat.report.analysis import analyze as analyze_log
from kaestat.report.comparison import compare_runs
from kaestat.report.comparison_text import comparison_document, write_page
from kaestat.report.files import analysis_json, check_folder, to_json, write_report
from kaestat.report.tables import analysis_document, selection_document
from kaestat.report.user_method import method_or_baseline
from kaestat.smoothing.kernels import KERNELS
from kaestat.smoothing.selectors import SELECTORS

SIMULATED = "simulated run"
MAIN_ROWS = 10

Log = Annotated[Path | None, typer.Argument(metavar="LOG", help="Reward log: a file or folder.", show_default=False)]
Simulated = Annotated[bool, typer.Option("--simulated", help="Use the simulated run instead of LOG.")]
Format = Annotated[str, typer.Option(metavar="NAME", help=f"Format of the log: auto, {', '.join(FORMATS)}.")]
Hint = Annotated[
    list[str],
    typer.Option(metavar="KEY=VALUE", help="What a log cannot tell: group_size=8, prompt=question, ...; repeatable."),
]
Missing = Annotated[
    str | None,
    typer.Option(metavar="WHAT", help="Rows that lack a value: refuse or drop.", show_default=False),
]
Draws = Annotated[int, typer.Option(min=0, help="Bootstrap draws of prompts, at least 40; 0: none.")]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder for tables, figure and page.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

app = typer.Typer(rich_markup_mode=None)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"kaestat {kaestat.__version__}")
        raise typer.Exit


@app.callback()
def kaestat_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which baseline would have had the lowest error on a reward log you already have?"""


@app.command()
def analyze(
    context: typer.Context,
    log: Log = None,
    method: Annotated[
        list[str],
        typer.Option(
            metavar="SPEC",
            help="A method, such as kae:bandwidth=20,kernel=exponential, or a baseline of yours, package.module:Class; "
            "repeatable. Default: all.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    format: Format = "auto",
    hint: Hint = [],  # noqa: B006
    missing: Missing = None,
    sampling: Annotated[
        bool, typer.Option("--sampling", help="Also estimate what drawing prompts by predicted values would be worth.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Score every method, and show all rows, not ten.")] = False,
    n_boot: Draws = 1000,
    seed: Seed = 0,
    min_visits: Annotated[int, typer.Option(min=0, help="Score visits with at least this many earlier ones.")] = 1,
    out: Out = None,
    simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """Value MSE of every method on LOG, with intervals, from its rewards alone."""
    if out is not None:
        check_folder(out)
    methods = [method_or_baseline(specification) for specification in method]
    rewards = _read(log, format, hints_by_name(hint, missing), simulated)
    with console.stage("Replaying the log"):
        analysis = analyze_log(
            rewards,
            methods or None,
            every=show_all or as_json or out is not None,
            bandwidth_paths=out is not None,
            sampling=sampling,
            n_boot=n_boot,
            seed=seed,
            min_visits=min_visits,
        )
    source = SIMULATED if log is None else log.name
    if not as_json:
        console.show(analysis_document(analysis, source, rows=None if show_all or method else MAIN_ROWS))
        if out is None:
            return
    with console.stage("Checksum of the log"):
        provenance = _provenance(context, log, source, n_boot, seed, analysis.min_visits)
    if as_json:
        print(analysis_json(analysis, provenance))
    if out is None:
        return
    with console.stage(f"Writing to {out}"):
        context.obj.outcome = f"some files in {out} may be of this analysis, and some of an earlier one"
        written = write_report(analysis, provenance, out)
    context.obj.outcome = f"the analysis was complete, and all its files are in {out}"
    if not as_json:
        console.show_written(written)


@app.command()
def bandwidth(
    log: Log = None,
    selector: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(SELECTORS)}.")] = "forward_cv",
    kernel: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(KERNELS)}.")] = "triangular",
    format: Format = "auto",
    hint: Hint = [],  # noqa: B006
    missing: Missing = None,
    n_boot: Draws = 200,
    seed: Seed = 0,
    simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """The bandwidth that LOG asks for, with its standard error and risk path."""
    rewards = _read(log, format, hints_by_name(hint, missing), simulated)
    with console.stage("Selecting the bandwidth"):
        selection = select_bandwidth(rewards, selector, kernel, n_boot=n_boot, seed=seed)
    if as_json:
        fields = ("bandwidth", "se", "time_axis", "selector", "path")
        print(to_json({name: getattr(selection, name) for name in fields} | {"kernel": kernel}))
        return
    console.show(selection_document(selection, kernel))


@app.command()
def methods() -> None:
    """Names of all methods, with their values and sources."""
    console.show_methods()


@app.command()
def compare(
    context: typer.Context,
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="Reward log of the first run.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Reward log of the second run.")],
    format: Format = "auto",
    hint: Hint = [],  # noqa: B006
    missing: Missing = None,
    n_boot: Draws = 1000,
    seed: Seed = 0,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Two runs beside each other: rewards, dead groups, completions to the same mean reward."""
    if out is not None:
        check_folder(out)
    hints = hints_by_name(hint, missing)
    names = (before.name, after.name) if before.name != after.name else (str(before), str(after))
    first, second = (_read(path, format, hints, False) for path in (before, after))
    with console.stage("Comparing"):
        comparison = compare_runs(first, second, names, n_boot=n_boot, seed=seed)
    provenance = [
        _provenance(context, path, name, n_boot, seed, 1) for path, name in zip((before, after), names, strict=True)
    ]
    if as_json:
        fields = ("figures", "level", "share")
        print(to_json({name: getattr(comparison, name) for name in fields} | {"provenance": provenance}))
    else:
        console.show(comparison_document(comparison))
    if out is None:
        return
    page = write_page(comparison, provenance, out)
    context.obj.outcome = f"the comparison was complete, and its page is in {out}"
    if not as_json:
        console.show_written([page])


def hints_by_name(texts: list[str], missing: str | None = None) -> dict[str, Any]:
    """The hints by name, with that of ``--missing``; a hint given several times is a list."""
    hints: dict[str, list[Any]] = {}
    for text in texts if missing is None else [*texts, f"missing={missing}"]:
        key, _, value = text.partition("=")
        if not (key and value):
            raise ValueError(f"--hint {text!r}: write KEY=VALUE, for example group_size=8.")
        hints.setdefault(key, []).append(_hint_value(key, value))
    return {key: values if len(values) > 1 or key == "reward_weights" else values[0] for key, values in hints.items()}


def _hint_value(key: str, value: str) -> str | int | float:
    kinds: dict[str, type[int] | type[float]] = {"group_size": int, "reward_weights": float}
    try:
        return kinds[key](value) if key in kinds else value
    except ValueError:
        raise ValueError(f"--hint {key}={value}: {key} must be a number.") from None


def _read(log: Path | None, format: str, hints: dict[str, Any], simulated: bool) -> RewardLog:
    if (log is None) != simulated:
        raise ValueError("give a reward log (file or folder), or --simulated, and not both.")
    if log is None:
        return simulated_run().log
    with console.stage(f"Reading {log.name}"):
        return read_log(log, format=format, **hints)


def _provenance(
    context: typer.Context, log: Path | None, source: str, n_boot: int, seed: int, min_visits: int
) -> Provenance:
    return Provenance(
        command=shlex.join(["kaestat", *context.obj.arguments]),
        source=source,
        sha256=None if log is None else checksum(log),
        seed=seed,
        n_boot=n_boot,
        min_visits=min_visits,
        versions=versions(),
    )
