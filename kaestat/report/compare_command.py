"""The command ``kaestat compare``. Imports typer and rich."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from kaestat.core.provenance import Provenance, checksum, versions
from kaestat.core.storage import write_atomically
from kaestat.logs.readers import FORMATS, read_log
from kaestat.report import console
from kaestat.report.application import app
from kaestat.report.comparison import compare_runs
from kaestat.report.comparison_page import comparison_page
from kaestat.report.json_output import to_json
from kaestat.report.options import Hint, Json, Missing, check_out, hints_by_name, interruptible

PAGE = "compare.html"


@app.command()
@interruptible
def compare(
    context: typer.Context,
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="Reward log of the first run.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Reward log of the second run.")],
    format: Annotated[str, typer.Option(metavar="NAME", help=f"Format of both: auto, {', '.join(FORMATS)}.")] = "auto",
    hint: Hint = [],  # noqa: B006 - typer copies it
    missing: Missing = None,
    n_boot: Annotated[int, typer.Option(min=0, help="Bootstrap draws of prompts, at least 40; 0: none.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help=f"Folder for {PAGE}.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Two runs beside each other: rewards, dead groups, value errors, completions to the same mean reward."""
    if out is not None:
        check_out(out, needs=("jinja2",))
    hints = hints_by_name(hint, missing)
    names = _names(before, after)
    with console.stage("Reading both logs", quiet=as_json):
        first_log, second_log = (read_log(path, format=format, **hints) for path in (before, after))
    with console.stage("Comparing", quiet=as_json):
        found = compare_runs(first_log, second_log, names, n_boot=n_boot, seed=seed)
    first = Provenance(
        command=shlex.join(["kaestat", *context.obj.arguments]),
        source=names[0],
        sha256=checksum(before),
        seed=seed,
        n_boot=n_boot,
        min_visits=1,
        versions=versions(),
    )
    provenances = first, replace(first, source=names[1], sha256=checksum(after))
    if as_json:
        document = {
            "figures": found.figures.to_dict("records"),
            "errors": found.errors.to_dict("records"),
            "completions": {
                "level": found.level, "share": found.share, "low": found.share_low, "high": found.share_high,
            },
            "provenance": [asdict(provenance) for provenance in provenances],
        }  # fmt: skip
        print(to_json(document))
    else:
        console.show_comparison(found)
    if out is None:
        return
    write_atomically(out / PAGE, comparison_page(found, provenances))
    context.obj.outcome = f"the comparison was complete, and its page is in {out}"
    if not as_json:
        console.show_written([out / PAGE])


def _names(before: Path, after: Path) -> tuple[str, str]:
    """Short names that differ."""
    if before.name != after.name:
        return before.name, after.name
    return str(before), str(after)
