"""The tables of mutation testing: every fault with its outcome, and every survivor with the reason."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from kaestat.provenance import checked_out_commit, checksum, versions
from kaestat.storage import write_atomically

ROOT = Path(__file__).parents[2]
SETTLED = ("equivalent", "accepted")  # verdicts of a person; the third is the machine's
KILLED = "killed by a test added"
SURVIVOR_COLUMNS = ["module", "line", "operator", "before", "after", "verdict", "why", "code", "occurrence"]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one fault.

    Attributes
    ----------
    module, line, operator, before, after
        As in `Mutation`; long code is cut.
    survived : bool
    by : str
        The test that failed, or how the process ended that did not finish its tests.
    tests : int
        How many tests the fault was up against.
    code : str
        The line of the source.
    occurrence : int
        Which of the faults that agree in all of the above it is: lines move, this key stays.
    """

    module: str
    line: int
    operator: str
    before: str
    after: str
    survived: bool
    by: str
    tests: int
    code: str
    occurrence: int


def key_of(row: dict) -> Key:
    """What a fault is known by across versions of the source."""
    return tuple(str(row[name]) for name in ("module", "code", "operator", "before", "after", "occurrence"))


def read_rows(path: Path, module: str) -> dict[Key, dict]:
    """The rows of a table that belong to a module; none where there is no table yet."""
    rows = _read(path)
    return {key_of(row): row for row in rows if row["module"] == module}


def write_tables(folder: Path, module: str, outcomes: list[Outcome], *, again: bool, **settings: float) -> None:
    """Put a module's outcomes in place of its earlier ones; with ``again`` keep those that were not tried again.

    Verdicts on survivors that are still there stay. A survivor that a test now fails for is listed with that test.
    """
    faults = read_rows(folder / "faults.csv", module) if again else {}
    known = read_rows(folder / "survivors.csv", module)
    tried = {key_of(row): {**row, "survived": str(row["survived"])} for row in map(asdict, outcomes)}
    faults |= tried
    _replace(folder / "faults.csv", module, faults, [field.name for field in fields(Outcome)])

    survivors = {}
    for key, fault in faults.items():
        before = known.get(key)
        if fault["survived"] == "True":
            settled = before is not None and before["verdict"] in SETTLED
            verdict, why = (before["verdict"], before["why"]) if settled else ("open", "")
        elif before is not None:
            verdict, why = KILLED, fault["by"]
        else:
            continue
        survivors[key] = {**fault, "verdict": verdict, "why": why}
    _replace(folder / "survivors.csv", module, survivors, SURVIVOR_COLUMNS)

    path = folder / "provenance.json"
    provenance = json.loads(path.read_text()) if path.exists() else {"modules": {}}
    if again:
        settings["share"] = provenance["modules"][module]["share"]
    provenance["modules"][module] = {
        "sha256": checksum(ROOT / module),
        "commit": checked_out_commit(ROOT),
        **settings,
        "faults": len(faults),
        "killed": sum(fault["survived"] == "False" for fault in faults.values()),
    }
    tools = {name: version(name) for name in ("pytest", "hypothesis", "coverage")}
    provenance |= {"tool": "tests/mutation/run_mutation.py", "versions": versions() | tools}
    write_atomically(path, json.dumps(provenance, indent=2, sort_keys=True) + "\n")
    count_verdicts(folder)


def count_verdicts(folder: Path) -> None:
    """Bring the counts up to the verdicts in the table, and write both as Markdown for the documentation to take in."""
    path = folder / "provenance.json"
    provenance = json.loads(path.read_text())
    for module, entry in provenance["modules"].items():
        verdicts = [row["verdict"] for row in read_rows(folder / "survivors.csv", module).values()]
        entry["verdicts"] = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
    write_atomically(path, json.dumps(provenance, indent=2, sort_keys=True) + "\n")

    lines = ["| module | faults tried | share drawn | killed | of these by a test added | equivalent | accepted |"]
    lines += ["|---|--:|--:|--:|--:|--:|--:|"]
    for module, entry in sorted(provenance["modules"].items()):
        counts = [entry["verdicts"].get(verdict, 0) for verdict in (KILLED, *SETTLED)]
        cells = [f"`{module}`", entry["faults"], f"{entry['share']:.0%}", entry["killed"], *counts]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    write_atomically(folder / "summary.md", "\n".join(lines) + "\n")

    lines = ["| where | change | verdict | why |", "|---|---|---|---|"]
    for row in _read(folder / "survivors.csv"):
        if row["verdict"] != KILLED:
            change = f"`{row['before']}` → `{row['after']}`"
            where = row["module"].removeprefix("kaestat/") + ":" + row["line"]
            lines.append(f"| {where} | {change} | {row['verdict']} | {row['why']} |")
    write_atomically(folder / "survivors.md", "\n".join(lines) + "\n")


def _read(path: Path) -> list[dict]:
    return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records") if path.exists() else []


def _replace(path: Path, module: str, rows: dict[Key, dict], columns: list[str]) -> None:
    table = [row for row in _read(path) if row["module"] != module] + list(rows.values())
    table.sort(key=lambda row: (row["module"], int(row["line"])))
    write_atomically(path, pd.DataFrame(table, columns=columns).to_csv(index=False, lineterminator="\n"))
