"""The world of habits: its kinds in their shares, its splits apart, its examples wrong as they are said to be."""

from collections import Counter

import numpy as np
import pytest

from llm_experiments.config import TaskConfig
from llm_experiments.tasks import load_task, world_examples
from llm_experiments.tasks.cells import CHANCE, HABIT, KINDS, draw_cells, exact_rewards
from llm_experiments.tasks.habits import SHARES, examples, habits


def test_kinds_come_in_their_shares():
    problems = habits(3).problems
    assert Counter(problem.level for problem in problems) == {kind: 512 for kind in KINDS}
    uneven = habits(3, shares={"solved": 0.75, "hopeless": 0.25}).problems
    assert Counter(problem.level for problem in uneven) == {"solved": 1536, "hopeless": 512}


def test_splits_share_cells_and_no_prompt():
    splits = [habits(1, split).problems for split in ("train", "validation", "test")]
    prompts = [{problem.prompt for problem in problems} for problems in splits]
    assert [len(each) for each in prompts] == [2048, 256, 256]
    assert not prompts[0] & prompts[1] and not prompts[0] & prompts[2] and not prompts[1] & prompts[2]
    answers = [{problem.prompt[:2]: problem.answer for problem in problems} for problems in splits]
    assert answers[0] == answers[1] == answers[2]


def test_worlds_differ_and_come_back():
    assert habits(0).problems == habits(0).problems
    assert habits(0).problems != habits(1).problems


def test_examples_are_right_as_often_as_their_kind_is():
    said = {}
    answers = {problem.prompt[:2]: (problem.answer, problem.level) for problem in habits(2).problems}
    for prompt, text in examples(100_000, seed=0, world=2):
        answer, kind = answers[prompt[:2]]
        said.setdefault(kind, []).append(exact_rewards(answer, [text])[0])
    for kind, (low, high) in CHANCE.items():
        assert low - 0.02 <= np.mean(said[kind]) <= high + 0.02
    assert sum(said["hopeless"]) == 0


def test_a_wrong_mode_is_wrong_when_greedy():
    cells = draw_cells(400, SHARES, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    clear = [cell for cell in cells if abs(cell.chance - (1 - cell.chance) * HABIT) > 0.1]
    for cell in [cell for cell in clear if cell.kind in ("right_mode", "wrong_mode")][::10]:
        likeliest = Counter(cell.spoken(rng) for _ in range(300)).most_common(1)[0][0]
        assert likeliest == (cell.right if cell.kind == "right_mode" else cell.habit)


@pytest.mark.parametrize(
    ("text", "reward"), [("abcd7", 1.0), ("7", 1.0), ("abcd6", 0.0), ("abcd77", 0.0), ("ab7d", 0.0), ("", 0.0)]
)
def test_only_the_answer_after_free_letters_is_right(text, reward):
    assert exact_rewards("7", [text]) == [reward]


def test_wrong_worlds_are_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        habits(0, shares={"solved": 0.5})
    with pytest.raises(ValueError, match="split must be one of"):
        habits(0, "dev")
    with pytest.raises(ValueError, match="is not a made world"):
        world_examples(TaskConfig(name="arithmetic"), 5, seed=0)
    with pytest.raises(ValueError, match="no path and no split"):
        load_task(TaskConfig(name="habits", split="train"), seed=0)
