"""The world of chains: reasoning_gym's problems, questions and rewards, habits in single steps, splits apart."""

import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_experiments.config import TaskConfig
from llm_experiments.tasks import load_task, world_examples
from llm_experiments.tasks.cells import CHANCE, KINDS
from llm_experiments.tasks.chains import OFF, SHARES, SIZES, ChainsTask, chains, examples


def taken(number, sign, digit):
    return {"+": int(number) + int(digit), "-": int(number) - int(digit)}[sign]


def by_hand(prompt):
    """The steps of a chain and what each comes to."""
    a, first, b, second, c = prompt[:-1]
    between = taken(a, first, b)
    return [f"{a}{first}{b}", f"{between}{second}{c}"], [between, taken(between, second, c)]


@pytest.fixture(scope="module")
def entries():
    reasoning_gym = pytest.importorskip("reasoning_gym")
    made = reasoning_gym.create_dataset(
        "chain_sum", seed=0, size=400, min_terms=3, max_terms=3, min_digits=1, max_digits=1
    )
    return list(made), made.score_answer


@pytest.fixture(scope="module")
def problems():
    return {each.prompt: each for split in SIZES for each in chains(0, split, wording="question").problems}


def test_problems_are_those_of_reasoning_gym(entries, problems):
    assert len(problems) == 4000
    for entry in entries[0]:
        assert problems[entry["question"]].answer == entry["answer"]


@given(
    st.integers(0, 399),
    st.one_of(
        st.sampled_from(["", "-", "nan", "-0", "007", "1,2", "1e1", "Infinity", " 3 ", "3.0", "snan"]),
        st.sampled_from(["٣", "1_0", "1e999999999", "9" * 5000]),
        st.integers(-30, 40).map(str),
        st.text(alphabet="0123456789+-.,e ", max_size=6),
    ),
)
def test_rewards_are_reasoning_gyms_for_the_last_number(entries, problems, index, said):
    made, score = entries
    entry = made[index]
    task, problem = ChainsTask((), {}), problems[entry["question"]]
    for text in (said, f"7-5={said}"):
        assert task.rewards(problem, [text]) == [float(score(said, entry) == 1.0)]


def test_only_the_result_is_rewarded_however_it_was_reached():
    task = chains(0)
    problem = next(each for each in task.problems if each.prompt == "2+5-3=")
    assert task.rewards(problem, ["7-3=4", "9-5=4", "4", "7-3=5", "7-3=", "", "7-3=4=5"]) == [1, 1, 1, 0, 0, 0, 0]


def test_kinds_of_chains_follow_from_those_of_their_steps():
    found = Counter(problem.level for world in range(4) for problem in chains(world).problems)
    shares = np.cumsum([SHARES[kind] for kind in KINDS]) ** 2
    expected = dict(zip(KINDS, np.diff(shares, prepend=0), strict=True))
    for kind in KINDS:
        assert found[kind] / (4 * SIZES["train"]) == pytest.approx(expected[kind], abs=0.05)


def test_splits_are_apart_and_have_every_chain():
    prompts = [{problem.prompt for problem in chains(1, split).problems} for split in SIZES]
    assert [len(each) for each in prompts] == list(SIZES.values())
    assert len(set().union(*prompts)) == 4000


def test_worlds_differ_and_come_back():
    assert chains(0).problems == chains(0).problems
    assert {each.prompt: each.level for each in chains(0).problems} != {
        each.prompt: each.level for each in chains(1).problems
    }


def test_examples_take_each_step_from_what_was_written_rightly_as_often_as_its_kind_is():
    off, kinds = defaultdict(list), defaultdict(list)
    for prompt, text in examples(100_000, seed=0, world=2):
        a, first, b, second, c = prompt[:-1]
        step, _, result = text.partition("=")
        assert step.endswith(f"{second}{c}")
        between = int(step[:-2])
        off[f"{a}{first}{b}"].append(between - taken(a, first, b))
        off[step].append(int(result) - taken(between, second, c))
    assert {each for those in off.values() for each in those} == {0, *OFF}
    task = chains(2)
    for problem in task.problems:
        names, results = by_hand(problem.prompt)
        assert task.cells[problem.id] == frozenset(names)
        assert problem.answer == str(results[-1])
        kinds[problem.level].append(min(np.mean(np.array(off[name]) == 0) for name in names))
    assert min(kinds["solved"]) > CHANCE["solved"][0] - 0.06
    assert min(kinds["right_mode"]) > CHANCE["right_mode"][0] - 0.2
    assert max(kinds["wrong_mode"]) < CHANCE["wrong_mode"][1] + 0.15
    assert max(kinds["hopeless"]) == 0


def test_wrong_worlds_are_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        chains(0, shares={"solved": 0.5})
    with pytest.raises(ValueError, match="split must be one of"):
        chains(0, "dev")
    with pytest.raises(ValueError, match="wording must be expression or question, got 'words'"):
        chains(0, wording="words")
    with pytest.raises(ValueError, match="no path and no split"):
        load_task(TaskConfig(name="chains", split="train"), seed=0)
    options = {"split": "test", "wording": "question"}
    assert len(world_examples(TaskConfig(name="chains", options=options), 5, seed=0)) == 5


def test_a_told_working_has_the_steps_the_rewards_and_the_habits_of_a_short_one():
    told = world_examples(
        TaskConfig(name="chains", options={"world": 0, "split": "train", "working": "told"}), 400, seed=3
    )
    task = chains(0)
    answers = {each.prompt: each for each in task.problems}
    right = 0
    for prompt, text in told:
        a, first, b, second, c = prompt[:-1]
        steps = re.findall(r"(-?\d+[+-]\d)=(-?\d+)\.", text)
        assert steps[0][0] == f"{a}{first}{b}" and steps[1][0] == f"{steps[0][1]}{second}{c}"
        assert text.endswith(f" ={steps[1][1]}") and text.count("=") == 3
        if prompt in answers:
            says_it = taken(taken(a, first, b), second, c) == int(steps[1][1])
            assert task.rewards(answers[prompt], [text]) == [float(says_it)]
            right += says_it
    assert 100 < right < 300  # habits are in it
    with pytest.raises(ValueError, match="working must be one of steps, told, got 'long'"):
        examples(1, seed=0, working="long")
