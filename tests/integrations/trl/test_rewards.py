"""Rewards as TRL forms them: several functions, weights, functions that do not apply."""

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, SeveralRewards, gdpo
from kaestat.integrations.trl import BaselineGRPOTrainer
from tests.helpers.tiny_trl import RecordingTrainer, parity_reward, tiny_trainer, train_tiny


def half_applies(completion_ids, **_):
    """Only for every other completion."""
    return [0.25 * (sum(ids) % 3) if row % 2 else None for row, ids in enumerate(completion_ids)]


def never_applies(completion_ids, **_):
    return [None] * len(completion_ids)


def one_is_left_out(completion_ids, **_):
    return [None, *map(float, range(1, len(completion_ids)))]


def test_functions_are_summed_with_their_weights_where_they_apply(tmp_path):
    trainer = train_tiny(
        tmp_path,
        AdvantageEstimator("kae", bandwidth=5.0),
        reward=[parity_reward, half_applies, never_applies],
        reward_weights=[1.0, 2.0, 3.0],
        max_steps=3,
    )
    plain = AdvantageEstimator("kae", bandwidth=5.0)
    for step, batch in enumerate(trainer.batches):
        parity, half, never = batch["rewards"].double().numpy().T
        assert np.isnan(never).all() and np.isnan(half).sum() == 4
        expected = plain.step(batch["prompts"], parity + 2 * np.nan_to_num(half), step)
        np.testing.assert_allclose(batch["advantages"].numpy(), expected, atol=1e-6)


def test_a_completion_without_any_reward_has_no_advantage_and_no_history(tmp_path):
    estimator = AdvantageEstimator("kae", bandwidth=5.0)
    trainer = train_tiny(tmp_path, estimator, reward=one_is_left_out, max_steps=3)
    plain = AdvantageEstimator("kae", bandwidth=5.0)
    for step, batch in enumerate(trainer.batches):
        assert batch["advantages"][0] == 0
        expected = plain.step(batch["prompts"][1:], np.arange(1.0, 8.0), step)
        np.testing.assert_allclose(batch["advantages"].numpy()[1:], expected, atol=1e-6)
    history = estimator.history
    assert len(history) == 4 and history.visits(list(history.row), 3).count.sum() == 21


def quarters(completion_ids, **_):
    """Rewards that single precision holds exactly, None among them."""
    return [None if sum(ids) % 7 == 0 else (sum(ids) % 5) / 4 for ids in completion_ids]


class KeepsTrls(RecordingTrainer):
    """Beside the advantages trained on, those that TRL itself has computed."""

    trls: list[torch.Tensor]

    def _advantages(self, scored, weights):
        vars(self).setdefault("trls", []).append(torch.tensor(self._logs["advantages"]))
        return super()._advantages(scored, weights)


@pytest.mark.parametrize(
    ("scale_rewards", "method", "scale", "group", "reward"),
    [
        ("group", "grpo", "trl_group", 2, quarters),
        ("batch", "grpo", "trl_batch", 4, parity_reward),
        ("none", "dr_grpo", None, 8, quarters),
    ],
)
def test_trls_own_formulas_are_trls_advantages_to_rounding(scale_rewards, method, scale, group, reward, tmp_path):
    trainer = train_tiny(
        tmp_path,
        AdvantageEstimator(method, scale=scale),
        reward=reward,
        trainer_class=KeepsTrls,
        num_generations=group,
        scale_rewards=scale_rewards,
        max_steps=3,
    )
    found = torch.cat([batch["advantages"] for batch in trainer.batches])
    assert found.abs().max() > 0.1
    torch.testing.assert_close(found, torch.cat(trainer.trls), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize(
    ("method", "config", "words"),
    [
        ("rloo", {"num_generations": 1}, "num_generations=1: rloo: .* such as 'kae_eb'"),
        ("kae", {"multi_objective_aggregation": "normalize_then_sum"}, "sum_then_normalize"),
    ],
)
def test_a_configuration_that_does_not_fit_the_method_is_refused(method, config, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        tiny_trainer(tmp_path, AdvantageEstimator(method), **config)


@pytest.mark.parametrize("scale", [None, "batch_std", "group_std"])
def test_batch_scaling_asked_of_trl_is_refused_unless_the_estimator_does_it(scale, tmp_path):
    with pytest.raises(ValueError, match="scale='trl_batch'"):
        tiny_trainer(tmp_path, AdvantageEstimator("grpo", scale=scale), scale_rewards="batch")
    tiny_trainer(tmp_path, AdvantageEstimator("kae", scale="trl_batch(epsilon=1e-6)"), scale_rewards="batch")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"advantage_estimator": "kae"}, TypeError, 'AdvantageEstimator\\("kae"'),
        ({"weights": "entropy"}, ValueError, "none, length, score_norm"),
        ({"reuse": 0}, ValueError, "reuse must be"),
        ({"reuse": 1.5}, ValueError, "reuse must be"),
        ({"advantage_estimator": AdvantageEstimator("spo"), "weights": "length"}, ValueError, "such as 'kae_eb'"),
        ({"advantage_estimator": AdvantageEstimator("reinforce++"), "weights": "adam"}, ValueError, "set scale='none'"),
    ],
)
def test_arguments_are_checked_before_any_model_is_loaded(options, error, words):
    with pytest.raises(error, match=words):
        BaselineGRPOTrainer("no/such-model", **{"advantage_estimator": AdvantageEstimator("kae")} | options)


def length_reward(completion_ids, **_):
    return [len(ids) / 4 for ids in completion_ids]


def test_gdpo_gives_the_advantages_that_trl_gives(tmp_path):
    functions, weights = [parity_reward, half_applies, never_applies], [1.0, 2.0, 3.0]
    trainer = train_tiny(
        tmp_path,
        gdpo(["parity", "half", "never"], weights=weights),
        reward=functions,
        trainer_class=KeepsTrls,
        num_generations=4,
        multi_objective_aggregation="normalize_then_sum",
        reward_weights=weights,
        max_steps=3,
    )
    for batch, theirs in zip(trainer.batches, trainer.trls, strict=True):
        assert (batch["advantages"] != 0).any()
        np.testing.assert_allclose(batch["advantages"].numpy(), theirs.numpy(), atol=2e-6)


def test_each_reward_has_its_own_history_and_metrics(tmp_path):
    trainer = train_tiny(
        tmp_path,
        SeveralRewards.of("kae", ["parity", "length"], weights=[1.0, 0.5], bandwidth=5.0),
        reward=[parity_reward, length_reward],
        max_steps=3,
    )
    plain = SeveralRewards.of("kae", ["parity", "length"], weights=[1.0, 0.5], bandwidth=5.0)
    for step, batch in enumerate(trainer.batches):
        expected = plain.step(batch["prompts"], batch["rewards"].double().numpy(), step)
        np.testing.assert_allclose(batch["advantages"].numpy(), expected, atol=1e-6)
    for name in ("parity", "length"):
        assert len(trainer.advantage_estimator.estimators[name].history) == 4
        assert any(f"baseline/{name}/squared_error" in entry for entry in trainer.state.log_history)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward": parity_reward}, "for the rewards a, b, and the trainer has parity_reward"),
        ({"reward_weights": [1.0, 2.0]}, "give them to SeveralRewards"),
        ({"trainer_options": {"prompt_sampler": "neyman"}}, "prompt_sampler needs one reward"),
        ({"trainer_options": {"prior_columns": ("rate", "n")}}, "prior_columns needs a single reward"),
    ],
)
def test_what_does_not_go_with_several_rewards_is_refused(options, message, tmp_path):
    chosen = {"reward": [parity_reward, length_reward]} | options
    with pytest.raises(ValueError, match=message):
        tiny_trainer(tmp_path, gdpo(["a", "b"]), **chosen)
