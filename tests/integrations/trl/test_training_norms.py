"""Weights from TRL's own backward pass: the loop's norms, predictable advantages, and where they are not to be had."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate.utils import DistributedType
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from trl.trainer.utils import selective_log_softmax

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.weights import KEPT, LEAST, ExpectedWeights
from kaestat.integrations.trl.completion_weights import check_parameter_norms
from kaestat.integrations.trl.training_norms import reads_training_pass
from tests.helpers.tiny_trl import RecordingTrainer, check_resumed, end_at_every, tiny_trainer
from tests.integrations.test_gradient_norms import SMALL, gpt2
from tests.integrations.trl.test_weights import KeepsReferences


class KeepsEstimators(KeepsReferences):
    """And the estimator from before each generation."""

    def _advantages(self, scored, weights):
        self._now["before"] = copy.deepcopy(self.advantage_estimator)
        return super()._advantages(scored, weights)


def trained(folder, trainer_class=KeepsEstimators, estimator=None, group=1, **config):
    batches = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    trainer = tiny_trainer(
        folder,
        AdvantageEstimator("kae_eb") if estimator is None else estimator,
        n_prompts=8,
        trainer_class=trainer_class,
        num_generations=group,
        trainer_options={"weights": "adam", "prompt_id": "question_id"},
        **batches | {"max_steps": 4, "temperature": 0.7} | config,
    )
    end_at_every(trainer, 4)
    return trainer


@pytest.mark.parametrize(("method", "group"), [("kae_eb", 1), ("rloo", 4)])
def test_weights_are_the_loops_and_advantages_take_those_that_rewards_let_expect(method, group, tmp_path):
    config = {"gradient_checkpointing": True, "num_iterations": 2, "max_steps": 8}
    trainer = trained(tmp_path, estimator=AdvantageEstimator(method, scale="none"), group=group, **config)
    trainer.train()
    assert trainer._norms_to_come is not None and len(trainer.batches) == 4
    sums, later = np.zeros((2, 2)), copy.deepcopy(trainer.batches[0]["before"])
    for step, batch in enumerate(trainer.batches):
        weights, rewards = batch["weights"].double(), batch["rewards"][:, 0].double().numpy()
        torch.testing.assert_close(weights, batch["adam"] / batch["adam"].mean(), rtol=1e-4, atol=0)
        expected = np.ones(len(rewards))
        if step:
            mean = sums[1].sum() / sums[0].sum()
            expected = np.maximum((sums[1] / np.where(sums[0] > 0, sums[0], 1))[rewards.astype(int)], LEAST * mean)
        np.testing.assert_allclose(batch["expected"], expected, rtol=1e-9)
        ids = [f"q{prompt.split('+')[0]}" for prompt in batch["prompts"]]
        advantages = batch["before"].step(ids, rewards, step, weights=expected)
        np.testing.assert_allclose(batch["advantages"], advantages, rtol=1e-5, atol=1e-6)
        later.step(ids, rewards, step, weights=weights.numpy())
        for reward in (0, 1):
            here = rewards == reward
            sums[:, reward] = KEPT * sums[:, reward] + [here.sum(), weights.numpy()[here].sum()]
    assert np.ptp(batch["expected"]) > 0.01
    if group == 1:
        values = trainer.advantage_estimator.predict(ids, step + 1).value
        np.testing.assert_allclose(later.predict(ids, step + 1).value, values, rtol=1e-5)


def test_expected_weights_follow_the_line_through_rewards_and_stay_positive(tmp_path):
    expected = ExpectedWeights()
    assert expected(np.array([0.0, 0.3])).tolist() == [1.0, 1.0]
    expected.add(np.zeros(3), np.array([2.0, 2.0, 5.0]))
    assert expected(np.array([0.0, 1.0])).tolist() == [3.0, 3.0]  # one reward tells no slope
    expected = ExpectedWeights()
    rewards = np.linspace(0.0, 1.0, 5)
    expected.add(rewards, 1 - rewards)
    np.testing.assert_allclose(expected(np.array([0.25, 1.0])), [0.75, LEAST * 0.5])
    expected.save(tmp_path)
    again = ExpectedWeights()
    again.load(tmp_path)
    assert again(rewards).tolist() == expected(rewards).tolist()


class OtherLoss(KeepsReferences):
    """A loss in which the tokens of a completion do not count alike."""

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        log_probs, *rest = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        return log_probs * torch.linspace(0.5, 1.5, log_probs.shape[1]), *rest


class LossElsewhere(KeepsReferences):
    """A loss that takes log-probabilities from a call of the model of its own, as Unsloth's trainer does."""

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        return (None, None, None) if torch.is_grad_enabled() else super()._get_per_token_logps_and_entropies(*args)

    def _compute_loss(self, model, inputs):
        ids, mask = inputs["completion_ids"], inputs["completion_mask"]
        given = {
            name: torch.cat([inputs[f"prompt_{name}"], inputs[f"completion_{name}"]], 1) for name in ("ids", "mask")
        }
        logits = model(input_ids=given["ids"], attention_mask=given["mask"]).logits[:, -ids.shape[1] - 1 : -1]
        self._get_per_token_logps_and_entropies()
        log_probs = selective_log_softmax(logits / self.temperature, ids)
        return -((log_probs - log_probs.detach()).exp() * inputs["advantages"][:, None] * mask).sum() / mask.sum()


@pytest.mark.parametrize("trainer_class", [OtherLoss, LossElsewhere])
def test_a_loss_that_does_not_tell_norms_is_noticed_and_they_take_a_pass_of_their_own(trainer_class, tmp_path):
    trainer = trained(tmp_path, trainer_class, max_steps=2)
    with pytest.warns(UserWarning, match="completions the loss is not advantage times TRL's log-probability"):
        trainer.train()
    assert trainer._norms_to_come is None and trainer.generation == 2
    assert trainer.batches[0]["weights"].isnan().all()  # none are logged
    last = trainer.batches[-1]
    torch.testing.assert_close(last["weights"].double(), last["adam"] / last["adam"].mean(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("method", "group"), [("kae_eb", 1), ("rloo", 4)])
def test_a_resumed_run_goes_on_with_the_weights_it_expects(method, group, tmp_path):
    design = {"estimator": AdvantageEstimator(method, scale="none"), "group": group}
    whole = trained(tmp_path, RecordingTrainer, save_strategy="steps", save_steps=2, **design)
    whole.train()
    design["estimator"] = AdvantageEstimator(method, scale="none")
    resumed = trained(tmp_path / "again", RecordingTrainer, **design)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    check_resumed(whole, resumed, 2)
    assert resumed._expected(np.arange(2.0)).tolist() == whole._expected(np.arange(2.0)).tolist()


def test_the_training_pass_is_read_only_where_it_tells_all(tmp_path):
    trainer = trained(tmp_path, RecordingTrainer)
    estimator = trainer.advantage_estimator
    assert reads_training_pass(trainer, estimator)
    assert not reads_training_pass(trainer, AdvantageEstimator("reinforce++", scale="none"))  # no past
    for method, group, read in (("rloo", 4, True), ("rloo", 16, False), ("grpo", 4, False), ("kae_eb", 4, False)):
        trainer.num_generations = group
        assert reads_training_pass(trainer, AdvantageEstimator(method)) == read, method
    trainer.num_generations = 1
    for owner, name, value in (
        (trainer, "num_generations", 2),
        (trainer, "beta", 0.1),
        (trainer, "top_entropy_quantile", 0.5),
        (trainer, "off_policy_mask_threshold", 0.1),
        (trainer, "aux_loss_enabled", True),
        (trainer, "_entropy_bonus_enabled", True),
        (trainer.args, "steps_per_generation", 4),
        (trainer.args, "fp16", True),
        (trainer.args, "torch_compile", True),
        (trainer.model.config, "final_logit_softcapping", 30.0),
        (trainer.model.config, "logits_scaling", 8.0),
    ):
        before = getattr(owner, name, None)
        setattr(owner, name, value)
        assert not reads_training_pass(trainer, estimator), name
        setattr(owner, name, before)
    assert reads_training_pass(trainer, estimator)


def experts():
    own = {"num_key_value_heads": 1, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**SMALL, **own, intermediate_size=20))


def constructed(model):
    """What a trainer knows of its model when it is made."""
    return SimpleNamespace(
        model=model,
        accelerator=SimpleNamespace(distributed_type=DistributedType.NO, gather=lambda each: each),
        args=SimpleNamespace(per_device_train_batch_size=2, gradient_checkpointing_kwargs=None),
        temperature=1.0,
        loss_type="dapo",
    )


@pytest.mark.parametrize(
    ("made", "named"), [(experts, r"mlp\.(gate|experts)"), (gpt2, r"wpe.*freeze")], ids=["experts", "gpt2"]
)
def test_models_whose_norms_cannot_be_taken_are_refused_when_the_trainer_is_made(made, named):
    with pytest.raises(
        ValueError, match=rf"weights: 'exact' and 'adam' do not work with this model.*{named}.*score_norm"
    ):
        check_parameter_norms(constructed(made()))
