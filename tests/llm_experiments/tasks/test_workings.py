"""The world of workings: values spread as in the real run, text that matters, splits apart, answers one can say."""

import numpy as np
import pytest
from scipy.stats import betabinom

from llm_experiments.config import TaskConfig
from llm_experiments.tasks import load_task, world_examples
from llm_experiments.tasks.cells import KINDS
from llm_experiments.tasks.workings import FIRST_VISITS, LENGTH, LETTERS, examples, kind_of, workings

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
    answers = [{problem.prompt[:2]: problem.answer for problem in problems} for problems in splits]
    assert answers[0] == answers[1] == answers[2]


def test_worlds_differ_and_come_back():
    assert workings(0).problems == workings(0).problems != workings(1).problems
    assert examples(50, seed=0) == examples(50, seed=0) != examples(50, seed=1)
    assert examples(50, seed=0, world=1) != examples(50, seed=0)


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
    assert np.mean(by_kind["hopeless"]) < 1 / 16 < np.mean(by_kind["wrong_mode"]) < 0.46
    assert 0.46 < np.mean(by_kind["right_mode"]) < 15 / 16 < np.mean(by_kind["solved"])
    assert [kind_of(chance) for chance in (0.06, 0.07, 0.45, 0.47, 0.93, 0.94)] == [
        *("hopeless", "wrong_mode", "wrong_mode", "right_mode", "right_mode", "solved")
    ]


def test_hopeless_problems_can_be_solved(said):
    """Rarely, in every world: their answers are letters as all answers are."""
    for problems, _, rewards in said.values():
        hopeless = np.array([problem.level == "hopeless" for problem in problems])
        assert 0 < rewards[hopeless].mean() < 1 / 16
        assert all(problem.answer in LETTERS for problem in problems)


def test_a_working_matters(said):
    """Two workings' halves, by the number of letters that help: the better half is right far more often."""
    problems, texts, rewards = said[0]
    chosen = [row for row, problem in enumerate(problems) if problem.level in ("wrong_mode", "right_mode")]
    first = np.array([LETTERS.index(problems[row].prompt[0]) for row in chosen])
    counts = np.array([[texts[row][:LENGTH].count(letter) for letter in LETTERS] for row in chosen])
    names = np.array([problems[row].prompt[:2] for row in chosen])
    reward = rewards[chosen]
    for name in dict.fromkeys(names):  # what a problem's workings and rewards are on average says nothing here
        counts[names == name] = counts[names == name] - counts[names == name].mean(0)
        reward[names == name] -= reward[names == name].mean()
    explained = []
    for letter in range(len(LETTERS)):
        own = first == letter
        slope, *_ = np.linalg.lstsq(counts[own], reward[own], rcond=None)
        explained.append(1 - np.var(reward[own] - counts[own] @ slope) / np.var(reward[own]))
    assert np.mean(explained) > 0.3
    shuffled = np.random.default_rng(0).permutation(reward)  # the negative control
    slope, *_ = np.linalg.lstsq(counts, shuffled, rcond=None)
    assert 1 - np.var(shuffled - counts @ slope) / np.var(shuffled) < 0.02


def test_workings_are_uncertain_and_follow_from_the_prompt(said):
    """No working comes twice, and problems' letters differ."""
    _, texts, _ = said[0]
    assert len({text[:LENGTH] for text in texts}) > 0.99 * len(texts)
    shares = {}
    for problem, text in zip(said[0][0], texts, strict=True):
        shares.setdefault(problem.prompt[:2], []).append([text[:LENGTH].count(letter) for letter in LETTERS])
    means = np.array([np.mean(each, 0) / LENGTH for each in shares.values()])
    assert means.std(0).mean() > 0.03 and means.max(1).mean() < 0.5


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("abc=k", 1.0),
        ("=k", 1.0),
        ("ab=c=k", 1.0),
        ("k", 0.0),
        ("abc=", 0.0),
        ("abc=kk", 0.0),
        ("abc=d", 0.0),
        ("", 0.0),
    ],
)
def test_only_the_answer_after_a_working_is_right(text, reward):
    task = workings(0)
    problem = next(each for each in task.problems if each.answer == "k")
    assert task.rewards(problem, [text]) == [reward]


def test_workings_have_the_length_that_is_asked_for():
    assert {len(text) for _, text in examples(20, seed=0, length=16)} == {18}
    assert {len(text) for _, text in world_examples(TaskConfig(name="workings"), 20, seed=0)} == {LENGTH + 2}


def test_wrong_worlds_are_refused():
    with pytest.raises(ValueError, match="split must be one of"):
        workings(0, "dev")
    with pytest.raises(ValueError, match="length must be 2 or more"):
        workings(0, length=1)
    with pytest.raises(ValueError, match="no path and no split"):
        load_task(TaskConfig(name="workings", split="train"), seed=0)
