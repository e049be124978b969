"""Tasks: generated arithmetic, problem sets, draws."""

from __future__ import annotations

import pytest

from llm_experiments.config import TaskConfig
from llm_experiments.tasks import load_task, open_task, select
from llm_experiments.tasks.arithmetic import arithmetic, examples

KINDS = ["add-1", "sub-2", "mul-1x2"]


def test_arithmetic_answers_are_right_and_problems_distinct():
    task = open_task(TaskConfig(name="arithmetic", n_prompts=1, options={"kinds": KINDS, "style": "bare"}))
    assert len(task.problems) == 100 + 8100 + 900
    assert all(eval(each.prompt.rstrip("=")) == int(each.answer) for each in task.problems)
    assert len({each.id for each in task.problems}) == len({each.prompt for each in task.problems}) == 9100
    assert task.problems[-1] == task.problems[9099] and task.problems[-1].id == "arithmetic/mul-1x2/9*99"


def test_arithmetic_draw_has_equal_shares_of_the_kinds_and_depends_on_the_seed_alone():
    config = TaskConfig(name="arithmetic", n_prompts=31, options={"kinds": KINDS})
    drawn = [each.id for each in load_task(config, seed=3).problems]
    assert drawn == [each.id for each in load_task(config, seed=3).problems]
    assert drawn != [each.id for each in load_task(config, seed=4).problems]
    assert sorted(sum(name in each for each in drawn) for name in KINDS) == [10, 10, 11] and len(set(drawn)) == 31
    assert drawn != sorted(drawn)  # the kinds are mixed


def test_a_small_kind_is_used_up_before_a_draw_is_refused():
    task = arithmetic(["add-1", "add-2"])
    levels = [each.level for each in select(task, 1000, seed=0).problems]
    assert (levels.count("add-1"), levels.count("add-2")) == (100, 900)
    with pytest.raises(ValueError, match=r"n_prompts = 8201 .* 8200"):
        select(task, 8201, seed=0)
    assert select(task, None, seed=0) is task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kinds": ["div-1"]}, "div-1"),
        ({"kinds": ["add-9"]}, "add-9"),
        ({"kinds": "add-1"}, "list"),
        ({"kinds": ["add-1", "add-1"]}, "different"),
        ({"style": "prose"}, "bare, question"),
        ({"template": "{left} and {right}"}, "{sign}"),
        ({"level": 3}, "level"),
    ],
)
def test_wrong_options_of_arithmetic_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        load_task(TaskConfig(name="arithmetic", n_prompts=1, options=options), seed=0)


def test_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"sudoku.*arithmetic"):
        load_task(TaskConfig(name="sudoku", n_prompts=1), seed=0)


def test_training_examples_are_right_and_leave_out_what_is_held_out():
    task = select(arithmetic(["add-1", "mul-1x2"], style="bare"), 60, seed=0)
    held_out = {each.id for each in task.problems}
    found = examples(["add-1", "mul-1x2"], 3000, seed=0, exclude=held_out)
    assert found == examples(["add-1", "mul-1x2"], 3000, seed=0, exclude=held_out)
    assert all(str(eval(prompt.rstrip("="))) == answer for prompt, answer in found)
    assert not {prompt for prompt, _ in found} & {each.prompt for each in task.problems}
    assert abs(sum("+" in prompt for prompt, _ in found) - 1500) < 150  # 5 sd
    with pytest.raises(ValueError, match="add-1"):
        examples(["add-1"], 1, seed=0, exclude={each.id for each in arithmetic(["add-1"]).problems})


def test_rewards_of_arithmetic_are_those_of_the_final_number():
    task = arithmetic(["add-2"])
    problem = task.problems[0]
    assert (problem.prompt, problem.answer) == ("What is 10 + 10? Answer with a number only.", "20")
    assert task.rewards(problem, ["20", "10 + 10 = 20.", "It is 200", "10 + 10", ""]) == [1, 1, 0, 0, 0]
