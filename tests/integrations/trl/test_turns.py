"""TRL's own tool loop, walked through by a tiny model: every turn has the library's advantage at each of its tokens."""

import itertools
import re

import numpy as np
import pytest
import torch
from datasets import Dataset
from trl import GRPOConfig

from kaestat import AdvantageEstimator
from kaestat.credit.turn_estimator import TurnEstimator
from tests.helpers.tiers import slow_after
from tests.helpers.tiny_tools import RecordingTurns, rewards_of_turns, spoken, tool_trainer
from tests.helpers.tiny_trl import RecordingTrainer, questions, train_tiny

STEPS, STOP = 5, 3
LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")


def estimator():
    return TurnEstimator("kae", bandwidth=5.0, gamma=0.9)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of some steps, with a checkpoint after each, and the weights before it."""
    folder = tmp_path_factory.mktemp("turns")
    trainer = tool_trainer(folder, estimator(), max_steps=STEPS, save_strategy="steps", save_steps=1)
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    return trainer, before, folder


def runs(mask):
    """Places of the tokens of each turn."""
    mask = mask.tolist()
    return [list(run) for own, run in itertools.groupby(range(len(mask)), mask.__getitem__) if own]


def earned_in(batch):
    """The rewards of each completion's turns; the outcome belongs to the last."""
    outcomes, earned = batch["outcomes"].sum(dim=1).tolist(), rewards_of_turns(batch["completions"])
    return [[*first, last + outcome] for (*first, last), outcome in zip(earned, outcomes, strict=True)]


def replayed(batches, plain):
    """Compare the loss's advantages with those of an estimator that sees ids, rewards and messages alone."""
    several = 0
    for step, batch in enumerate(batches):
        expected = plain.step(batch["ids"], earned_in(batch), step)
        output = batch["output"]
        own = output["tool_mask"] * (torch.arange(output["tool_mask"].shape[1]) < lengths(batch)[:, None])
        assert output["advantages"].shape == output["completion_ids"].shape
        for found, mask, of_turns in zip(output["advantages"], own, expected, strict=True):
            tokens = runs(mask)
            assert len(tokens) == len(of_turns), "turns in the mask are not those of the messages"
            wanted = torch.zeros(len(found))
            for place, advantage in zip(tokens, of_turns, strict=True):
                wanted[place] = float(advantage)
            torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)
            several += len({float(advantage) for advantage in of_turns}) > 1
    assert several > 2, "turns of a completion never had advantages of their own"


def lengths(batch):
    return batch["output"]["completion_mask"].sum(dim=1)


def test_every_turn_has_its_advantage_at_each_of_its_tokens(whole):
    trainer, before, _ = whole
    counts = [len(spoken(completion)) for batch in trainer.batches for completion in batch["completions"]]
    assert {1, 2, 3} <= set(counts), "the model did not walk through the loop: the test shows nothing"
    replayed(trainer.batches, estimator())
    assert any((now != then).any() for now, then in zip(trainer.model.parameters(), before, strict=True))


def test_what_is_logged(whole):
    trainer, _, _ = whole
    logged = [entry for entry in trainer.state.log_history if "baseline/squared_error" in entry]
    assert len(logged) == STEPS
    assert "baseline/turn_1/known_prompts" in logged[-1]
    counts = [len(spoken(completion)) for completion in trainer.batches[-1]["completions"]]
    assert logged[-1]["turns/mean"] == pytest.approx(np.mean(counts))
    sums = [sum(each) for each in rewards_of_turns(trainer.batches[-1]["completions"])]
    assert logged[-1]["turns/reward"] == pytest.approx(np.mean(sums))
    first = [of_turns[0] for of_turns in trainer.turn_advantages]
    np.testing.assert_allclose(list(trainer._logs["advantages"]), first, atol=1e-6)


def test_a_run_resumes_where_it_stopped(whole, tmp_path):
    trainer, _, folder = whole
    resumed = tool_trainer(tmp_path, estimator(), max_steps=STEPS)
    resumed.train(resume_from_checkpoint=str(folder / f"checkpoint-{STOP}"))
    assert resumed.generation == STEPS and len(resumed.batches) == STEPS - STOP
    for before, after in zip(trainer.batches[STOP:], resumed.batches, strict=True):
        assert after["completions"] == before["completions"]
        assert torch.equal(after["output"]["advantages"], before["output"]["advantages"])
    assert resumed.turn_estimator.state_dict() == trainer.turn_estimator.state_dict()


def test_without_tools_it_is_the_ordinary_trainer(tmp_path):
    found = []
    for given in (TurnEstimator("kae", bandwidth=5.0), AdvantageEstimator("kae", bandwidth=5.0)):
        of_turns = isinstance(given, TurnEstimator)
        trainer = train_tiny(
            tmp_path, given, trainer_class=RecordingTurns if of_turns else RecordingTrainer, dataset=questions(4)
        )
        found.append((trainer, [weight.detach() for weight in trainer.model.parameters()]))
    (turns, after), (plain, plain_after) = found
    for one, other in zip(turns.batches, plain.batches, strict=True):
        own = one["output"]["completion_mask"]
        assert torch.equal(one["output"]["advantages"], other["advantages"][:, None] * own)
    for one, other in zip(after, plain_after, strict=True):
        torch.testing.assert_close(one, other)


def test_evaluation_is_trls(tmp_path):
    trainer = tool_trainer(tmp_path, estimator(), max_steps=1, n_prompts=4)
    trainer.eval_dataset = trainer.train_dataset
    trainer.evaluate()
    assert [batch["training"] for batch in trainer.batches] == [False]
    assert trainer.batches[0]["output"]["advantages"].dim() == 1
    assert trainer.turn_estimator.last_step == -1


def test_completions_that_are_cut_off_count_with_the_turns_they_had(tmp_path):
    """TRL takes them out of the loss with their whole mask; what they earned is known all the same."""
    trainer = tool_trainer(
        tmp_path, estimator(), max_steps=2, max_completion_length=16, mask_truncated_completions=True
    )
    trainer.train()
    cut = [(lengths(batch) == 0).nonzero().flatten().tolist() for batch in trainer.batches]
    assert any(cut), "none was cut off: the test shows nothing"
    plain = estimator()
    for step, batch in enumerate(trainer.batches):
        expected = plain.step(batch["ids"], earned_in(batch), step)
    for found, wanted in zip(trainer.turn_advantages, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_prior_is_one_of_whole_completions(tmp_path):
    prompts = [[{"role": "user", "content": f"{k}+1="}] for k in range(4)]
    known = {"prior_mean": [0.25, 0.5, 0.75, None], "prior_count": [8, 8, 8, None]}
    trainer = tool_trainer(
        tmp_path,
        estimator(),
        turn_rewards=None,
        dataset=Dataset.from_dict({"prompt": prompts, "question_id": [f"q{k}" for k in range(4)]} | known),
        trainer_options={"prior_columns": ("prior_mean", "prior_count")},
    )
    first = trainer.turn_estimator.estimators[0]
    np.testing.assert_allclose(first.predict(["q0", "q1", "q2"], 0).value, [0.25, 0.5, 0.75])
    trainer.train()
    assert trainer.state.log_history[0]["baseline/known_prompts"] == 0.75
    assert trainer.state.log_history[0].get("baseline/turn_1/known_prompts") == 0.0


def test_another_number_of_rewards_than_turns_is_refused(tmp_path):
    trainer = tool_trainer(tmp_path, estimator(), turn_rewards=lambda completions, **_: [[1.0] * 9] * len(completions))
    with pytest.raises(ValueError, match=r"turn_rewards: completion 0 has 9 entries, but \d turns"):
        trainer.train()
    trainer = tool_trainer(tmp_path, estimator(), turn_rewards=lambda completions, **_: [[1.0]])
    with pytest.raises(ValueError, match="turn_rewards has 1 entries for 8 completions"):
        trainer.train()


def test_the_loss_types_tested_are_all_of_trl():
    documented = GRPOConfig.__doc__.split("loss_type (`str`")[1].split("mask_truncated_completions")[0]
    assert set(re.findall(r'- `"(\w+)"`', documented)) == set(LOSS_TYPES)


@pytest.mark.parametrize("loss_type", slow_after(1, LOSS_TYPES))
def test_every_loss_type_takes_advantages_of_tokens(loss_type, tmp_path):
    trainer = tool_trainer(
        tmp_path,
        estimator(),
        loss_type=loss_type,
        importance_sampling_level="sequence" if loss_type == "luspo" else "token",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=2,
    )
    trainer.train()
    replayed(trainer.batches, estimator())
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 and np.isfinite(losses).all()


@pytest.mark.parametrize("option", [{"weights": "length"}, {"prompt_sampler": "neyman"}])
def test_what_is_not_for_turns_is_refused(option, tmp_path):
    with pytest.raises(ValueError, match="is not for turns"):
        tool_trainer(tmp_path, estimator(), trainer_options=option)


def test_what_is_no_function_or_no_estimator_of_turns_is_refused(tmp_path):
    async def later(**_):
        return []

    for wrong in (later, [[1.0]]):
        with pytest.raises(TypeError, match="turn_rewards must be a function"):
            tool_trainer(tmp_path, estimator(), turn_rewards=wrong)
    with pytest.raises(TypeError, match="TurnEstimator, got AdvantageEstimator"):
        RecordingTurns(turn_estimator=AdvantageEstimator("kae"))


def test_a_rollout_of_ones_own_tells_its_turns_by_env_mask(tmp_path):
    mask = [1, 1, 0, 0, 1, 0, 1, 1]

    def rollout(prompts, trainer):
        ids = [[65 + k] * len(mask) for k in range(len(prompts))]
        return {
            "prompt_ids": [[49, 50]] * len(ids),
            "completion_ids": ids,
            "logprobs": None,
            "env_mask": [mask] * len(ids),
        }

    trainer = train_tiny(
        tmp_path,
        TurnEstimator("rloo"),
        trainer_class=RecordingTurns,
        trainer_options={
            "rollout_func": rollout,
            "turn_rewards": lambda completion_ids, **_: [[0.0, float(ids[0] % 2), 0.0] for ids in completion_ids],
        },
        reward=lambda completions, **_: [0.0] * len(completions),
        max_completion_length=len(mask),
        max_steps=1,
    )
    (batch,) = trainer.batches
    earned = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]  # of the first two turns, before the others' is left out
    expected = torch.tensor(earned) * torch.tensor([[1.0], [-1.0]] * 4)
    assert torch.equal(batch["output"]["advantages"], expected)
