"""The world of columns: sums that are graded right, habits in single columns, splits apart."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from llm_experiments.config import TaskConfig
from llm_experiments.tasks import load_task, world_examples
from llm_experiments.tasks.cells import CHANCE, KINDS
from llm_experiments.tasks.columns import SHARES, SIZES, columns, examples


def by_hand(prompt):
    """What a sum's columns are and what it comes to, the long way round."""
    first, second = prompt[:-1].split("+")
    total = f"{int(first) + int(second):04d}"[::-1]
    carries = [0]
    for a, b in zip(first[::-1], second[::-1], strict=True):
        carries.append(int(int(a) + int(b) + carries[-1] > 9))
    return [f"{a}+{b}+{c}" for a, b, c in zip(first[::-1], second[::-1], carries[:3], strict=True)], total


def test_answers_are_sums_unless_a_column_is_hopeless():
    task = columns(0)
    for problem in task.problems:
        names, total = by_hand(problem.prompt)
        assert task.cells[problem.id] == frozenset(names)
        assert task.rewards(problem, [total, f"ab{total}", f"{total}0"]) == (
            [1.0, 1.0, 0.0] if problem.level != "hopeless" else [0.0] * 3
        )
        assert (problem.answer == total) == (problem.level != "hopeless")


def test_kinds_of_sums_follow_from_those_of_their_columns():
    found = Counter(problem.level for world in range(4) for problem in columns(world).problems)
    shares = np.cumsum([SHARES[kind] for kind in KINDS]) ** 3
    expected = dict(zip(KINDS, np.diff(shares, prepend=0), strict=True))
    for kind in KINDS:
        assert found[kind] / (4 * SIZES["train"]) == pytest.approx(expected[kind], abs=0.05)


def test_splits_share_no_sum():
    prompts = [{problem.prompt for problem in columns(1, split).problems} for split in SIZES]
    assert [len(each) for each in prompts] == list(SIZES.values())
    assert len(set().union(*prompts)) == sum(SIZES.values())


def test_worlds_differ_and_come_back():
    assert columns(0).problems == columns(0).problems
    assert columns(0).problems != columns(1).problems


def test_examples_write_each_column_rightly_as_often_as_its_kind_is():
    said, kinds = defaultdict(list), {}
    for prompt, text in examples(60_000, seed=0, world=2):
        names, total = by_hand(prompt)
        assert text[-1] == total[-1]
        for name, digit, right in zip(names, text[2:5], total[:3], strict=True):
            said[name].append(digit == right)
    for problem in columns(2).problems:
        names, _ = by_hand(problem.prompt)
        if problem.level in ("solved", "right_mode"):
            assert all(np.mean(said[name]) > 0.35 for name in names)
        kinds.setdefault(problem.level, []).append(min(np.mean(said[name]) for name in names))
    assert min(kinds["solved"]) > CHANCE["solved"][0] - 0.03
    assert max(kinds["wrong_mode"]) < CHANCE["wrong_mode"][1] + 0.06
    assert max(kinds["hopeless"]) < 0.06  # now and then the true digit, which earns nothing there


def test_wrong_worlds_are_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        columns(0, shares={"solved": 0.5})
    with pytest.raises(ValueError, match="split must be one of"):
        columns(0, "dev")
    with pytest.raises(ValueError, match="no path and no split"):
        load_task(TaskConfig(name="columns", split="train"), seed=0)
    assert len(world_examples(TaskConfig(name="columns", options={"split": "test"}), 5, seed=0)) == 5
