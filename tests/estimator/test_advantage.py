"""AdvantageEstimator: inputs of every kind, masks, streams, singletons; its state is in test_estimator_state.py."""

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
    "float16": lambda r: np.array(r, dtype=np.float16),
    "strided": lambda r: np.repeat(np.array(r), 2)[::2],
    "read-only": lambda r: np.frombuffer(np.array(r).tobytes()),
    "torch float64": lambda r: torch.tensor(r, dtype=torch.float64),
    "torch float32": lambda r: torch.tensor(r),
    "torch float16": lambda r: torch.tensor(r, dtype=torch.float16),
    "torch bfloat16": lambda r: torch.tensor(r, dtype=torch.bfloat16),
    "torch with gradient": lambda r: torch.tensor(r, requires_grad=True),
    "torch strided": lambda r: torch.tensor(r).repeat_interleave(2)[::2],
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
        (tuple, np.float64),
        (lambda r: [int(x) for x in r], np.float64),
        (lambda r: [bool(x) for x in r], np.float64),
        (lambda r: np.array(r, dtype=np.int64), np.float64),
        (lambda r: np.array(r, dtype=bool), np.float64),
        (lambda r: pd.Series(r, index=[9, 8, 7, 6, 5, 4]), np.float64),
        (lambda r: pd.Series(r, dtype="float32"), np.float32),
        (lambda r: [np.float32(x) for x in r], np.float64),
        (lambda r: [torch.tensor(x) for x in r], np.float64),
    ],
    ids=["list", "tuple", "ints", "bools", "int array", "bool array", "Series", "float32 Series", "scalars", "tensors"],
)  # fmt: skip
def test_other_sequences_give_numpy(convert, dtype):
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    advantages = AdvantageEstimator("rloo").step(PROMPTS, convert(rewards), 0)

    assert type(advantages) is np.ndarray and advantages.dtype == dtype
    np.testing.assert_allclose(advantages, AdvantageEstimator("rloo").step(PROMPTS, rewards, 0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_torch_integers_give_torchs_default_floats(dtype):
    advantages = AdvantageEstimator("rloo").step(["a", "a"], torch.tensor([1, 0], dtype=dtype), 0)

    assert advantages.dtype == torch.get_default_dtype() and advantages.tolist() == [1.0, -1.0]


@pytest.mark.parametrize(
    "ids", [list, tuple, np.array, pd.Series, lambda x: np.array(x, dtype=object), lambda x: iter(x), dict.fromkeys],
    ids=["list", "tuple", "array", "Series", "objects", "iterator", "dict"],
)  # fmt: skip
def test_ids_come_in_any_container(ids):
    prompts = ["x", "y", "z"]
    estimator = AdvantageEstimator("kae", bandwidth=10)
    estimator.step(ids(prompts), [1.0, 0, 1], 0)
    estimator.step(prompts, [0.0, 0, 0], 1)

    assert estimator.values.tolist() == [1.0, 0.0, 1.0]


def test_ids_as_integer_arrays_and_tensors_are_the_integers():
    estimator = AdvantageEstimator("kae", bandwidth=10)
    estimator.step(np.array([3, 4]), [1.0, 0], 0)
    estimator.step(torch.tensor([3, 4]), [0.0, 0], 1)
    assert estimator.values.tolist() == [1.0, 0.0]
    estimator.step([np.int32(3), 4], [0.0, 0], 2)
    assert len(estimator.history) == 2


@every_method
@pytest.mark.parametrize("torch_inputs", [False, True], ids=["numpy", "torch"])
def test_the_callers_arrays_are_neither_changed_nor_kept(name, torch_inputs):
    convert = torch.tensor if torch_inputs else np.array
    estimator, twin = with_past(name), with_past(name)
    rewards, mask = convert(REWARDS, dtype=torch.float64 if torch_inputs else float), convert([True] * 5 + [False])
    weights = convert([1.0] * 6, dtype=torch.float64 if torch_inputs else float)
    extra = {"weights": weights} if name in ("grpo", "rloo", "pooled", "james_stein") else {}
    before = [array.tolist() for array in (rewards, mask, weights)]
    for one in (estimator, twin):
        advantages = one.step(PROMPTS, rewards, 5, mask=mask, **extra)
    assert [array.tolist() for array in (rewards, mask, weights)] == before

    for array in (rewards, weights, advantages, twin.values):
        array[:] = 0.125
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


def test_masked_weights_may_be_anything():
    advantages = AdvantageEstimator("kae", bandwidth=10).step(
        ["a"] * 3, [1.0, 0, 1], 0, mask=[1, 1, 0], weights=[1.0, 1.0, np.nan]
    )
    assert advantages.tolist() == [1.0, -1.0, 0.0]


@pytest.mark.parametrize(
    "mask", [[1, 0, 1], np.array([1.0, 0, 1]), torch.tensor([True, False, True]), pd.Series([True, False, True])]
)
def test_masks_come_as_anything_boolean(mask):
    assert AdvantageEstimator("rloo").step(["a"] * 3, [1.0, 0, 0], 0, mask=mask).tolist() == [1.0, 0.0, -1.0]


@every_method
def test_a_step_with_everything_masked_or_nothing_at_all_gives_zeros_and_moves_the_clock(name):
    estimator, twin = with_past(name), with_past(name)
    assert estimator.step(PROMPTS, [np.nan] * 6, 7, mask=[False] * 6).tolist() == [0.0] * 6
    assert estimator.step([], [], 8).shape == (0,)
    assert estimator.step([], torch.zeros(0), 8).shape == (0,) and estimator.values.shape == (0,)

    with pytest.raises(ValueError, match="backwards"):
        estimator.step(PROMPTS, REWARDS, 7)
    np.testing.assert_array_equal(estimator.step(PROMPTS, REWARDS, 9), twin.step(PROMPTS, REWARDS, 9))


@every_method
def test_an_empty_first_step_settles_nothing(name):
    estimator = make(name)
    estimator.step([], [], 0)

    np.testing.assert_array_equal(estimator.step(PROMPTS, REWARDS, 1), make(name).step(PROMPTS, REWARDS, 1))


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


def test_large_batches_keep_every_sample_with_its_prompt():
    rng = np.random.default_rng(1)
    prompts = rng.integers(0, 3000, 20_000)
    estimator, sums, counts = AdvantageEstimator("kae", bandwidth=np.inf), np.zeros(3000), np.zeros(3000)
    for step in range(3):
        rewards = rng.integers(0, 2, 20_000).astype(float)
        estimator.step(prompts, rewards, step)
        sums += np.bincount(prompts, rewards, minlength=3000)
        counts += np.bincount(prompts, minlength=3000)
        known = counts[prompts] > 1
        running_mean = (sums[prompts] - rewards)[known] / (counts[prompts] - 1)[known]
        np.testing.assert_allclose(estimator.values[known], running_mean, rtol=1e-12)
