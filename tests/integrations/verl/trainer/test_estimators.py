"""Registered estimators: the library's numbers on verl's batches, and agreement with verl's own where both know one."""

import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

import kaestat.integrations.verl  # noqa: F401  (registers)
from kaestat import AdvantageEstimator, methods
from kaestat.baselines.registry import METHODS
from kaestat.integrations.verl.estimators import REGISTERED, needs_our_trainer

WITHOUT_HISTORY = [m for m in methods() if not needs_our_trainer(m)]
VERLS_OWN = ("grpo", "rloo", "gpg", "opo", "remax", "grpo_passk")


@st.composite
def batches(draw, min_group=1, one_token=False):
    """Ragged groups in shuffled order as verl holds them: token-level rewards, response mask, group names."""
    sizes = draw(st.lists(st.integers(min_group, 5), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = [f"{name:016x}" for name in rng.integers(1 << 60, size=len(sizes))]
    uids = np.array(rng.permutation(np.repeat(names, sizes)).tolist(), object)
    lengths = np.ones(len(uids), dtype=int) if one_token else rng.integers(1, 7, size=len(uids))
    mask = torch.tensor(np.arange(7) < lengths[:, None]).long()
    rewards = rng.choice([0.0, 1.0, 0.25], size=len(uids))
    tokens = torch.zeros(mask.shape)
    tokens[torch.arange(len(uids)), torch.tensor(lengths - 1)] = torch.tensor(rewards, dtype=torch.float32)
    return tokens, mask, uids, rewards


def computed(name, batch, **options):
    tokens, mask, uids = batch[:3]
    config = OmegaConf.create({"gamma": 1.0, "kaestat": options} if options else {"gamma": 1.0})
    advantages, returns = get_adv_estimator_fn(name)(
        token_level_rewards=tokens.clone(), response_mask=mask, index=uids, config=config, something_new=1
    )
    assert torch.equal(advantages, returns)
    return advantages


def verls(name, batch, **kwargs):
    tokens, mask, uids = batch[:3]
    return get_adv_estimator_fn(name)(
        token_level_rewards=tokens.clone(),
        response_mask=mask,
        index=uids,
        config=OmegaConf.create({"gamma": 1.0}),
        **kwargs,
    )[0]


def with_padding(batch, n):
    """Rows as ``upsample_batch_to_divisible_size`` makes them: a name of their own, one token, nothing in the mask."""
    tokens, mask, uids, rewards = batch
    return (
        torch.cat([tokens, torch.zeros(n, 7)]),
        torch.cat([mask, torch.zeros(n, 7, dtype=mask.dtype)]),
        np.append(uids, np.array(["pad0123456789abcdef"] * n, object)),
        rewards,
    )


@pytest.mark.parametrize("method", WITHOUT_HISTORY)
@given(batch=batches(), n_padding=st.integers(0, 3))
def test_numbers_are_those_of_the_library_on_shuffled_padded_ragged_batches(method, batch, n_padding):
    _, mask, uids, rewards = batch
    weights, options = (mask.sum(dim=-1).tolist(), {"weights": "length"}) if method == "opo" else (None, {})
    expected = AdvantageEstimator(method).step(list(uids), rewards, step=0, weights=weights)
    found = computed(f"kaestat_{method}", with_padding(batch, n_padding), **options)
    np.testing.assert_allclose(found[: len(uids)], expected[:, None] * mask.numpy(), rtol=1e-5, atol=1e-6)
    assert not found[len(uids) :].any(), "padding rows must have advantage 0"


def test_names_of_verl_stay_verls_and_all_others_are_there_at_once():
    for method in methods():
        assert REGISTERED[f"kaestat_{method}"] == method
        if method in VERLS_OWN:
            assert get_adv_estimator_fn(method).__module__.startswith("verl."), f"{method} was taken from verl"
        else:
            assert get_adv_estimator_fn(method) is get_adv_estimator_fn(f"kaestat_{method}")


@given(batch=batches())
def test_rloo_is_verls(batch):
    for theirs in ("rloo", "rloo_vectorized"):
        expected = verls(theirs, batch)
        if theirs == "rloo_vectorized":  # gives 0 to a lone completion, where rloo of both sides gives its reward
            uids = list(batch[2])
            lone = torch.tensor([uids.count(uid) == 1 for uid in uids])
            assert not expected[lone].any()
            expected[lone] = verls("rloo", batch)[lone]
        torch.testing.assert_close(computed("kaestat_rloo", batch), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "options", "theirs", "their_options"),
    [
        ("kaestat_grpo", {}, "grpo", {}),
        ("kaestat_grpo", {}, "grpo_vectorized", {}),
        ("kaestat_dr_grpo", {}, "grpo", {"norm_adv_by_std_in_grpo": False}),
        ("kaestat_grpo", {"scale": "none"}, "grpo", {"norm_adv_by_std_in_grpo": False}),
        ("kaestat_opo", {"weights": "length"}, "opo", {}),
        ("kaestat_grpo_passk", {}, "grpo_passk", {}),
        ("kaestat_dr_grpo", {"weights": "length"}, "opo", {}),
    ],
)
@given(batch=batches(min_group=2))
def test_agrees_with_verls_own_in_groups_of_two_and_more(ours, options, theirs, their_options, batch):
    # An eps of 1e-6 in the divisor lets float32 residue of equal rewards show; both sides have it.
    torch.testing.assert_close(
        computed(ours, batch, **options), verls(theirs, batch, **their_options), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "method", [name for name, method in METHODS.items() if needs_our_trainer(name) and method.needs is None]
)
def test_a_method_with_a_history_refuses_a_trainer_that_passes_no_step(method):
    batch = torch.ones(2, 1), torch.ones(2, 1, dtype=torch.long), np.array(["a", "a"], object)
    with pytest.raises(ValueError, match=r"trainer\.v1\.trainer_mode=kaestat_sync"):
        computed(f"kaestat_{method}", batch)


def test_rows_without_group_names_are_refused():
    with pytest.raises(ValueError, match="uid"):
        computed("kaestat_rloo", (torch.ones(2, 1), torch.ones(2, 1, dtype=torch.long), None))


def test_verl_finds_the_estimators_through_the_module_that_it_is_told_to_load():
    """As in every process of a run: nothing but the variable, and nothing of verl's trainers imported for it."""
    program = (
        "import sys, verl\n"
        "assert 'kaestat.integrations.verl' in sys.modules\n"
        "assert 'verl.trainer.ppo.core_algos' not in sys.modules\n"
        "from verl.trainer.ppo.core_algos import get_adv_estimator_fn\n"
        "get_adv_estimator_fn('kae')\n"
        "assert 'verl.trainer.ppo.v1' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env={"VERL_USE_EXTERNAL_MODULES": "kaestat.integrations.verl", "VERL_USE_EXTERNAL_PLUGINS": "none"},
        timeout=120,
    )


def test_verl_finds_the_plugin_by_its_entry_point():
    (plugin,) = entry_points(group="verl.plugins", name="kaestat")
    assert plugin.value == "kaestat.integrations.verl"
