"""The estimator's state is in every checkpoint, and a resumed run goes on as if it had never stopped."""

import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.trl import STATE_FILE
from tests.helpers.tiers import slow_after
from tests.helpers.tiny_trl import RecordingTrainer, check_resumed, tiny_trainer

SAVING = {"save_strategy": "steps", "save_steps": 1}


def trainer_of(folder, method="kae", reuse=1, **config):
    params = {"bandwidth": 5.0} if method.startswith("kae") else {}
    return tiny_trainer(
        folder,
        AdvantageEstimator(method, **params),
        n_prompts=12,
        trainer_class=RecordingTrainer,
        trainer_options={"reuse": reuse, "prompt_id": "question_id"},
        **config,
    )


@pytest.mark.parametrize(
    ("method", "reuse", "stop"),
    slow_after(1, [("kae", 2, 3), ("kae", 1, 4), ("kae", 1, 3), ("kae_eb", 1, 5), ("spo", 1, 4), ("rloo", 1, 4)]),
)
def test_resumed_advantages_are_those_of_an_uninterrupted_run(method, reuse, stop, tmp_path):
    # 3 minibatches an epoch: the stops lie within the second epoch and between epochs.
    whole = trainer_of(tmp_path, method, reuse, max_steps=7, **SAVING)
    whole.train()
    resumed = trainer_of(tmp_path / "again", method, reuse, max_steps=7)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop}"))
    assert whole.generation == 7
    check_resumed(whole, resumed, stop)
    whole.advantage_estimator.save(tmp_path / "whole")
    resumed.advantage_estimator.save(tmp_path / "resumed")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "resumed").read_bytes()


def test_a_checkpoint_without_state_is_refused_where_the_method_remembers(tmp_path):
    trainer_of(tmp_path, max_steps=2, **SAVING).train()
    (tmp_path / "checkpoint-2" / STATE_FILE).unlink()
    checkpoint = str(tmp_path / "checkpoint-2")
    for method in ("kae", "spo", "ebpo"):
        with pytest.raises(ValueError, match=r"checkpoint-2.*history.*model='.*checkpoint-2'"):
            trainer_of(tmp_path / "again", method, max_steps=3).train(resume_from_checkpoint=checkpoint)
    memoryless = trainer_of(tmp_path / "again", "rloo", max_steps=3)
    memoryless.train(resume_from_checkpoint=checkpoint)
    assert len(memoryless.batches) == 1


@pytest.mark.parametrize("left", [None, STATE_FILE, "trainer_state.json"])  # what the kill left, of three moments
def test_a_checkpoint_cut_short_is_refused_by_the_name_of_the_latest_whole_one(left, tmp_path):
    trainer = trainer_of(tmp_path, max_steps=11, **SAVING | {"save_steps": 5})
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if left is not None:
            (tmp_path / f"checkpoint-{step}" / left).write_text('{"half')
    for chosen in (True, str(tmp_path / "checkpoint-10")):
        with pytest.raises(ValueError, match=r"checkpoint-10 was not written to its end.*start without"):
            trainer.train(resume_from_checkpoint=chosen)
    (tmp_path / "checkpoint-10").rename(tmp_path / "checkpoint-15")
    trainer_of(tmp_path, max_steps=5, **SAVING | {"save_steps": 5}).train()
    with pytest.raises(ValueError, match=r"checkpoint-15 .*resume_from_checkpoint='.*checkpoint-5'"):
        trainer.train(resume_from_checkpoint=True)


def test_a_checkpoint_amid_a_generation_goes_on_with_fresh_completions(tmp_path):
    # 2 optimizer steps per generation: TRL loses the other half of the completions and generates anew.
    config = {"per_device_train_batch_size": 4, "steps_per_generation": 2, "gradient_accumulation_steps": 1}
    trainer_of(tmp_path, max_steps=3, **config, **SAVING).train()
    resumed = trainer_of(tmp_path / "again", max_steps=6, **config)
    with pytest.warns(UserWarning, match="step 3 lies within a generation"):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert [batch["step"] for batch in resumed.batches] == [3, 4]  # and on in the old rhythm
    assert resumed.advantage_estimator.history.last_step == 1 + len(resumed.batches)
