"""The deprecated trainer: ids from ``non_tensor_batch``, the step from the trainer, the history in its checkpoints."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from verl import DataProto
from verl.trainer import main_ppo_v0
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, compute_advantage

from kaestat import AdvantageEstimator
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.tracked_estimator import TrackedEstimator
from kaestat.integrations.verl.checkpoint import STATE_FILE
from kaestat.integrations.verl.legacy_trainer import LegacyBaselineTrainer
from tests.helpers.tiny_verl import compose_config


@pytest.fixture
def make_trainer(monkeypatch):
    """Makes trainers without workers, which verl's ``__init__`` is about."""

    def config_only(self, config, *args, **kwargs):
        self.config, self.use_critic = config, False

    monkeypatch.setattr(RayPPOTrainer, "__init__", config_only)

    def make(*overrides, method="kae"):
        return LegacyBaselineTrainer(compose_config(f"algorithm.adv_estimator={method}", *overrides))

    return make


def objects(values):
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def step_of(trainer, prompts, ids, uids, rewards):
    """One step of verl's loop, as far as advantages are concerned: draw prompts, complete them, shuffle, compute."""
    one = {uid: row for row, uid in enumerate(uids)}
    fields = {
        "uid": list(one),
        "raw_prompt": [[{"role": "user", "content": prompts[row]}] for row in one.values()],
        "extra_info": [{} if ids[row] is None else {"index": ids[row]} for row in one.values()],
        "data_source": ["sums"] * len(one),
        "index": [0] * len(one),
    }
    drawn = DataProto.from_single_dict(
        {"dummy_tensor": torch.zeros(len(one), 1)} | {name: objects(column) for name, column in fields.items()}
    )
    trainer._get_gen_batch(drawn)
    tokens = torch.zeros(len(uids), 3)
    tokens[:, 1] = torch.as_tensor(rewards, dtype=torch.float32)
    mask = torch.tensor([[1, 1, 0]]).repeat(len(uids), 1)
    data = DataProto.from_single_dict(
        {"token_level_rewards": tokens, "response_mask": mask, "uid": objects(list(uids))}
    )
    algorithm = trainer.config.algorithm
    advantages = compute_advantage(data, adv_estimator=algorithm.adv_estimator, config=algorithm).batch["advantages"]
    assert torch.equal(advantages, advantages[:, :1] * mask)
    return advantages[:, 0].numpy()


class LegacyAdapter:
    """The trainer in the words of the conformance kit; this trainer never pads, so padding is left out."""

    def __init__(self, trainer, estimator, monkeypatch):
        self.trainer, self.monkeypatch = trainer, monkeypatch
        trainer.baseline = TrackedEstimator(estimator)

    def advantages(self, rows):
        found = np.zeros(len(rows.ids))
        real = rows.take(np.flatnonzero(~rows.padding))
        self.trainer.global_steps = rows.step + 1

        def fit(trainer):
            found[~rows.padding] = step_of(trainer, real.prompts, real.ids, real.uids, real.rewards)

        self.monkeypatch.setattr(RayPPOTrainer, "fit", fit)
        self.trainer.fit()
        return found

    def state(self):
        return self.trainer.baseline.state_dict()

    def restore(self, state):
        self.trainer.baseline.load_state_dict(state)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conforms(check, make_trainer, monkeypatch):
    check(lambda estimator: LegacyAdapter(make_trainer(), estimator, monkeypatch))


def test_verls_main_program_uses_it():
    assert main_ppo_v0.RayPPOTrainer is LegacyBaselineTrainer


def test_outside_of_its_training_loop_a_history_is_refused(make_trainer):
    with pytest.raises(ValueError, match="needs the prompts' ids and the step"):
        step_of(make_trainer(), ["2+2="], [7], ["u"], [1.0])


def test_an_estimator_of_verls_gets_verls_trainer(make_trainer):
    trainer = make_trainer(method="rloo")
    assert trainer.baseline is None
    assert step_of(trainer, ["2+2="] * 2, [7] * 2, ["u"] * 2, [1.0, 0.0]).tolist() == [1.0, -1.0]
    with pytest.raises(ValueError, match="advantages of adv_estimator=rloo are not corrected"):
        make_trainer("+algorithm.kaestat.prompt_sampler=neyman", method="rloo")


def test_rows_that_were_not_drawn_at_this_step_are_refused(make_trainer):
    trainer = make_trainer()
    trainer.global_steps = 1
    with pytest.raises(ValueError, match="not drawn at this step"):
        trainer._serve(["u"], torch.ones(1), torch.ones(1, 1))


def test_score_norms_come_from_the_log_probabilities_of_the_step(make_trainer, monkeypatch):
    squares = "actor_rollout_ref.actor.calculate_sum_pi_squared=True"
    trainer = make_trainer("+algorithm.kaestat.weights=score_norm", squares, method="kaestat_opo")
    rng, rewards = np.random.default_rng(0), [1.0, 0.0, 0.0, 1.0]
    log_probs, sums = -3 * torch.tensor(rng.random((4, 3))), torch.tensor(rng.random((4, 3)))
    actors = DataProto.from_single_dict({"old_log_probs": log_probs, "sum_pi_squared": sums, "entropys": sums})
    monkeypatch.setattr(RayPPOTrainer, "_compute_old_log_prob", lambda self, batch: (actors, 0.0))
    found = []

    def fit(trainer):
        trainer.global_steps = 1
        rows = DataProto.from_single_dict({"response_mask": torch.tensor([[1, 1, 0]] * 4), "attention_mask": sums})
        assert trainer._compute_old_log_prob(rows) == (actors, 0.0)
        found.extend(step_of(trainer, ["2+2="] * 4, [7] * 4, ["u"] * 4, rewards))

    monkeypatch.setattr(RayPPOTrainer, "fit", fit)
    trainer.fit()
    weights = (1 - 2 * log_probs.exp() + sums).clamp(min=0)[:, :2].sum(dim=1)
    expected = AdvantageEstimator("opo").step(["p"] * 4, rewards, 0, weights=weights.tolist())
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(ValueError, match="calculate_sum_pi_squared=True"):
        make_trainer("+algorithm.kaestat.weights=score_norm")


def test_the_history_goes_through_a_checkpoint(make_trainer, tmp_path, monkeypatch):
    folder = f"trainer.default_local_dir={tmp_path}"
    workers = SimpleNamespace(
        save_checkpoint=lambda path, *args, **kwargs: os.makedirs(path),
        load_checkpoint=lambda *args, **kwargs: None,
    )
    loader = type("Loader", (dict,), {"state_dict": dict, "load_state_dict": lambda self, state: None})()
    steps = [(["2+2="] * 2, [7] * 2, [f"u{step}"] * 2, [1.0, float(step % 2)]) for step in range(4)]

    def train(trainer, numbers):
        found = []

        def fit(trainer):
            for number in numbers:
                trainer.global_steps = number + 1
                found.append(step_of(trainer, *steps[number]))

        monkeypatch.setattr(RayPPOTrainer, "fit", fit)
        trainer.fit()
        return found

    whole = train(make_trainer(folder), range(4))
    stopped, resumed = make_trainer(folder), make_trainer(folder)
    for trainer in (stopped, resumed):
        trainer.actor_rollout_wg, trainer.train_dataloader = workers, loader
    train(stopped, range(2))
    stopped._save_checkpoint()
    assert (tmp_path / "global_step_2" / STATE_FILE).exists()
    resumed.global_steps = 0
    resumed._load_checkpoint()
    assert resumed.global_steps == 2
    np.testing.assert_array_equal(train(resumed, range(2, 4)), whole[2:])
