"""The optimal token baseline on our V1 trainers: verl's own numbers, which verl's V1 trainers cannot compute."""

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import compute_optimal_token_baseline_advantage, get_adv_estimator_fn

from kaestat.integrations.verl import token_baseline
from tests.helpers.tiny_verl import Actor, balance, compute, make_trainer, put, sample

SQUARES = "actor_rollout_ref.actor.calculate_sum_pi_squared=True"


def samples():
    """Ragged groups, one of a single completion."""
    rng = np.random.default_rng(0)
    rows = []
    for prompt, size in enumerate((4, 1, 3, 2)):
        for session in range(size):
            length = int(rng.integers(1, 6))
            rows.append(sample(f"u{prompt}", session, 0, f"{prompt}+1", prompt, float(rng.random() < 0.5), length))
            rows[-1]["rollout_log_probs"] = torch.tensor(-3 * rng.random(length), dtype=torch.float32)
    return rows


def asked(queue, trainer, batch, **actor):
    trainer.actor_rollout_wg = Actor(queue, **actor)
    trainer._compute_old_log_prob(batch, {})
    return batch


def padded(queue, batch, name):
    stored = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=[name, "response_mask"])
    return stored.to_padded_tensor()[name]


@pytest.mark.parametrize("name", token_baseline.NAMES)
def test_advantages_are_those_of_verls_own_function(queue, name):
    trainer = make_trainer(SQUARES, method=name)
    batch = balance(trainer, put(queue, samples()))
    batch = asked(queue, trainer, batch)
    mask, log_probs, rewards = (
        padded(queue, batch, field) for field in ("response_mask", "old_log_probs", "rm_scores")
    )
    norms = torch.nn.utils.rnn.pad_sequence([trainer.actor_rollout_wg.norms[key] for key in batch.keys], True).float()
    uids = [key.rsplit("_", 2)[0] for key in batch.keys]
    expected, _ = compute_optimal_token_baseline_advantage(
        rewards, mask, np.array(uids, object), log_probs, norms - 1 + 2 * log_probs.exp()
    )
    trainer.global_steps = 1
    trainer._compute_advantage(batch, {})
    found = padded(queue, batch, "advantages")
    queue.kv_clear(keys=batch.keys, partition_id="train")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert any(len(set(row[m.bool()].tolist())) > 1 for row, m in zip(found, mask, strict=True)), (
        "no baseline per token"
    )


def test_verls_own_stops_under_verls_trainer(queue):
    trainer = make_trainer(SQUARES, method="optimal_token_baseline", mode="sync")
    batch = asked(queue, trainer, put(queue, samples()))
    assert trainer.actor_rollout_wg.asked == [False]
    with pytest.raises(AssertionError, match="requires sum_pi_squared"):
        compute(queue, trainer, batch, 0)


def test_without_one_of_our_trainers_it_is_refused():
    with pytest.raises(ValueError, match=r"adv_estimator=otb needs .*kaestat_sync.*optimal_token_baseline"):
        get_adv_estimator_fn("otb")(torch.ones(2, 1), torch.ones(2, 1), index=["a", "a"])


def test_a_configuration_without_squares_stops_the_run_before_it_begins():
    with pytest.raises(ValueError, match=r"adv_estimator=kaestat_otb: set .*calculate_sum_pi_squared=True"):
        make_trainer(method="kaestat_otb")
