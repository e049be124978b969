"""Several rewards: GDPO as TRL has it, a history for each reward, all of a step recorded or nothing."""

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, AsynchronousEstimator, SeveralRewards, gdpo
from kaestat.core.storage import load_state

NAMES = ["right", "format", "length"]
STATEFUL = ["kae", "kae_eb", "spo", "kalman", "bayes_filter", "ebpo", "kae_stream"]


def trl_advantages(rewards: np.ndarray, weights: list[float], group_size: int) -> np.ndarray:
    """TRL 1.16.0, ``_generate_and_score_completions`` with ``normalize_then_sum``, by loops."""
    n, k = rewards.shape
    normalised = np.full((n, k), np.nan)
    for column in range(k):
        for start in range(0, n, group_size):
            rows = [row for row in range(start, start + group_size) if not np.isnan(rewards[row, column])]
            if not rows:
                continue
            mean = sum(rewards[row, column] for row in rows) / len(rows)
            squares = sum((rewards[row, column] - mean) ** 2 for row in rows)
            std = (squares / (len(rows) - 1)) ** 0.5 if len(rows) > 1 else np.nan
            for row in rows:
                normalised[row, column] = (rewards[row, column] - mean) / (std + 1e-4)
    total = np.array([np.nansum(row * np.array(weights)) for row in normalised])
    scored = ~np.isnan(rewards).all(axis=1)
    some = total[scored]
    std = (((some - some.mean()) ** 2).sum() / (len(some) - 1)) ** 0.5
    return np.where(scored, (total - some.mean()) / (std + 1e-4), 0.0)


def made(seed: int, n_groups: int = 6, group_size: int = 4, missing: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n = n_groups * group_size
    rewards = np.stack([rng.random(n) < 0.4, rng.random(n) < 0.9, rng.random(n)], axis=1).astype(float)
    return np.where(rng.random(rewards.shape) < missing, np.nan, rewards)


def ids_of(rewards: np.ndarray, group_size: int = 4) -> list[int]:
    return (np.arange(len(rewards)) // group_size).tolist()


@pytest.mark.parametrize("missing", [0.0, 0.2, 0.7])
@pytest.mark.parametrize("seed", range(3))
def test_gdpo_is_trls_to_rounding(seed, missing):
    rewards, weights = made(seed, missing=missing), [1.0, 0.5, -2.0]
    found = gdpo(NAMES, weights=weights).step(ids_of(rewards), rewards, step=0)
    np.testing.assert_allclose(found, trl_advantages(rewards, weights, 4), atol=1e-12)


@pytest.mark.parametrize(("method", "weighted"), [*((name, False) for name in STATEFUL), ("kae_eb", True)])
def test_each_reward_has_the_advantages_of_an_estimator_of_its_own(method, weighted):
    both = SeveralRewards.of(method, NAMES, weights=[1.0, 2.0, 0.5], normalize=False, scale="none")
    alone = [AdvantageEstimator(method, scale="none") for _ in NAMES]
    more = {"weights": np.random.default_rng(1).random(24) + 0.5} if weighted else {}
    for step in range(4):
        rewards = made(step)
        if method == "bayes_filter":
            rewards = np.where(np.isnan(rewards), np.nan, rewards > 0.5)
        ids, expected = ids_of(rewards), np.zeros(len(rewards))
        for k, each in enumerate(alone):
            there = ~np.isnan(rewards[:, k])
            expected += both.weights[k] * each.step(ids, np.nan_to_num(rewards[:, k]), step, mask=there, **more)
        np.testing.assert_array_equal(both.step(ids, rewards, step, **more), expected)


def test_tensors_come_back_as_tensors():
    rewards = torch.tensor(made(5), dtype=torch.float32)
    both = SeveralRewards.of("kae", NAMES)
    found = both.step(ids_of(rewards), rewards, 0)
    assert found.dtype == both.values.dtype == torch.float32 and both.values.shape == (24, 3)


def test_a_step_of_one_completion_is_left_as_it_is():
    both = SeveralRewards.of("kae", ["a", "b"], bandwidth=5.0)
    both.step(["x", "y"], np.array([[1.0, 0.0], [0.0, 0.0]]), 0)
    assert both.step(["x"], np.array([[0.0, 1.0]]), 1).tolist() == [0.0]  # -1 + 1
    assert both.step(["y"], np.array([[1.0, 1.0]]), 1).tolist() == [2.0]


def test_saved_and_loaded_it_goes_on_bit_for_bit(tmp_path):
    whole, from_file = (SeveralRewards.of("kae_eb", NAMES, weights=[1.0, 2.0, 3.0]) for _ in range(2))
    for step in range(2):
        whole.step(ids_of(made(step)), made(step), step)
    whole.save(tmp_path / "state")
    from_file.load_state_dict(load_state(tmp_path / "state")["state"])  # as trainers' sessions do
    expected = whole.step(ids_of(made(2)), made(2), 2)
    for again in (SeveralRewards.load(tmp_path / "state"), from_file):
        np.testing.assert_array_equal(again.step(ids_of(made(2)), made(2), 2), expected)


def test_a_state_of_which_a_part_does_not_fit_is_refused_whole():
    both = SeveralRewards.of("kae", ["a", "b"], bandwidth=5.0)
    both.step(["x"], np.array([[1.0, 0.0]]), 0)
    before, wrong = both.state_dict(), SeveralRewards.of("kae", ["a", "b"], bandwidth=5.0).state_dict()
    wrong["b"] = AdvantageEstimator("spo").state_dict()
    with pytest.raises(ValueError):
        both.load_state_dict(wrong)
    assert both.state_dict() == before
    with pytest.raises(ValueError, match=r"of rewards \['a'\]"):
        both.load_state_dict({"a": before["a"]})


def test_what_does_not_fit_is_refused(tmp_path):
    one = AdvantageEstimator("kae")
    for wrong, kind, message in (
        (lambda: SeveralRewards({}), ValueError, "at least one"),
        (lambda: SeveralRewards({"a": one, "b": one}), ValueError, "used for two rewards"),
        (lambda: SeveralRewards({"a": AsynchronousEstimator("kae")}), TypeError, "plain kaestat.AdvantageEstimator"),
        (lambda: SeveralRewards.of("kae", ["a", "a"]), ValueError, "names must be distinct"),
        (lambda: gdpo(["a", "b"], weights=[1.0]), ValueError, "weights must be 2 finite numbers"),
        (lambda: gdpo(["a", "b"]).step(["x"], [1.0], 0), ValueError, r"shape \(N, 2\).* a, b; got \(1,\)"),
        (lambda: gdpo(["a"]).step(["x"], [[np.inf]], 0), ValueError, "finite"),
    ):
        with pytest.raises(kind, match=message):
            wrong()
    one.save(tmp_path / "one")
    with pytest.raises(ValueError, match="holds no SeveralRewards"):
        SeveralRewards.load(tmp_path / "one")
