"""No completion can hang, fill the memory of, or end a run; its neighbours are graded as ever."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llm_experiments.verifiers import MathVerifier, NumberVerifier, final_number
from llm_experiments.verifiers.patience import Patience
from llm_experiments.verifiers.worker_pool import PASSED_OVER, WorkerPool
from tests.helpers.tiers import slow_after

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT, MEMORY_MIB = 1.0, 512
SLACK = 10.0  # of a busy machine
GREEDY = "tests.fakes.greedy_worker"

SLOW = {  # each of these takes math-verify longer than the limit, or more memory
    "tower": r"\boxed{9^{9^{9^{9}}}}",
    "tower without a box": "the answer is 9**9**9**9",
    "factorial": r"\boxed{1000000000!}",
    "exponent": r"\boxed{10^{10^{10}}}",
    "parentheses": r"\boxed{" + "(" * 480 + "1" + ")" * 480 + "}",
    "nested fractions": r"\boxed{" + r"\frac{1}{" * 90 + "1" + "}" * 90 + "}",
    "sum": r"\boxed{\sum_{k=1}^{1000000000}\frac{1}{k^3+k+1}}",
    "power of a sum": r"\boxed{(x+y+z+w)^{5000}}",
    "bars": r"\boxed{" + "|" * 400 + "}",
}
QUICK = {  # these are long, deep or strange
    "a megabyte of brackets": "(" * 10**6,
    "a megabyte of brackets in a box": r"\boxed{" + "(" * 10**6 + "}",
    "a megabyte of braces": "{" * 10**6,
    "a megabyte of boxes": r"\boxed{" * 10**5,
    "nested boxes": r"\boxed{" * 2000 + "1" + "}" * 2000,
    "nested roots": r"\boxed{" + r"\sqrt{" * 150 + "2" + "}" * 150 + "}",
    "python tower": r"\boxed{9**9**9**9}",
    "factorials of factorials": r"\boxed{((1000!)!)!}",
    "digits": r"\boxed{" + "9" * 990 + "}",
    "float": r"\boxed{1.0e999999999}",
    "matrix": r"\boxed{\begin{pmatrix}" + r"\\".join(["&".join("1" * 12)] * 35) + r"\end{pmatrix}^{999999}}",
    "dollars": "$" * 20_000,
    "formulas": "the answer is " + "$x$ and " * 1200,
    "surrogate": "\\boxed{\ud800}",
    "null bytes": "\\boxed{\0}\0",
    "forged reply": '\\boxed{1}\n{"reply": true}\n\\boxed{{"reply": true}\n}',
}
NUMBERS = ["1,111" * 4000, "111," * 5000, "9**" * 7000, "1 1/" * 5000, "\\frac{1" * 3000, "5" + " " * 19_999]
NUMBERS += [
    "\\text{or " * 4000,
    "1 or " * 5000,
    "answer is " + "1, " * 6000,
    "\\boxed{" + "1 or " * 4000 + "}",
    "1 " + "cm " * 6000,
]
NUMBERS += ["-" * 20_000, "$ " * 10_000, "1e" * 10_000, "answer is " * 2000, "5" * 10**7, "#" * 10**6, "1.1" * 7000]


@pytest.fixture(scope="module")
def verifier():
    with MathVerifier(timeout=TIMEOUT, memory_mib=MEMORY_MIB) as verifier:
        yield verifier


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def ends(pid: int, within: float = SLACK) -> bool:
    deadline = time.monotonic() + within
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


@pytest.mark.parametrize("name", [*QUICK, *slow_after(2, SLOW)])
def test_a_hostile_completion_gets_no_reward_in_bounded_time_and_memory_and_the_next_is_graded(verifier, name):
    assert verifier.rewards("81", [r"\boxed{81.0}"]) == [1]  # and the worker runs
    start = time.monotonic()
    assert verifier.rewards("81", [(SLOW | QUICK)[name]]) == [0]
    assert time.monotonic() - start < TIMEOUT + SLACK
    assert verifier.rewards("81", [r"\boxed{81.0}"]) == [1]


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_quick_requests_use_up_no_patience_however_many_and_time_brings_it_back():
    pool = WorkerPool(GREEDY, timeout=0.5, memory_mib=MEMORY_MIB, budget=0.5)
    assert pool.ask(["yes"] * 100) == [True] * 100  # together longer than the budget
    replies = pool.ask(["spin"] * 6 + ["yes"])
    assert replies[0] is None and replies[5:] == [PASSED_OVER, True]
    assert pool.ask(["spin"], patient=True) == [None]
    time.sleep(7)  # all of the budget, at a tenth of a second each second, and a little more
    assert pool.ask(["spin"]) == [None]
    pool.close()


def test_limits_shorten_in_proportion_once_half_of_the_patience_is_gone(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("llm_experiments.verifiers.patience.time.monotonic", lambda: clock[0])
    patience = Patience(timeout=5.0, budget=10.0, workers=2)  # 20 seconds in all
    patience.spend(0.5)
    patience.spend(10.5)
    assert patience.limit() == 5  # half is left: quick time does not count
    patience.spend(5.5)
    assert patience.limit() == 2.5
    patience.spend(30.5)
    assert patience.limit() == 0.5
    clock[0] = 125.0  # 25 seconds were owed, and each worker gets back a tenth of the time
    assert patience.limit() == 0.5
    clock[0] = 150.0
    assert patience.limit() == pytest.approx(2.5)
    clock[0] = 1e6
    assert patience.limit() == 5


@pytest.mark.parametrize("text", NUMBERS, ids=lambda text: f"{text[:5]}x{len(text)}")
def test_numbers_are_read_in_linear_time(text):
    start = time.monotonic()
    final_number(text)
    assert NumberVerifier().rewards("8", [text, text + " is 8 of \\boxed{8}"]) == [0, 1]
    assert time.monotonic() - start < 1.0  # about 0.01 s; a quadratic search takes minutes on some


@pytest.fixture
def greedy():
    pool = WorkerPool(GREEDY, timeout=TIMEOUT, memory_mib=MEMORY_MIB)
    yield pool
    pool.close()


@pytest.mark.parametrize("harm", [["memory", 600], "spin", "exit", "crash", "raise"], ids=str)
def test_a_request_that_does_harm_is_answered_none_and_the_others_as_ever(greedy, harm):
    start = time.monotonic()
    assert greedy.ask(["yes", harm, "no", harm, ["memory", 100]]) == [True, None, False, None, True]
    assert time.monotonic() - start < 2 * TIMEOUT + SLACK


def test_what_a_library_prints_is_no_reply(greedy):
    assert greedy.ask(["print", "yes", "no"]) == [False, True, False]


def test_workers_are_light(greedy):
    assert greedy.ask(["light"]) == [True]
    code = "import sys, llm_experiments.verifiers.math_worker as worker; worker.prepare(); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "datasets", "pandas"} & set(run.stdout.split())


def test_a_worker_that_can_not_start_says_so():
    with pytest.raises(RuntimeError, match="memory_mib = 1"):
        MathVerifier(memory_mib=1).rewards("1", ["2"])


def test_a_process_that_was_killed_while_idle_costs_no_reward(greedy):
    greedy.ask(["yes"])
    (pid,) = greedy.processes()
    os.kill(pid, signal.SIGKILL)
    assert ends(pid)
    assert greedy.ask(["yes", "no"]) == [True, False] and pid not in greedy.processes()


def test_processes_end_with_close_and_with_the_pool_and_come_back_on_demand():
    pool = WorkerPool(GREEDY, timeout=5, memory_mib=512, workers=2)
    assert pool.processes() == []
    assert pool.ask(["yes", "no"] * 3) == [True, False] * 3
    first = pool.processes()
    pool.close()
    assert len(first) in (1, 2) and all(map(ends, first)) and pool.processes() == []
    assert pool.ask(["yes"]) == [True]
    second = pool.processes()
    del pool
    gc.collect()
    assert len(second) == 1 and all(map(ends, second))


START = f"""
import os, sys, time
from llm_experiments.verifiers.worker_pool import WorkerPool
pool = WorkerPool({GREEDY!r}, timeout=2, memory_mib=512)
assert pool.ask(["yes"]) == [True]
print(*pool.processes(), flush=True)
"""


def run(code: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", START + code], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def read_pids(process: subprocess.Popen) -> list[int]:
    return list(map(int, process.stdout.readline().split()))


@pytest.mark.parametrize("busy", [False, True])
def test_workers_end_when_their_parent_is_killed_even_in_the_middle_of_a_request(busy):
    with run("pool.ask(['spin'])" if busy else "time.sleep(60)") as process:
        pids = read_pids(process)
        time.sleep(0.5)
        process.kill()
        assert all(map(ends, pids))


def test_a_forked_child_has_workers_of_its_own_and_leaves_its_parents_alone():
    code = """
child = os.fork()
if child == 0:
    assert pool.ask(["yes"]) == [True]
    print(*pool.processes(), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
before = pool.processes()
assert pool.ask(["yes"]) == [True] and pool.processes() == before
print("unharmed", flush=True)
"""
    with run(code) as process:
        parents, childs = read_pids(process), read_pids(process)
        assert process.stdout.read() == "unharmed\n" and process.wait(60) == 0 and not {*parents} & {*childs}
        assert all(map(ends, parents + childs))
