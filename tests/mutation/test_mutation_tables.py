"""Mutation testing itself: the faults are those that are promised, and no survivor goes unexplained."""

import ast
import json
from pathlib import Path

import pandas as pd
import pytest

from tests.mutation.mutation_operators import mutations
from tests.mutation.mutation_tables import KILLED, SETTLED, Outcome, read_rows, write_tables
from tests.mutation.tested_modules import TESTED

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "results" / "mutation"

CASES = {
    "u < 1": {("comparison", "u < 1", "u <= 1"), ("constant", "1", "2")},
    "u in v": {("comparison", "u in v", "u not in v")},
    "a * -b": {("arithmetic", "a * -b", "a / -b"), ("arithmetic", "-b", "b")},
    "n += 0.5": {("arithmetic", "n += 0.5", "n -= 0.5"), ("constant", "0.5", "1.0")},
    "a and not b": {("boolean", "a and (not b)", "a or not b"), ("boolean", "not b", "b")},
    "x = 0.0": {("constant", "0.0", "1.0")},
    "x = True": {("constant", "True", "False")},
    "xp.max(x, axis=y)": {
        ("counterpart", "xp.max", "xp.min"),
        ("keyword", "xp.max(x, axis=y)", "xp.max(x)"),
        ("statement", "xp.max(x, axis=y)", "pass"),
    },
    "a if b else c": {("condition", "a if b else c", "a if not b else c")},
    "def f(x: list[1]) -> 2:\n    return x": {("return", "return x", "return None")},
    "def f() -> None:\n    return None": set(),
    "raise ValueError(f'{a + 1} is less than {2}')": {
        ("statement", "raise ValueError(f'{a + 1} is less than {2}')", "pass")
    },
    "@dataclass(frozen=True)\nclass C:\n    'Text of 1.'\n    x: float": set(),
}


@pytest.mark.parametrize("source", CASES)
def test_faults_of_a_line_are_those_promised(source):
    found = {(fault.operator, fault.before, fault.after) for fault in mutations(ast.parse(source))}
    assert found == CASES[source]


@pytest.mark.parametrize("module", ["kaestat/kernels.py", "kaestat/baselines/kae_eb.py"])
def test_every_fault_changes_the_module_and_nothing_but_its_own_place(module):
    tree = ast.parse((ROOT / module).read_text())
    original = ast.unparse(tree).splitlines()
    faults = mutations(tree)
    assert len(faults) > 100
    for fault in faults:
        changed = ast.unparse(fault.apply(tree)).splitlines()
        compile("\n".join(changed), module, "exec")
        assert changed != original
        assert fault.line in fault.statement
    assert ast.unparse(tree).splitlines() == original


def test_faults_know_whether_they_stand_in_a_function():
    source = "x = 1\nclass C:\n    y = 2\n    def f(self, z=3):\n        return 4"
    where = {fault.before: fault.in_function for fault in mutations(ast.parse(source)) if fault.operator == "constant"}
    assert where == {"1": False, "2": False, "3": False, "4": True}


def test_verdicts_stay_and_survivors_that_die_name_their_test(tmp_path):
    def outcome(before, survived, by=""):
        return Outcome("kaestat/logs/risk.py", 7, "constant", before, "2", survived, by, 3, "x = 1", 0)

    def verdicts():
        rows = read_rows(tmp_path / "survivors.csv", "kaestat/logs/risk.py").values()
        return {row["before"]: (row["verdict"], row["why"]) for row in rows}

    settings = {"budget": 1.0, "share": 0.5, "seed": 0}
    first = [outcome("1", True), outcome("3", True), outcome("5", False, "a test")]
    write_tables(tmp_path, "kaestat/logs/risk.py", first, again=False, **settings)
    assert verdicts() == {"1": ("open", ""), "3": ("open", "")}

    table = pd.read_csv(tmp_path / "survivors.csv", dtype=str, keep_default_na=False)
    table.loc[table["before"] == "1", ["verdict", "why"]] = ["equivalent", "1 = 2 here"]
    table.to_csv(tmp_path / "survivors.csv", index=False)
    again = [outcome("1", True), outcome("3", False, "a new test")]
    write_tables(tmp_path, "kaestat/logs/risk.py", again, again=True, **settings)
    assert verdicts() == {"1": ("equivalent", "1 = 2 here"), "3": (KILLED, "a new test")}
    entry = json.loads((tmp_path / "provenance.json").read_text())["modules"]["kaestat/logs/risk.py"]
    assert (entry["faults"], entry["killed"], entry["share"]) == (3, 2, 0.5)
    assert entry["verdicts"] == {"equivalent": 1, KILLED: 1}


def test_every_survivor_is_explained():
    survivors = pd.read_csv(TABLES / "survivors.csv", dtype=str, keep_default_na=False)
    assert set(survivors["verdict"]) <= {*SETTLED, KILLED}
    assert (survivors["why"].str.len() > 10).all()
    faults = pd.read_csv(TABLES / "faults.csv", dtype=str, keep_default_na=False)
    assert (faults["survived"] == "True").sum() == (survivors["verdict"] != KILLED).sum()
    assert set(faults["module"]) <= set(TESTED)
