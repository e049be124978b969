"""Weights of completions: lengths, and score norms from TRL's fused LM head against the definition."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType
from torch.distributed.fsdp import CPUOffloadPolicy

from kaestat import AdvantageEstimator, read_log
from kaestat.integrations.adam_units import mean_squares
from kaestat.integrations.trl.completion_weights import (
    NORMS,
    WEIGHTS,
    check_parameter_norms,
    completion_lengths,
    parameter_norms,
    score_norms,
)
from tests.helpers.small_policies import reference_scores
from tests.helpers.tiers import slow_after
from tests.helpers.tiny_trl import RecordingTrainer, WeighingTrainer, end_at_every, questions, tiny_trainer
from tests.integrations.test_gradient_norms import roots

TEMPERATURE = 0.7


class KeepsReferences(WeighingTrainer):
    """Also what the weights should be, which takes a gradient of each completion."""

    def _completion_weights(self, output):
        self._now["length"] = output["completion_mask"].sum(dim=1).double()
        self._now["score_norm"] = _definition(self.model, output)
        self._now["exact"] = _of_gradients(self.model, output)
        self._now["adam"] = _of_gradients(self.model, output, mean_squares(self.optimizer))
        return super()._completion_weights(output)


def trained(folder, weights, trainer_class=WeighingTrainer, **config):
    trainer = tiny_trainer(
        folder,
        AdvantageEstimator("kae", bandwidth=5.0),
        trainer_class=trainer_class,
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
    end_at_every(trainer, 4)
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """The batches of the run with these weights, trained once."""

    @cache
    def batches(weights):
        return tuple(trained(tmp_path_factory.mktemp(weights), weights, KeepsReferences).batches)

    return batches


@pytest.mark.parametrize("weights", [name for name in WEIGHTS if name != "none"])
def test_advantages_are_those_of_the_weighted_estimator(weights, run_of):
    weighted, plain = (AdvantageEstimator("kae", bandwidth=5.0) for _ in range(2))
    gap = 0.0
    for step, batch in enumerate(run_of(weights)):
        rewards = batch["rewards"].sum(dim=1).double()
        expected = weighted.step(batch["prompts"], rewards, step, weights=batch["weights"].double())
        torch.testing.assert_close(batch["advantages"].double(), expected, atol=1e-6, rtol=0)
        gap += float((expected - plain.step(batch["prompts"], rewards, step)).abs().sum())
    assert gap > 0.1, "the weights made no difference"


@pytest.mark.parametrize("weights", [name for name in WEIGHTS if name != "none"])
def test_weights_are_those_of_the_definition_and_of_each_completions_own_gradient(weights, run_of):
    for batch in run_of(weights):
        expected = batch[weights] / batch["adam"].mean() if weights == "adam" else batch[weights]
        torch.testing.assert_close(batch["weights"].double(), expected, rtol=1e-3, atol=1e-5)
        assert batch["weights"].std() > 0.1
    if weights == "adam":  # before the first step there are no units
        plain, in_units = (torch.stack([batch[name] for batch in run_of(weights)]) for name in ("exact", "adam"))
        assert torch.equal(plain[0], in_units[0]) and not torch.allclose(plain[1], in_units[1], rtol=0.02)


OFFLOADED = {"fsdp_version": 2, "cpu_offload": CPUOffloadPolicy()}


@pytest.mark.parametrize(
    ("spread", "given"),
    [("FSDP", {"fsdp_version": 1, "cpu_offload": None}), ("FSDP", OFFLOADED), ("MEGATRON_LM", {}), ("DEEPSPEED", {})],
)
def test_parameters_that_cannot_be_read_are_refused_when_the_trainer_is_made(spread, given):
    state = SimpleNamespace(fsdp_plugin=SimpleNamespace(**given))
    accelerator = SimpleNamespace(distributed_type=DistributedType[spread], state=state)
    with pytest.raises(ValueError, match=rf"as {spread} holds them.*'score_norm'.*fsdp_version: 2"):
        check_parameter_norms(SimpleNamespace(accelerator=accelerator))


def test_an_optimizer_whose_units_are_not_known_is_refused_when_the_trainer_is_made(tmp_path):
    with pytest.raises(ValueError, match=r"Adafactor does not keep .* norms in no optimiser's units"):
        tiny_trainer(tmp_path, AdvantageEstimator("kae"), trainer_options={"weights": "adam"}, optim="adafactor")


@pytest.fixture
def by_hand(tmp_path):
    """A trainer that has not trained, and two completions after the same prompt."""
    options = {"weights": "score_norm"}
    return tiny_trainer(tmp_path, AdvantageEstimator("kae"), trainer_options=options, dataset=questions(4)), {
        "prompt_ids": torch.tensor([[1, 2], [1, 2]]),
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([[3, 4, 5], [3, 4, 5]]),
        "completion_mask": torch.ones(2, 3, dtype=torch.long),
    }


def test_tokens_of_tools_weigh_nothing(by_hand):
    trainer, output = by_hand
    whole = score_norms(trainer, output)
    output["tool_mask"] = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert completion_lengths(output).tolist() == [3.0, 1.0]
    norms = score_norms(trainer, output)
    assert norms[0] == whole[0] and 0 < norms[1] < whole[1] / 2
    alone = parameter_norms(trainer, output, in_adams_units=False)
    torch.testing.assert_close(alone.double(), _of_gradients(trainer.model, output, temperature=trainer.temperature))


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_importance_ratios_enter_squared_as_the_loss_has_them(level, by_hand):
    trainer, output = by_hand
    output |= {
        "completion_ids": torch.arange(3, 9).reshape(2, 3),
        "completion_mask": torch.tensor([[1] * 3, [1, 1, 0]]),
    }
    ratio = torch.tensor([[0.5, 2.0, 0.0], [1.5, 0.5, 9.0]] if level == "token" else [[0.5], [2.0]])
    one_token = torch.eye(3, dtype=torch.long)[:, None].expand(3, 2, 3)
    by_token = torch.stack([score_norms(trainer, output | {"tool_mask": mask}) for mask in one_token], dim=1)
    expected, plain = (by_token * ratio**2).sum(dim=1), score_norms(trainer, output)
    output["importance_sampling_ratio"] = ratio
    torch.testing.assert_close(score_norms(trainer, output), expected)
    assert not torch.allclose(expected, plain)
    trainer.loss_type = "vespo"
    torch.testing.assert_close(score_norms(trainer, output), plain)


def _completions(output):
    """The tokens of each prompt and completion, without padding, and which of the latter are in the loss."""
    for row, mask in enumerate(output["completion_mask"].bool()):
        prompt = output["prompt_ids"][row][output["prompt_mask"][row].bool()]
        counted = output["tool_mask"][row][mask] if "tool_mask" in output else 1
        yield prompt, output["completion_ids"][row][mask], counted


def _of_gradients(model, output, squares=None, temperature=TEMPERATURE) -> torch.Tensor:
    """Each completion's own gradient over the roots of the factored mean squares."""
    norms, parameters = [], [each for each in model.parameters() if each.requires_grad]
    for prompt, completion, counted in _completions(output):
        logits = model(input_ids=torch.cat([prompt, completion])[None]).logits[0, len(prompt) - 1 : -1]
        scores = (logits / temperature).log_softmax(-1).gather(1, completion[:, None])[:, 0]
        gradients = torch.autograd.grad((scores * counted).sum(), parameters, allow_unused=True)
        pairs = [pair for pair in zip(parameters, gradients, strict=True) if pair[1] is not None]
        norms.append(sum(float((each.double() / roots(own, squares)).square().sum()) for own, each in pairs))
    return torch.tensor(norms, dtype=torch.float64)


def _definition(model, output) -> torch.Tensor:
    """``sum_t |onehot(y_t) - softmax(logits_t / temperature)|^2`` with whole logits, one completion at a time."""
    pairs = [(prompt.tolist(), completion.tolist()) for prompt, completion, _ in _completions(output)]
    norms = [reference_scores(model, *pair, TEMPERATURE)[1] if pair[1] else 0.0 for pair in pairs]
    return torch.tensor(norms, dtype=torch.float64)


@pytest.mark.parametrize("weights", slow_after(2, ["score_norm", "adam", "exact", "length", "none"]))
def test_logged_completions_have_lengths_and_score_norms_and_are_read_back(weights, tmp_path):
    trainer = tiny_trainer(
        tmp_path,
        AdvantageEstimator("kae"),
        trainer_class=RecordingTrainer if weights == "none" else WeighingTrainer,
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
    assert sorted(set(log["step"])) == [1, 3] and ("weight" in log) == (weights in NORMS)
    for number, part in log.groupby("step"):
        batch = trained[int(number) - 1]
        assert sorted(part["length"]) == sorted(batch["mask"].sum(dim=1).tolist())
        if weights in NORMS:
            assert sorted(part["weight"]) == pytest.approx(sorted(batch["weights"].tolist()), rel=1e-4)
