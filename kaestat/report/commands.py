"""The commands ``kaestat analyze``, ``kaestat bandwidth`` and ``kaestat methods``. Imports typer and rich."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from kaestat.baselines.base import Baseline
from kaestat.core.provenance import Provenance, checksum, versions
from kaestat.datasets import simulated_run
from kaestat.logs.readers import read_log
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.selection import select_bandwidth
from kaestat.report import console
from kaestat.report.analysis import analyze as analyze_log
from kaestat.report.application import app
from kaestat.report.files import write_report
from kaestat.report.json_output import analysis_document, to_json
from kaestat.report.options import Format, Hint, Json, Log, Missing, Simulated, check_out, hints_by_name, interruptible
from kaestat.report.out_folder import replace_files
from kaestat.report.user_method import method_or_baseline
from kaestat.smoothing.kernels import KERNELS
from kaestat.smoothing.selectors import SELECTORS

SIMULATED = "simulated run"
MAIN_ROWS = 10


@app.command()
@interruptible
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
    bandwidth_grid: Annotated[
        bool, typer.Option("--bandwidth-grid", help="Also show the MSE of kae along a grid of bandwidths.")
    ] = False,
    sampling: Annotated[
        bool, typer.Option("--sampling", help="Also tell what drawing prompts by predicted values would be worth.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Score every method, and show all rows, not ten.")] = False,
    n_boot: Annotated[int, typer.Option(min=0, help="Bootstrap draws of prompts, at least 40; 0: none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    min_visits: Annotated[int, typer.Option(min=0, help="Score visits with at least this many earlier ones.")] = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for tables, figure and report.", show_default=False)
    ] = None,
    simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """Value MSE of every method on LOG, with intervals, from its rewards alone."""
    if out is not None:
        check_out(out)
    methods = [method_or_baseline(specification) for specification in method]
    rewards = _read(log, format, hints_by_name(hint, missing), simulated, quiet=as_json)
    analysis = analyze_log(
        rewards,
        methods or None,
        every=show_all or as_json or out is not None,
        bandwidth_paths=bandwidth_grid or out is not None,
        sampling=sampling,
        n_boot=n_boot,
        seed=seed,
        min_visits=min_visits,
        track=iter if as_json else _progress,
    )
    source = SIMULATED if log is None else log.name
    if not as_json:
        rows = None if show_all or method else MAIN_ROWS
        console.show_analysis(analysis, source=source, with_paths=bandwidth_grid, rows=rows)
        if out is None:
            return
    with console.stage("Checksum of the log", quiet=as_json):
        provenance = Provenance(
            command=shlex.join(["kaestat", *context.obj.arguments]),
            source=source,
            sha256=None if log is None else checksum(log),
            seed=seed,
            n_boot=n_boot,
            min_visits=analysis.min_visits,
            versions=versions(),
        )
    if as_json:
        print(to_json(analysis_document(analysis, provenance)))
    if out is None:
        return
    with console.stage(f"Writing to {out}", quiet=as_json):
        written = replace_files(out, lambda folder: write_report(analysis, provenance, folder))
    context.obj.outcome = f"the analysis was complete, and all its files are in {out}"
    if not as_json:
        console.show_written(written)


@app.command()
@interruptible
def bandwidth(
    log: Log = None,
    selector: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(SELECTORS)}.")] = "forward_cv",
    kernel: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(KERNELS)}.")] = "triangular",
    format: Format = "auto",
    hint: Hint = [],  # noqa: B006
    missing: Missing = None,
    n_boot: Annotated[int, typer.Option(min=0, help="Bootstrap draws of prompts behind the standard errors.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    simulated: Simulated = False,
    as_json: Json = False,
) -> None:
    """The bandwidth that LOG asks for, with its standard error and risk path."""
    rewards = _read(log, format, hints_by_name(hint, missing), simulated, quiet=as_json)
    with console.stage("Selecting the bandwidth", quiet=as_json):
        selection = select_bandwidth(rewards, selector, kernel, n_boot=n_boot, seed=seed)
    if as_json:
        document = {
            "bandwidth": selection.bandwidth,
            "se": selection.se,
            "time_axis": selection.time_axis,
            "selector": selection.selector,
            "kernel": kernel,
            "path": selection.path.to_dict("records"),
        }
        print(to_json(document))
        return
    console.show_selection(selection, kernel)


@app.command()
@interruptible
def methods() -> None:
    """Names of all methods, with their values and sources."""
    console.show_methods()


def _read(log: Path | None, format: str, hints: dict[str, Any], simulated: bool, *, quiet: bool) -> RewardLog:
    if (log is None) != simulated:
        raise ValueError("give a reward log (file or folder), or --simulated, and not both.")
    if log is None:
        return simulated_run().log
    with console.stage(f"Reading {log.name}", quiet=quiet):
        return read_log(log, format=format, **hints)


def _progress(baselines: Sequence[Baseline]) -> Iterable[Baseline]:
    screen = console.STDERR
    if not screen.is_terminal:  # rich before 15 writes an empty line even where it is disabled
        return baselines
    return track(baselines, "Replaying the log", console=screen, transient=True)
