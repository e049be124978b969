"""Weights of completions: lengths, and score norms from TRL's fused LM head against the definition."""

from __future__ import annotations

import pytest
import torch

from kaestat import AdvantageEstimator, read_log
from kaestat.integrations.trl.completion_weights import WEIGHTS, completion_lengths, score_norms
from tests.helpers.tiny_trl import RecordingTrainer, questions, tiny_trainer

TEMPERATURE = 0.7


class KeepsWeights(RecordingTrainer):
    def _completion_weights(self, output):
        self._now["weights"] = super()._completion_weights(output)
        self._now["output"] = {name: value.clone() for name, value in output.items() if torch.is_tensor(value)}
        self._now["norms"] = _definition(self.model, output)
        return self._now["weights"]


def trained(folder, weights, **config):
    trainer = tiny_trainer(
        folder,
        AdvantageEstimator("kae", bandwidth=5.0),
        trainer_class=KeepsWeights,
        trainer_options={"weights": weights},
        temperature=TEMPERATURE,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=3,
        **config,
    )
    # An untrained model is all but uniform, where every token has norm 1: sharpen it, and let some tokens end.
    with torch.no_grad():
        trainer.model.get_input_embeddings().weight.mul_(8.0)
    trainer.generation_config.eos_token_id = trainer.eos_token_ids = [
        trainer._tokenizer.eos_token_id,
        *range(0, 256, 4),
    ]
    trainer.train()
    return trainer


@pytest.mark.parametrize("weights", [name for name in WEIGHTS if name != "none"])
def test_advantages_are_those_of_the_weighted_estimator(weights, tmp_path):
    trainer = trained(tmp_path, weights)
    weighted, plain = (AdvantageEstimator("kae", bandwidth=5.0) for _ in range(2))
    gap = 0.0
    for step, batch in enumerate(trainer.batches):
        rewards = batch["rewards"].sum(dim=1).double()
        expected = weighted.step(batch["prompts"], rewards, step, weights=batch["weights"].double())
        torch.testing.assert_close(batch["advantages"].double(), expected, atol=1e-6, rtol=0)
        gap += float((expected - plain.step(batch["prompts"], rewards, step)).abs().sum())
    assert gap > 0.1, "the weights made no difference"


def test_lengths_are_tokens_in_the_loss(tmp_path):
    for batch in trained(tmp_path, "length").batches:
        assert batch["weights"].tolist() == batch["mask"].sum(dim=1).tolist()
    assert len({length for batch in trained(tmp_path, "length").batches for length in batch["weights"].tolist()}) > 1


def test_score_norms_are_those_of_the_definition(tmp_path):
    for batch in trained(tmp_path, "score_norm").batches:
        torch.testing.assert_close(batch["weights"].double(), batch["norms"], rtol=1e-4, atol=1e-5)
        assert batch["weights"].std() > 0.1


def test_truncated_completions_that_trl_masks_weigh_nothing(tmp_path):
    for weights in ("length", "score_norm"):
        truncated = 0
        for batch in trained(tmp_path, weights, mask_truncated_completions=True).batches:
            masked = batch["mask"].sum(dim=1) == 0
            assert (batch["weights"][masked] == 0).all() and (batch["weights"][~masked] > 0).all()
            truncated += int(masked.sum())
        assert truncated > 0


def test_tokens_of_tools_weigh_nothing(tmp_path):
    trainer = tiny_trainer(
        tmp_path, AdvantageEstimator("kae"), trainer_options={"weights": "score_norm"}, dataset=questions(4)
    )
    output = {
        "prompt_ids": torch.tensor([[1, 2], [1, 2]]),
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([[3, 4, 5], [3, 4, 5]]),
        "completion_mask": torch.ones(2, 3, dtype=torch.long),
    }
    whole = score_norms(trainer, output)
    output["tool_mask"] = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert completion_lengths(output).tolist() == [3.0, 1.0]
    norms = score_norms(trainer, output)
    assert norms[0] == whole[0] and 0 < norms[1] < whole[1] / 2


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_ratios_enter_squared_as_the_loss_has_them(level, tmp_path):
    trainer = tiny_trainer(
        tmp_path, AdvantageEstimator("kae"), trainer_options={"weights": "score_norm"}, dataset=questions(4)
    )
    output = {
        "prompt_ids": torch.tensor([[1, 2], [1, 2]]),
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([[3, 4, 5], [6, 7, 8]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    }
    ratio = torch.tensor([[0.5, 2.0, 0.0], [1.5, 0.5, 9.0]] if level == "token" else [[0.5], [2.0]])
    by_token = []
    for place in range(3):
        output["tool_mask"] = torch.eye(3, dtype=torch.long)[place].expand(2, 3)
        by_token.append(score_norms(trainer, output))
    expected = (torch.stack(by_token, dim=1) * ratio**2).sum(dim=1)
    del output["tool_mask"]
    plain = score_norms(trainer, output)
    output["importance_sampling_ratio"] = ratio
    torch.testing.assert_close(score_norms(trainer, output), expected)
    assert not torch.allclose(expected, plain)
    trainer.loss_type = "vespo"
    torch.testing.assert_close(score_norms(trainer, output), plain)


def test_asking_for_score_norms_does_not_change_what_is_learned(tmp_path):
    # rloo on pairs: the other completion is the value, whatever the weights.
    def weights_after(weights):
        trainer = tiny_trainer(
            tmp_path, AdvantageEstimator("rloo"), trainer_options={"weights": weights}, max_steps=3, save_strategy="no"
        )
        trainer.train()
        return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])

    torch.testing.assert_close(weights_after("score_norm"), weights_after("none"), rtol=1e-6, atol=1e-7)


def _definition(model, output) -> torch.Tensor:
    """``sum_t |onehot(y_t) - softmax(logits_t / temperature)|^2`` with whole logits, one completion at a time."""
    norms = []
    for row in range(len(output["completion_ids"])):
        prompt = output["prompt_ids"][row][output["prompt_mask"][row].bool()]
        completion = output["completion_ids"][row][output["completion_mask"][row].bool()]
        if len(completion) == 0:
            norms.append(torch.tensor(0.0, dtype=torch.float64))
            continue
        with torch.no_grad():
            logits = model(input_ids=torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
        probabilities = (logits.double() / TEMPERATURE).softmax(dim=-1)
        one_hot = torch.nn.functional.one_hot(completion, logits.shape[-1])
        norms.append((one_hot - probabilities).square().sum())
    return torch.stack(norms)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_logged_completions_have_lengths_and_score_norms_and_are_read_back(weights, tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        AdvantageEstimator("kae"),
        trainer_class=RecordingTrainer if weights == "none" else KeepsWeights,
        trainer_options={"weights": weights},
        temperature=TEMPERATURE,
        log_completions=True,
        num_completions_to_print=0,
        eval_dataset=questions(4),
        eval_strategy="steps",
        eval_steps=2,
        max_steps=4,
    )
    trainer.train()
    trained = [batch for batch in trainer.batches if batch["training"]]
    assert len(trained) < len(trainer.batches)  # evaluations are logged over TRL's own files of steps 2 and 4
    log = read_log(tmp_path).frame
    lengths = torch.cat([batch["mask"].sum(dim=1) for batch in trained])
    if weights == "score_norm":
        assert len(log) < len(lengths)  # evaluations have no score norms
        step = {int(number): batch for number, batch in enumerate(trained, start=1)}
        for number, part in log.groupby("step"):
            assert sorted(part["weight"]) == pytest.approx(sorted(step[number]["norms"].tolist()), rel=1e-4)
            assert sorted(part["length"]) == sorted(step[number]["mask"].sum(dim=1).tolist())
        return
    assert len(log) == len(lengths) and "weight" not in log
    first = log[log["step"] == 1]
    assert sorted(first["length"]) == sorted(trained[0]["mask"].sum(dim=1).tolist())
