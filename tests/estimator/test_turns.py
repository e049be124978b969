"""`TurnEstimator`: an ordinary estimator for each turn, an unbiased gradient, and a state that is whole."""

import itertools
import runpy
from pathlib import Path

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.estimator.turns import TurnEstimator

pytestmark = pytest.mark.filterwarnings("ignore:.*no group has more than one completion")  # at the late turns
ROOT = Path(__file__).parents[2]
LEAVE_OWN_OUT = {"kae": {"bandwidth": 3.0}, "kae_eb": {}, "rloo": {}, "james_stein": {}}


def completions(rng, *, prompts=4, size=9, most=4):
    """Ids and rewards of one step; numbers of turns differ, and some completions have none."""
    ids = [f"p{k}" for k in rng.integers(prompts, size=size)]
    return ids, [rng.normal(size=count).tolist() for count in rng.integers(0, most + 1, size=size)]


def discounted(rewards, gamma):
    """The return from each turn on, as it is defined."""
    return [[sum(gamma ** (j - k) * row[j] for j in range(k, len(row))) for k in range(len(row))] for row in rewards]


@pytest.mark.parametrize("method", LEAVE_OWN_OUT)
def test_each_turn_is_the_ordinary_estimator_of_its_returns(method):
    turns = TurnEstimator(method, turns=4, gamma=0.5, **LEAVE_OWN_OUT[method])
    plain = [AdvantageEstimator(method, scale="none", **LEAVE_OWN_OUT[method]) for _ in range(4)]
    rng = np.random.default_rng(0)
    for step in range(6):
        ids, rewards = completions(rng, size=20)
        found, returns = turns.step(ids, rewards, step), discounted(rewards, 0.5)
        for k, each in enumerate(plain):
            came = [i for i in range(20) if len(rewards[i]) > k]
            expected = each.step([ids[i] for i in came], [returns[i][k] for i in came], step)
            np.testing.assert_allclose([found[i][k] for i in came], expected, rtol=0, atol=1e-14)
            np.testing.assert_allclose([turns.values[i][k] for i in came], each.values, rtol=0, atol=1e-14)


def tree(theta):
    """Stop, or go on to a second turn and choose there: turns, their probabilities, scores, and rewards."""
    p, q = 1 / (1 + np.exp(-np.asarray(theta)))
    return [
        ([1 - p], [np.array([-p, 0.0])], [0.3]),
        ([p, 1 - q], [np.array([1 - p, 0.0]), np.array([0.0, -q])], [0.1, 0.0]),
        ([p, q], [np.array([1 - p, 0.0]), np.array([0.0, 1 - q])], [0.1, 1.0]),
    ]


def gradient_error(method, gamma):
    """Of the estimated gradient's mean over all groups of two that can come, after a past that is always the same."""
    paths = tree([0.4, -0.7])
    error = -sum(np.prod(chances) * sum(rewards) * np.sum(scores, axis=0) for chances, scores, rewards in paths)
    for pair in itertools.product(paths, repeat=2):
        turns = TurnEstimator(method, turns=3, gamma=gamma, **LEAVE_OWN_OUT.get(method, {}))
        turns.step(["a", "a", "b"], [[0.0, 1.0], [1.0], [0.0, 0.0, 1.0]], step=0)
        advantages = turns.step(["a", "a", "b", "b"], [*(path[2] for path in pair), [0.5], [0.0, 1.0]], step=1)[:2]
        chance = np.prod([np.prod(path[0]) for path in pair])
        for path, of_turns in zip(pair, advantages, strict=True):
            error = error + chance / 2 * sum(a * score for a, score in zip(of_turns, path[1], strict=True))
    return np.abs(error).max()


@pytest.mark.parametrize("method", LEAVE_OWN_OUT)
def test_the_gradient_is_that_of_the_expected_sum_of_rewards(method):
    assert gradient_error(method, 1.0) < 1e-12


@pytest.mark.parametrize(("method", "gamma"), [("dr_grpo", 1.0), ("rloo", 0.5)])
def test_a_value_with_its_own_reward_or_a_discount_has_another_gradient(method, gamma):
    assert gradient_error(method, gamma) > 0.01


def test_a_run_goes_on_from_its_state_bit_for_bit(tmp_path):
    def run(turns, steps):
        drawn = [(completions(np.random.default_rng([step, 2])), step) for step in steps]
        return [each.tolist() for (ids, rewards), step in drawn for each in turns.step(ids, rewards, step)]

    whole, stopped, resumed = (TurnEstimator("kae_eb", turns=4, gamma=0.9) for _ in range(3))
    run(whole, range(3))
    run(stopped, range(3))
    stopped.save(tmp_path / "state")
    resumed.load(tmp_path / "state")
    assert run(resumed, range(3, 6)) == run(whole, range(3, 6)) != run(stopped, range(4, 6))


def test_a_step_that_fails_at_a_late_turn_records_no_turn():
    turns = TurnEstimator("spo", turns=3)  # for rewards between 0 and 1
    turns.step(["a", "a"], [[0.0, 1.0], [1.0]], 0)
    before = turns.state_dict()
    with pytest.raises(ValueError, match="rewards"):
        turns.step(["a", "a"], [[0.0, -1.0, 2.0], [1.0]], 1)
    assert turns.state_dict() == before


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: TurnEstimator("kae", turns=2, objective="log"), "objective"),
        (lambda: TurnEstimator("kae", turns=2, prior={"a": (0.5, 1)}), "prior"),
        (lambda: TurnEstimator("kae", turns=2, gamma=2.0), "gamma"),
        (lambda: TurnEstimator(turns=2).step(["a"], [[1.0], [0.0]], 0), "prompt_ids"),
        (lambda: TurnEstimator(turns=2).step(["a"], [[1.0, 0.0, 0.0]], 0), "turns=3"),
        (lambda: TurnEstimator(turns=2).step(["a"], [[1.0, np.nan]], 0), "completion 0"),
        (lambda: TurnEstimator(turns=2).load_state_dict(TurnEstimator(turns=2, gamma=0.5).state_dict()), "gamma=0.5"),
        (lambda: TurnEstimator(turns=2).load_state_dict(TurnEstimator(turns=3).state_dict()), "turn 2"),
    ],
)
def test_what_does_not_fit_is_refused(call, word):
    with pytest.raises(ValueError, match=word):
        call()


def test_the_example_gives_each_token_the_advantage_of_its_turn(capsys):
    example = runpy.run_path(str(ROOT / "examples" / "turns.py"), run_name="__main__")
    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "guide" / "turns.md").read_text()
    mask = [[1, 1, 0, 1, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    turns = TurnEstimator("rloo", turns=2)
    found = example["token_advantages"](turns, ["a", "a", "a"], mask, [[0.5, 0.0], [0.0], []], [1.0, 0.0, 0.0], 0)
    assert found.tolist() == [[1.5, 1.5, 0, 1.0, 0], [-1.5, -1.5, -1.5, 0, 0], [0] * 5]
