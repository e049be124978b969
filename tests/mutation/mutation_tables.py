"""The tables of mutation testing: every fault with its outcome, and every survivor with the reason."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from mutation_operators import Mutation

from kaestat.provenance import checked_out_commit, checksum, versions
from kaestat.storage import write_atomically

ROOT = Path(__file__).parents[2]
KEY = ["module", "code", "operator", "before", "after", "occurrence"]
SURVIVOR_COLUMNS = ["module", "line", "operator", "before", "after", "verdict", "why", "code", "occurrence"]
KILLED = "killed by a test added"


@dataclass(frozen=True)
class Outcome:
    """What became of one fault; ``by`` names the test that failed, or the status of a process that did not end."""

    module: str
    line: int
    operator: str
    before: str
    after: str
    survived: bool
    by: str
    tests: int
    code: str

    @classmethod
    def of(cls, module: str, code: str, fault: Mutation, survived: bool, by: str, tests: int) -> Outcome:
        """The outcome of a fault in a line of code, with ``tests`` tests reaching it."""
        operator, before, after = fault.operator, fault.before, fault.after
        if operator in ("condition", "statement"):  # compound statements: the line says enough
            before, after = before[:100], after[:100]
        return cls(module, fault.line, operator, before, after, survived, by, tests, code.strip())


def write_tables(folder: Path, module: str, outcomes: list[Outcome], **settings: float) -> None:
    """Put a module's outcomes in place of its earlier ones, keeping verdicts on survivors that are still there."""
    faults = _keyed(pd.DataFrame([asdict(o) for o in outcomes], columns=[f.name for f in fields(Outcome)]))
    _replace(folder / "faults.csv", module, faults.drop(columns="occurrence"))

    path = folder / "survivors.csv"
    earlier = pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else None
    known = {} if earlier is None else {tuple(row[KEY]): row for _, row in earlier.iterrows()}
    rows = []
    for _, fault in faults.iterrows():
        before = known.get(tuple(fault[KEY].astype(str)))
        if fault["survived"]:
            kept = before is not None and before["verdict"] != KILLED
            verdict, why = (before["verdict"], before["why"]) if kept else ("open", "")
        elif before is not None:
            verdict, why = KILLED, fault["by"]
        else:
            continue
        rows.append({**fault, "verdict": verdict, "why": why})
    _replace(path, module, pd.DataFrame(rows, columns=SURVIVOR_COLUMNS))

    path = folder / "provenance.json"
    provenance = json.loads(path.read_text()) if path.exists() else {"modules": {}}
    verdicts = pd.Series([row["verdict"] for row in rows], dtype=str).value_counts()
    provenance["modules"][module] = {
        "sha256": checksum(ROOT / module),
        "commit": checked_out_commit(ROOT),
        **settings,
        "faults": len(faults),
        "killed": int((~faults["survived"]).sum()),
        "survived": int(faults["survived"].sum()),
        "verdicts": {str(verdict): int(count) for verdict, count in sorted(verdicts.items())},
    }
    tools = {name: version(name) for name in ("pytest", "hypothesis", "coverage")}
    provenance |= {"tool": "tests/mutation/run_mutation.py", "versions": versions() | tools}
    write_atomically(path, (json.dumps(provenance, indent=2, sort_keys=True) + "\n").encode())


def _keyed(faults: pd.DataFrame) -> pd.DataFrame:
    occurrence = faults.groupby(KEY[:-1]).cumcount()
    return faults.assign(occurrence=occurrence)


def _replace(path: Path, module: str, rows: pd.DataFrame) -> None:
    kept = pd.read_csv(path, dtype=str, keep_default_na=False) if path.exists() else rows[:0]
    table = pd.concat([kept[kept["module"] != module].astype(object), rows.astype(object)], ignore_index=True)
    table = table.sort_values("module", kind="stable")
    write_atomically(path, table.to_csv(index=False, lineterminator="\n").encode())
