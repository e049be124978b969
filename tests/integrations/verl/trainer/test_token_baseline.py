"""The optimal token baseline on our V1 trainers: verl's own numbers, which verl's V1 trainers cannot compute."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from verl.trainer.ppo.core_algos import compute_optimal_token_baseline_advantage, get_adv_estimator_fn

from kaestat.credit.token_baseline import optimal_token_baseline
from kaestat.credit.token_history import TokenHistory
from kaestat.integrations.verl import token_baseline
from tests.helpers.tiny_verl import Actor, balance, compute, make_trainer, put, sample
from tests.integrations.verl.trainer.test_resume import Workers

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


def step_samples(step):
    """Single completions of three prompts whose group names are new at every step, and one prompt with two."""
    rng = np.random.default_rng([step, 5])
    rows = []
    for prompt, size in enumerate((1, 1, 1, 2)):
        for session in range(size):
            length = int(rng.integers(1, 6))
            rows.append(
                sample(f"u{step}{prompt}", session, 0, f"{prompt}+1", prompt, float(rng.random() < 0.5), length)
            )
            rows[-1]["rollout_log_probs"] = torch.tensor(-3 * rng.random(length), dtype=torch.float32)
    return rows


def advantages_of(queue, trainer, batch, step):
    """Advantages of a batch at a step, by key; the queue is left empty."""
    trainer.global_steps = step + 1
    trainer._compute_advantage(batch, {})
    data = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=["advantages"])
    queue.kv_clear(keys=batch.keys, partition_id="train")
    return dict(zip(batch.keys, data["advantages"].unbind(), strict=True))


def train(queue, trainer, steps):
    """Advantages of each step and, for a reference, what entered: returns, norms, masks, prompts and groups."""
    found, entered = [], []
    for step in steps:
        batch = put(queue, step_samples(step))
        trainer.actor_rollout_wg = Actor(queue, seed=step)
        trainer._compute_old_log_prob(batch, {})
        norms = [trainer.actor_rollout_wg.norms[key] for key in batch.keys]
        norms = torch.nn.utils.rnn.pad_sequence(norms, True).numpy()
        mask, rewards = (padded(queue, batch, field).numpy() for field in ("response_mask", "rm_scores"))
        returns = rewards[:, ::-1].cumsum(axis=1)[:, ::-1]
        groups = [key.split("_")[0] for key in batch.keys]
        entered.append((returns, norms, mask, [name[-1] for name in groups], groups))
        found.append(advantages_of(queue, trainer, batch, step))
    return found, entered


def test_with_a_bandwidth_advantages_are_those_of_the_groups_and_the_prompts_past(queue):
    trainer = make_trainer(SQUARES, "+algorithm.kaestat.params.bandwidth=4", method="otb")
    found, entered = train(queue, trainer, range(4))
    history = TokenHistory(4)
    for step, (returns, norms, mask, prompts, groups) in enumerate(entered):
        past = history.past(prompts, step=step, length=mask.shape[1])
        expected = returns - optimal_token_baseline(returns, norms, mask, groups, without_own=True, past=past)
        history.record(prompts, returns, norms, mask, step=step)
        for row, advantages in enumerate(found[step].values()):
            np.testing.assert_allclose(advantages, expected[row, : len(advantages)], rtol=1e-4, atol=1e-5)
    assert len(history) == 4
    single = [advantages for key, advantages in found[-1].items() if not key.startswith("u33")]
    returned = [row for row, group in zip(entered[-1][0], entered[-1][4], strict=True) if group != "u33"]
    assert any((each.numpy() != row[: len(each)]).any() for each, row in zip(single, returned, strict=True))


def test_padding_has_no_advantage_and_no_past(queue):
    options = (SQUARES, "+algorithm.kaestat.params.bandwidth=4")
    filled = make_trainer(*options, method="otb")
    rows = step_samples(0)
    copy = rows[0] | {"uid": "pad", "session_id": 9}
    batch = put(queue, [*rows, copy], [{} for _ in rows] + [{"is_padding": True}])
    advantages = advantages_of(queue, filled, asked(queue, filled, batch), 0)
    assert not advantages["pad_9_0"].any()
    assert len(filled.tokens) == 4


def test_a_run_with_a_past_resumes_where_it_stopped(queue, tmp_path):
    options = (SQUARES, "+algorithm.kaestat.params.bandwidth=4", f"trainer.default_local_dir={tmp_path}")
    whole = train(queue, make_trainer(*options, method="otb"), range(4))[0]
    stopped = make_trainer(*options, method="otb")
    train(queue, stopped, range(2))
    stopped.actor_rollout_wg = Workers()
    stopped.train_dataloader = SimpleNamespace(state_dict=dict, load_state_dict=lambda state: None)
    stopped._save_checkpoint()
    resumed = make_trainer(*options, method="otb")
    resumed.actor_rollout_wg, resumed.train_dataloader = stopped.actor_rollout_wg, stopped.train_dataloader
    resumed._load_checkpoint()
    for found, expected in zip(train(queue, resumed, range(2, 4))[0], whole[2:], strict=True):
        assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("option", ["weights=length", "params.decay=3", "scale=batch_std"])
def test_options_without_a_place_are_refused(option):
    with pytest.raises(ValueError, match=r"adv_estimator=otb takes params\.bandwidth, prompt_id and start_anew"):
        make_trainer(SQUARES, f"+algorithm.kaestat.{option}", method="otb")
