"""AdvantageEstimator: inputs of every kind, masks, streams, singletons, specifications."""

# ruff: noqa: PD011 - `.values` is the estimator's

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.baselines import Baseline
from kaestat.baselines.registry import METHODS
from tests.helpers.estimators import PROMPTS, REWARDS, UNWEIGHTED, make, with_past

every_method = pytest.mark.parametrize("name", UNWEIGHTED)


INPUTS = {
    "float64": lambda r: np.array(r),
    "float32": lambda r: np.array(r, dtype=np.float32),
    "read-only": lambda r: np.frombuffer(np.array(r).tobytes()),
    "torch float64": lambda r: torch.tensor(r, dtype=torch.float64),
    "torch bfloat16": lambda r: torch.tensor(r, dtype=torch.bfloat16),
    "torch with gradient": lambda r: torch.tensor(r, requires_grad=True),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", ["kae", "grpo", "ebpo"])
def test_advantages_and_values_come_back_in_the_type_dtype_and_device_of_the_rewards(name, kind):
    rewards = INPUTS[kind](REWARDS)
    estimator, plain = with_past(name), with_past(name)
    advantages = estimator.step(PROMPTS, rewards, 5)
    expected = plain.step(PROMPTS, REWARDS, 5)

    for result, wanted in ((advantages, expected), (estimator.values, plain.values)):
        assert type(result) is type(rewards) and result.dtype == rewards.dtype
        assert getattr(result, "requires_grad", False) is False
        assert getattr(result, "device", "cpu") == getattr(rewards, "device", "cpu")
        as_float = result.double().numpy() if isinstance(result, torch.Tensor) else result
        np.testing.assert_allclose(as_float, wanted, rtol=1e-2 if "16" in kind else 1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("convert", "dtype"),
    [
        (list, np.float64),
        (lambda r: np.array(r, dtype=np.int64), np.float64),
        (lambda r: pd.Series(r, index=[9, 8, 7, 6, 5, 4], dtype="float32"), np.float32),
        (lambda r: torch.tensor(r, dtype=torch.bool), torch.get_default_dtype()),
    ],
    ids=["list", "int array", "float32 Series", "bool tensor"],
)
def test_other_sequences_give_numpy_and_tensors_of_integers_torchs_default_floats(convert, dtype):
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    advantages = AdvantageEstimator("rloo").step(PROMPTS, convert(rewards), 0)

    assert isinstance(advantages, torch.Tensor if isinstance(dtype, torch.dtype) else np.ndarray)
    assert advantages.dtype == dtype
    np.testing.assert_allclose(advantages, AdvantageEstimator("rloo").step(PROMPTS, rewards, 0), rtol=1e-6)


@pytest.mark.parametrize(
    "ids",
    [np.array, torch.tensor, pd.Series, lambda x: np.array(x, dtype=object), iter, lambda x: [np.int32(k) for k in x]],
    ids=["array", "tensor", "Series", "objects", "iterator", "scalars"],
)
def test_ids_come_in_any_container(ids):
    estimator = AdvantageEstimator("kae", bandwidth=10)
    estimator.step(ids([3, 4, 5]), [1.0, 0, 1], 0)
    estimator.step([3, 4, 5], [0.0, 0, 0], 1)

    assert estimator.values.tolist() == [1.0, 0.0, 1.0]


@every_method
@pytest.mark.parametrize("convert", [list, np.array, torch.tensor], ids=["list", "numpy", "torch"])
def test_the_callers_arrays_are_neither_changed_nor_kept(name, convert):
    estimator, twin = with_past(name), with_past(name)
    rewards, mask, weights = convert(REWARDS), convert([True] * 5 + [False]), convert([1.0] * 6)
    extra = {"weights": weights} if name in ("grpo", "rloo", "pooled", "james_stein") else {}
    before = [list(column) for column in (rewards, mask, weights)]
    for one in (estimator, twin):
        advantages = one.step(PROMPTS, rewards, 5, mask=mask, **extra)
    assert [list(column) for column in (rewards, mask, weights)] == before

    for column in (rewards, weights, advantages, twin.values):
        column[:] = convert([0.125] * 6)
    for part in ("values", "advantages"):
        np.testing.assert_array_equal(getattr(twin.record, part), getattr(estimator.record, part))
    np.testing.assert_array_equal(twin.record.packing.unpack(twin.record.groups.reward), REWARDS[:5])
    np.testing.assert_array_equal(estimator.step(PROMPTS, REWARDS, 6), twin.step(PROMPTS, REWARDS, 6))


@every_method
def test_masked_samples_get_zero_and_leave_no_trace(name):
    padded, plain = make(name), make(name)
    for step in range(4):
        # Padding rows as trainers make them: copies of row 0, with its reward, with none, or with an id never seen.
        prompts = ["a", *PROMPTS, "a", "ghost", None]
        rewards = [REWARDS[0], *REWARDS, np.nan, 0.0, np.inf]
        mask = np.array([False] + [True] * 6 + [False] * 3)
        advantages = padded.step(prompts, rewards, step, mask=mask)
        expected = plain.step(PROMPTS, REWARDS, step)

        np.testing.assert_array_equal(advantages[mask], expected)
        np.testing.assert_array_equal(padded.values[mask], plain.values)
        assert (advantages[~mask] == 0).all() and (padded.values[~mask] == 0).all()
    np.testing.assert_equal(padded.state_dict(), plain.state_dict())


@every_method
def test_a_step_with_everything_masked_or_nothing_at_all_gives_zeros_and_moves_the_clock(name):
    estimator, twin = make(name), make(name)
    assert estimator.step([], [], 0).shape == (0,)
    for step in (1, 2):
        np.testing.assert_array_equal(*(each.step(PROMPTS, REWARDS, step) for each in (estimator, twin)))
    assert estimator.step(PROMPTS, [np.nan] * 6, 7, mask=[False] * 6).tolist() == [0.0] * 6
    assert estimator.step([], torch.zeros(0), 8).shape == (0,) and estimator.values.shape == (0,)

    with pytest.raises(ValueError, match="backwards"):
        estimator.step(PROMPTS, REWARDS, 7)
    np.testing.assert_array_equal(estimator.step(PROMPTS, REWARDS, 9), twin.step(PROMPTS, REWARDS, 9))


def test_streams_split_groups_for_group_baselines_and_pool_for_the_rest():
    prompts, streams, rewards = ["x"] * 4, ["s", "t", "s", "t"], [1.0, 0.0, 0.0, 0.0]
    grpo, kae = AdvantageEstimator("dr_grpo"), AdvantageEstimator("kae", bandwidth=10)

    assert grpo.step(prompts, rewards, 0, stream_ids=streams).tolist() == [0.5, 0.0, -0.5, 0.0]
    assert grpo.step(prompts, rewards, 0).tolist() == [0.75, -0.25, -0.25, -0.25]
    np.testing.assert_allclose(kae.step(prompts, rewards, 0, stream_ids=streams), [1.0, -1 / 3, -1 / 3, -1 / 3])
    assert len(kae.history) == 1


def test_a_prompt_and_a_stream_do_not_collide_with_a_prompt_that_looks_like_the_pair():
    estimator = AdvantageEstimator("kae_stream")
    estimator.step(["x", ("x", 0)], [1.0, 0.0], 0, stream_ids=[0, 0])
    estimator.step(["x", ("x", 0)], [0.0, 0.0], 1, stream_ids=[0, 0])

    assert estimator.values.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", METHODS)
def test_single_completions_without_a_baseline_are_warned_of_once(name):
    """They are so where each advantage is 0, or the same multiple of its reward."""
    estimator, rewards, heard = make(name), np.array([1.0, 0.25, 0.5, 1.0]), []
    weights = np.ones(4) if estimator.baseline.needs_weights else None
    for step in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = estimator.step(list("abcd"), np.roll(rewards, step), step, weights=weights)
        heard += [each for each in caught if "no group has more than one" in str(each.message)]
    useless = np.allclose(found, found[-1] / np.roll(rewards, 2)[-1] * np.roll(rewards, 2))
    assert len(heard) == bool(estimator.baseline.alone) == (useless and name != "none")
    if heard:
        assert not [each for each in heard if f"of a lone one is {estimator.baseline.alone}" not in str(each.message)]
        assert np.allclose(found, 0) == (estimator.baseline.alone == "0")


class Shapeless(Baseline):
    """A user's baseline that forgets the completions."""

    def values(self, groups, visits, *, step, carry=None):
        return groups.reward[:, :1] * 0


def test_a_users_baseline_must_return_one_value_per_completion():
    with pytest.raises(ValueError, match=r"'Shapeless': values must be finite, of the rewards' shape"):
        AdvantageEstimator(Shapeless()).step(["a", "a"], [1.0, 0.0], 0)
