"""The world of workings: values spread as in the real run, every letter counts a little, the hopeless can be said."""

import hashlib
import json

import numpy as np
import pytest
from scipy.stats import betabinom

from llm_experiments.config import TaskConfig
from llm_experiments.tasks import load_task
from llm_experiments.tasks.base import Problem
from llm_experiments.tasks.cells import KINDS
from llm_experiments.tasks.columns import columns
from llm_experiments.tasks.columns import examples as column_examples
from llm_experiments.tasks.workings import FIRST_VISITS, WorkingsTask, examples, kind_of, workings

WORLDS = range(4)


@pytest.fixture(scope="module")
def said():
    """Name, right answer, working and reward of many examples of each world."""
    found = {}
    for world in WORLDS:
        task = workings(world)
        asked = {problem.prompt[:2]: problem for problem in task.problems}
        rows = examples(40_000, seed=world, world=world)
        problems = [asked[prompt[:2]] for prompt, _ in rows]
        rewards = np.array(task.grade(problems, [text for _, text in rows]))
        found[world] = problems, [text for _, text in rows], rewards
    return found


def values(said, world):
    """Share of right answers by problem's name."""
    problems, _, rewards = said[world]
    names = np.array([problem.prompt[:2] for problem in problems])
    return {name: rewards[names == name].mean() for name in dict.fromkeys(names)}


def test_splits_share_names_and_no_prompt():
    splits = [workings(1, split).problems for split in ("train", "validation", "test")]
    prompts = [{problem.prompt for problem in problems} for problems in splits]
    assert [len(each) for each in prompts] == [2048, 256, 256]
    assert not prompts[0] & prompts[1] and not prompts[0] & prompts[2] and not prompts[1] & prompts[2]
    bars = [{problem.prompt[:2]: problem.answer for problem in problems} for problems in splits]
    assert bars[0] == bars[1] == bars[2]


@pytest.mark.parametrize(
    ("world", "made", "digest"),
    [(columns, column_examples, "eeb3f2b2105579bd"), (workings, examples, "d767c9108f28c059")],
    ids=["columns", "workings"],
)
def test_worlds_are_those_of_the_committed_studies_and_differ_from_each_other(world, made, digest):
    """A change here makes results/studies/columns or results/studies/workings unreproducible."""
    content = [(problem.prompt, problem.answer, problem.level) for problem in world(0).problems]
    whole = json.dumps([content, made(500, seed=0)]).encode()
    assert hashlib.sha256(whole).hexdigest()[:16] == digest
    assert world(0).problems != world(1).problems
    assert made(50, seed=0) != made(50, seed=1) and made(50, seed=0, world=1) != made(50, seed=0)


def test_values_are_spread_as_in_the_real_run(said):
    """Groups of eight with no right and no wrong completion: .36 and .07 in the real run, .36 and .09 as fitted."""
    assert betabinom.pmf([0, 8], 8, *FIRST_VISITS) == pytest.approx([0.36, 0.09], abs=0.01)
    chances = np.concatenate([list(values(said, world).values()) for world in WORLDS])
    assert chances.mean() == pytest.approx(0.335, abs=0.05)  # over four standard errors of 1,024 problems
    assert ((1 - chances) ** 8).mean() == pytest.approx(0.36, abs=0.06)
    assert (chances**8).mean() == pytest.approx(0.09, abs=0.04)


def test_kinds_are_what_their_problems_values_say(said):
    problems, _, _ = said[0]
    kinds = {problem.prompt[:2]: problem.level for problem in problems}
    by_kind = {kind: [v for name, v in values(said, 0).items() if kinds[name] == kind] for kind in KINDS}
    assert 0 < np.mean(by_kind["hopeless"]) < 1 / 16 < np.mean(by_kind["wrong_mode"]) < 0.46
    assert 0.46 < np.mean(by_kind["right_mode"]) < 15 / 16 < np.mean(by_kind["solved"])
    assert [kind_of(chance) for chance in (0.06, 0.07, 0.45, 0.47, 0.93, 0.94)] == [
        *("hopeless", "wrong_mode", "wrong_mode", "right_mode", "right_mode", "solved")
    ]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("a" * 16 + "b" * 8, 1.0), ("b" * 16 + "a" * 8, 1.0), ("a" * 8 + "b" * 8 + "a" * 8, 0.0), ("a" * 24, 0.0),
        ("b" * 23, 0.0), ("b" * 25, 0.0), ("b" * 23 + "=", 0.0), ("", 0.0),
    ],
)  # fmt: skip
def test_a_working_is_right_if_its_letters_reach_the_bar(text, reward):
    """By stage, a is worth 1, 0.5, 1 and b 2.5, 1, 3. The bar is eight times 4.5: the first two reach it exactly."""
    problem = Problem(id="workings/0/aa0", prompt="aa0=", answer="36")
    worth = [{"a": 1.0, "b": 2.5}, {"a": 0.5, "b": 1.0}, {"a": 1.0, "b": 3.0}]
    task = WorkingsTask((problem,), {}, {problem.id: worth})
    assert task.rewards(problem, [text]) == [reward]


def test_wrong_worlds_are_refused():
    with pytest.raises(ValueError, match="split must be one of"):
        workings(0, "dev")
    for name in ("columns", "workings"):
        with pytest.raises(ValueError, match="no path and no split"):
            load_task(TaskConfig(name=name, split="train"), seed=0)
