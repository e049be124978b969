"""Checkpoints of the V1 trainers: a resumed run is the uninterrupted one, and none goes on with half a history."""

import os
from types import SimpleNamespace

import pytest
import torch

from kaestat.integrations.verl.checkpoint import STATE_FILE
from tests.helpers.tiny_verl import compute, make_trainer, put
from tests.integrations.verl.trainer.test_trainer import groups, samples_of


class Workers:
    """Stands for verl's actor workers, which write and read the model."""

    def save_checkpoint(self, path, *args, **kwargs):
        os.makedirs(path)

    def load_checkpoint(self, *args, **kwargs):
        pass


def trainer_in(folder, *overrides, **kwargs):
    trainer = make_trainer(f"trainer.default_local_dir={folder}", *overrides, **kwargs)
    trainer.actor_rollout_wg = Workers()
    trainer.train_dataloader = SimpleNamespace(state_dict=dict, load_state_dict=lambda state: None)
    return trainer


def run(queue, trainer, steps):
    return [compute(queue, trainer, put(queue, samples_of(groups(step))), step)[0] for step in steps]


@pytest.mark.parametrize("method", ["kae", "spo", "ebpo", "kae_eb"])
@pytest.mark.parametrize("resume_mode", ["auto", "resume_path"])
def test_a_run_resumed_in_the_middle_is_the_uninterrupted_one(queue, tmp_path, method, resume_mode):
    whole = run(queue, trainer_in(tmp_path, method=method), range(6))
    stopped = trainer_in(tmp_path, method=method)
    run(queue, stopped, range(3))
    stopped._save_checkpoint()
    run(queue, stopped, range(3, 4))  # trained on, died, and comes back to the checkpoint

    path = [f"trainer.resume_from_path={tmp_path}/global_step_3"] if resume_mode == "resume_path" else []
    resumed = trainer_in(tmp_path, f"trainer.resume_mode={resume_mode}", *path, method=method)
    resumed._load_checkpoint()
    assert resumed.global_steps == 3
    for found, expected in zip(run(queue, resumed, range(3, 6)), whole[3:], strict=True):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found), "a resumed run differs"


def test_the_history_is_there_before_verl_calls_the_checkpoint_complete(queue, tmp_path, monkeypatch):
    trainer = trainer_in(tmp_path)
    run(queue, trainer, range(2))

    def dies(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", dies)
    with pytest.raises(OSError, match="no space"):
        trainer._save_checkpoint()
    assert (tmp_path / "global_step_2" / STATE_FILE).exists()
    assert not (tmp_path / "latest_checkpointed_iteration.txt").exists()


def checkpoint_of_verl_alone(folder):
    trainer = trainer_in(folder, mode="sync", method="grpo")
    trainer.global_steps = 3
    trainer._save_checkpoint()


def test_a_checkpoint_without_a_history_is_refused(queue, tmp_path):
    checkpoint_of_verl_alone(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"\+algorithm\.kaestat\.start_anew=True"):
        trainer_in(tmp_path)._load_checkpoint()


def test_a_history_may_begin_at_a_checkpoint_if_that_is_asked_for(queue, tmp_path):
    checkpoint_of_verl_alone(tmp_path)
    trainer = trainer_in(tmp_path, "+algorithm.kaestat.start_anew=True")
    with pytest.warns(UserWarning, match=r"baseline_state does not exist: the history of 'kae' begins here"):
        trainer._load_checkpoint()
    fresh = run(queue, trainer_in(tmp_path), range(3, 5))
    for found, expected in zip(run(queue, trainer, range(3, 5)), fresh, strict=True):
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_a_method_without_a_history_resumes_from_any_checkpoint(tmp_path):
    checkpoint_of_verl_alone(tmp_path)
    trainer = trainer_in(tmp_path, method="james_stein")
    trainer._load_checkpoint()
    assert trainer.global_steps == 3
