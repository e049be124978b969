"""Mutation testing: put every fault of `mutation_operators` into a module, and see whether its tests notice.

    python tests/mutation/run_mutation.py kaestat/kernels.py kaestat/logs/risk.py

The tests of a module are collected once. Each fault is then put into the living functions of a forked process, which
runs the tests that reach the statement, quickest first, until one fails. Faults outside functions, and survivors in
lines that run while modules are imported or tests collected, get a process that imports everything afresh.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from tests.mutation.mutation_operators import Mutation, mutations
from tests.mutation.mutation_tables import KILLED, Key, Outcome, count_verdicts, key_of, read_rows, write_tables
from tests.mutation.tested_modules import TESTED

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "scipy.integrate", "scipy.optimize", "scipy.stats", "pandas", "torch", "array_api_compat.torch")
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutation"]
PASSED, FAILED, BROKEN = 0, 1, 2  # exit statuses of a forked process
EXAMPLES = 10  # that Hypothesis draws for each of its tests
MEMORY = 8 * 2**30  # bytes

_report = -1  # file that a forked process answers in


def in_fork(work: Callable[[], None], cpu_seconds: float) -> tuple[int, dict]:
    """Do some work in a silent forked process with bounded time and memory; its exit status and what it told."""
    global _report
    with tempfile.TemporaryFile() as report:
        pid = os.fork()
        if pid == 0:
            _report = report.fileno()
            try:
                silent = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silent, 1)
                os.dup2(silent, 2)
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu_seconds),) * 2)
                resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
                signal.alarm(math.ceil(20 * cpu_seconds))
                work()
                os._exit(PASSED)
            finally:
                os._exit(BROKEN)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        report.seek(0)
        return status, json.loads(report.read() or b"{}")


def tell(message: dict) -> None:
    """Answer the process that forked this one."""
    os.write(_report, json.dumps(message).encode())


class Session:
    """A pytest plugin that hands the collected tests of a module to ``loop`` in place of running them."""

    def __init__(self, module: str, loop: Callable[[dict[str, pytest.Item]], None]):
        self.module, self.loop = module, loop

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.loop({item.nodeid: item for item in session.items if TESTED[self.module].belongs(item.nodeid)})
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            tell({"by": report.nodeid})
            os._exit(FAILED)


def run_tests(items: list[pytest.Item], before: Callable[[str], None] = str) -> dict[str, float]:
    """Run tests in this order; CPU seconds of each."""
    cost = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        before(item.nodeid)
        begun = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        cost[item.nodeid] = time.process_time() - begun
    return cost


@dataclass(frozen=True)
class Survey:
    """What the tests of a module do without a fault: CPU seconds of each, the tests that reach each line, and the
    lines that run before any test does."""

    cost: dict[str, float]
    lines: dict[int, list[str]]
    imported: set[int]

    def tests_for(self, fault: Mutation, budget: float) -> list[str]:
        """Tests that reach the fault, quickest first, within a budget of CPU seconds.

        A fault that the import runs through may be noticed by any test: a class's defaults leave no trace of lines.
        """
        reaching = set(self.cost)
        if fault.in_function and not self.at_import(fault):
            reaching = {test for line in fault.statement for test in self.lines.get(line, [])}
        chosen, spent = [], 0.0
        for test in sorted(reaching, key=lambda name: (self.cost[name], name)):
            spent += self.cost[test]
            if chosen and spent > budget:
                break
            chosen.append(test)
        return chosen

    def at_import(self, fault: Mutation) -> bool:
        return not self.imported.isdisjoint(fault.statement)

    def limit(self, tests: list[str]) -> float:
        """CPU seconds after which a fault is taken to have stopped the tests from ending."""
        return 3 + 5 * sum(self.cost[test] for test in tests)


@dataclass(frozen=True)
class Target:
    """A module, its source as it was at first, and the pytest arguments that collect its tests."""

    module: str
    source: str

    @property
    def path(self) -> str:
        return str(ROOT / self.module)

    @property
    def name(self) -> str:
        return self.module.removesuffix(".py").replace("/", ".")

    @property
    def arguments(self) -> list[str]:
        return [*OPTIONS, *TESTED[self.module].arguments]

    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    def survey(self, items: dict[str, pytest.Item], imported: set[int]) -> Survey:
        def work() -> None:
            measured.start()
            cost = run_tests(list(items.values()), measured.switch_context)
            measured.stop()
            tell({"cost": cost, "lines": measured.get_data().contexts_by_lineno(self.path)})

        measured = _coverage(self.path)
        status, told = in_fork(work, 1800)
        if status != PASSED:
            tell({"by": told.get("by", f"status {status}")})
            os._exit(FAILED)
        lines = {int(line): [test for test in tests if test] for line, tests in told["lines"].items()}
        return Survey(told["cost"], lines, imported)

    def living_functions(self) -> dict[str, types.FunctionType]:
        """Of the module as imported last; functions of an earlier import can still be alive."""
        module = vars(sys.modules[self.name])
        functions = [f for f in gc.get_objects() if isinstance(f, types.FunctionType) and f.__globals__ is module]
        return {f.__code__.co_qualname: f for f in functions if f.__code__.co_filename == self.path}

    def test_in_place(self, faults: list[Mutation], budget: float) -> None:
        """Collect once; tell the survey and, for each fault, the status of its process and the test that failed."""

        def loop(items: dict[str, pytest.Item]) -> None:
            importing.stop()
            found = self.survey(items, set(importing.get_data().lines(self.path) or []))
            functions, tree, answers = self.living_functions(), self.tree(), []
            gc.freeze()  # or every fork copies what the collector touches
            for fault in faults:
                tests = found.tests_for(fault, budget)

                def work(fault: Mutation = fault, tests: list[str] = tests) -> None:
                    for code in _codes(compile(fault.apply(tree), self.path, "exec")):
                        if code.co_qualname in functions:
                            functions[code.co_qualname].__code__ = code
                    run_tests([items[test] for test in tests])

                answers.append(in_fork(work, found.limit(tests)) if fault.in_function else (PASSED, {}))
            tell({"cost": found.cost, "lines": found.lines, "imported": sorted(found.imported), "answers": answers})

        _forget_kaestat()
        importing = _coverage(self.path)
        importing.start()
        pytest.main(self.arguments, plugins=[Session(self.module, loop)])

    def test_afresh(self, fault: Mutation, tests: list[str]) -> None:
        """Import the module with the fault in it, collect, and run the tests."""

        def loop(items: dict[str, pytest.Item]) -> None:
            if not items.keys() >= set(tests):
                tell({"by": "the collection of its tests"})
                os._exit(FAILED)
            run_tests([items[test] for test in tests])

        _forget_kaestat()
        sys.meta_path.insert(0, _FaultyLoader(self.name, self.path, fault.apply(self.tree())))
        if pytest.main(self.arguments, plugins=[Session(self.module, loop)]):
            tell({"by": "the import of its tests"})
            os._exit(FAILED)

    def faults(self, share: float, seed: int, only: set[Key] | None) -> list[tuple[Mutation, Outcome]]:
        """The faults to be tried, each as an outcome that is still to come: a random share, or ``only`` those."""
        source, drawn = self.source.splitlines(), random.Random(f"{self.module} {seed}")
        chosen, times = [], Counter()
        for fault in mutations(self.tree()):
            code = source[fault.line - 1].strip()
            same = (code, fault.operator, fault.before, fault.after)
            shown = (text if len(text) <= 100 else text[:99] + "…" for text in same[2:])
            to_come = Outcome(self.module, fault.line, fault.operator, *shown, False, "", 0, code, times[same])
            times[same] += 1
            if (drawn.random() < share) if only is None else (key_of(asdict(to_come)) in only):
                chosen.append((fault, to_come))
        return chosen

    def outcomes(self, budget: float, share: float, seed: int, only: set[Key] | None = None) -> list[Outcome]:
        """Put faults into the module, one after another."""
        chosen = self.faults(share, seed, only)
        faults = [fault for fault, _ in chosen]
        status, told = in_fork(lambda: self.test_in_place(faults, budget), 360_000)
        if status != PASSED or "answers" not in told:
            raise SystemExit(f"{self.module}: its tests do not pass without a fault: {told.get('by', status)}.")
        lines = {int(line): tests for line, tests in told["lines"].items()}
        found, outcomes = Survey(told["cost"], lines, set(told["imported"])), []
        for (fault, to_come), (status, answer) in zip(chosen, told["answers"], strict=True):
            tests = found.tests_for(fault, budget)
            if status == BROKEN or (status == PASSED and (not fault.in_function or found.at_import(fault))):
                status, answer = in_fork(
                    lambda fault=fault, tests=tests: self.test_afresh(fault, tests), 20 + found.limit(tests)
                )
            by = answer.get("by", "" if status == PASSED else f"a process that ended with status {status}")
            outcomes.append(replace(to_come, survived=status == PASSED, by=by, tests=len(tests)))
        return outcomes


class _FaultyLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module):
        super().__init__(name, path)
        self.tree = tree

    def find_spec(self, name: str, path: object = None, target: object = None):
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, name: str) -> types.CodeType:
        return compile(self.tree, self.path, "exec")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _forget_kaestat() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kaestat"]:
        del sys.modules[name]


def _coverage(path: str):
    import coverage

    return coverage.Coverage(include=[path], data_file=None, config_file=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help=f"by default all of: {', '.join(TESTED)}")
    parser.add_argument("--budget", type=float, default=3.0, help="CPU seconds of tests for one fault")
    parser.add_argument("--share", type=float, default=1.0, help="share of the faults that is drawn")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--again", action="store_true", help="only the survivors of the tables that are there")
    parser.add_argument(
        "--count", action="store_true", help="only count the verdicts again, after you have edited them"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "mutation")
    options = parser.parse_args()
    if options.count:
        count_verdicts(options.out)
        return
    os.chdir(ROOT)
    for name in HEAVY:
        importlib.import_module(name)

    from hypothesis import Phase, settings

    # A failure is all that is asked for: no smaller example.
    quick = (Phase.explicit, Phase.generate)
    settings.register_profile("mutation", derandomize=True, deadline=None, max_examples=EXAMPLES, phases=quick)
    for module in options.modules or TESTED:
        begun, only = time.monotonic(), None
        if options.again:
            listed = read_rows(options.out / "survivors.csv", module)
            only = {key for key, row in listed.items() if row["verdict"] != KILLED}
        outcomes = Target(module, Path(module).read_text()).outcomes(options.budget, options.share, options.seed, only)
        settings = {"budget": options.budget, "share": options.share, "seed": options.seed}
        write_tables(options.out, module, outcomes, again=options.again, **settings)
        survivors = sum(outcome.survived for outcome in outcomes)
        print(f"{module}: {len(outcomes)} faults, {survivors} survive ({time.monotonic() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
