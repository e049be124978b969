"""A tiny model trains through TRL, and the advantages in its loss are the estimator's."""

import numpy as np
import pytest
import torch
from datasets import concatenate_datasets

from kaestat import AdvantageEstimator
from kaestat.integrations.trl import BaselineGRPOConfig
from tests.helpers.tiers import slow_after
from tests.helpers.tiny_trl import RecordingTrainer, questions, tiny_trainer, train_tiny

METHODS = {"kae": {"bandwidth": 5.0}, "kae_eb": {"bandwidth": 5.0}, "rloo": {}, "spo": {}}


def replayed(trainer: RecordingTrainer, estimator: AdvantageEstimator) -> None:
    """The trainer's generations through a second estimator, prompts known by their text."""
    batches = [batch for batch in trainer.batches if batch["training"]]
    for step, batch in enumerate(batches):
        expected = estimator.step(batch["prompts"], batch["rewards"].sum(dim=1).double(), step)
        np.testing.assert_allclose(batch["advantages"].numpy(), expected.numpy(), atol=1e-6)
    assert any(batch["advantages"].abs().max() > 0.1 for batch in batches)


@pytest.mark.parametrize("method", slow_after(1, METHODS))
def test_advantages_in_the_loss_are_those_of_the_estimator(method, tmp_path):
    estimator = AdvantageEstimator(method, **METHODS[method])
    trainer = tiny_trainer(tmp_path, estimator, trainer_class=RecordingTrainer, max_steps=4)
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()

    assert len(trainer.batches) == 4
    replayed(trainer, AdvantageEstimator(method, **METHODS[method]))
    assert any((now != then).any() for now, then in zip(trainer.model.parameters(), before, strict=True))
    logged = [entry for entry in trainer.state.log_history if "baseline/error" in entry]
    assert len(logged) == 4 and all(np.isfinite(entry["baseline/error"]) for entry in logged)
    assert ("baseline/past_completions" in logged[-1]) == (method != "rloo")


def test_two_groups_of_a_prompt_in_one_batch_are_compared_as_trl_compares_them(tmp_path):
    trainer = train_tiny(
        tmp_path, AdvantageEstimator("rloo"), dataset=concatenate_datasets([questions(1)] * 4), max_steps=1
    )
    (batch,) = trainer.batches
    assert len(set(batch["prompts"])) == 1
    groups = batch["rewards"].sum(dim=1).view(-1, 2)
    torch.testing.assert_close(batch["advantages"], (groups - groups.flip(1)).view(-1), atol=1e-6, rtol=0)


def test_one_completion_per_prompt(tmp_path):
    estimator = AdvantageEstimator("kae", bandwidth=5.0)
    trainer = train_tiny(tmp_path, estimator, num_generations=1, n_prompts=8, max_steps=4)
    assert all(len(set(batch["prompts"])) == 8 for batch in trainer.batches)
    replayed(trainer, AdvantageEstimator("kae", bandwidth=5.0))
    last = trainer.state.log_history[-2]
    assert "baseline/error" not in last and last["baseline/squared_error"] > 0  # G = 1: no variance within groups


def test_an_odd_generation_batch_is_refused_with_what_to_change(tmp_path):
    with pytest.raises(ValueError, match="num_generations=1 needs an even number of completions"):
        BaselineGRPOConfig(output_dir=str(tmp_path), num_generations=1, per_device_train_batch_size=3, use_cpu=True)


def test_generations_within_one_optimizer_step_are_steps_of_their_own(tmp_path):
    # global_step stands still between them, and all 4 prompts come in each: steps told by it would collide.
    estimator = AdvantageEstimator("kae", bandwidth=5.0)
    trainer = train_tiny(
        tmp_path,
        estimator,
        trainer_options={"reuse": 2},
        gradient_accumulation_steps=2,
        steps_per_generation=1,
        max_steps=2,
    )
    assert [batch["step"] for batch in trainer.batches] == [0, 0, 1, 1]
    assert len({frozenset(batch["prompts"]) for batch in trainer.batches}) == 1
    assert estimator.history.last_step == 3 and trainer.generation == 4
    replayed(trainer, AdvantageEstimator("kae", bandwidth=5.0))


def test_evaluation_leaves_the_history_alone_and_keeps_trl_advantages(tmp_path):
    estimator = AdvantageEstimator("kae", bandwidth=5.0)
    trainer = train_tiny(
        tmp_path, estimator, eval_dataset=questions(4), eval_strategy="steps", eval_steps=1, max_steps=2
    )
    assert [batch["training"] for batch in trainer.batches] == [True, False, True, False]
    replayed(trainer, AdvantageEstimator("kae", bandwidth=5.0))
    assert estimator.history.last_step == 1
    assert not any(name.startswith("eval_baseline") for entry in trainer.state.log_history for name in entry)
