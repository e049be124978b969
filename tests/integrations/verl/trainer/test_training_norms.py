"""Weights from the actor's update: refused where it does not give them, recorded after it, and resumed."""

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.backward_norms import TINY
from kaestat.integrations.shared.weights import FILE, ExpectedWeights
from kaestat.integrations.verl import norms_worker
from kaestat.integrations.verl.norms_worker import ASKED, NormsWorker, square_sums
from tests.helpers.tiny_verl import compute, make_trainer, put, sample
from tests.integrations.verl.trainer.test_resume import Workers, trainer_in

ACTOR = "actor_rollout_ref.actor."
ONE = (f"{ACTOR}strategy=fsdp2", "actor_rollout_ref.rollout.n=1", "data.train_batch_size=4")
ADAM = ("+algorithm.kaestat.weights=adam", *ONE)


def completions(step, count=4):
    """One completion of each prompt; the norm of what is right is larger, on the whole."""
    rng = np.random.default_rng(step)
    prompts, rewards = rng.permutation(6)[:count], (rng.random(count) < 0.5).astype(float)
    return prompts.tolist(), rewards, rng.gamma(3.0, size=count) * (1 + rewards)


class Update(Workers):
    """Stands for two processes of the actor, which answer in any order; notes what the batch asked for."""

    def __init__(self):
        self.norms, self.asked = np.zeros(0), []

    def try_norms(self):
        self.asked.append("tried")

    def update_actor(self, batch):
        self.asked.append(batch.extra_info.get(ASKED))
        return {"metrics": {"mfu": [0.1], "loss": [0.0]}}

    def row_norms(self):
        first, second = np.split(self.norms.astype(np.float32), 2)
        return [(1, second), (0, first)]


def groups(step):
    """Three completions of each prompt, side by side."""
    prompts, rewards, norms = completions(step, count=6)
    return [prompt for prompt in prompts[:2] for _ in range(3)], rewards, norms


def run(queue, trainer, steps, given=completions):
    found = []
    for step in steps:
        prompts, rewards, norms = given(step)
        sessions = [prompts[:row].count(prompt) for row, prompt in enumerate(prompts)]
        triples = zip(prompts, sessions, rewards, strict=True)
        rows = [sample(f"u{p}s{step}", k, 0, f"{p}+1", p, r, 3) for p, k, r in triples]
        batch = put(queue, rows)
        advantages, _ = compute(queue, trainer, batch, step)
        found.append(np.array([float(advantages[key][0]) for key in batch.keys]))
        trainer.actor_rollout_wg.norms = norms
        trainer._update_actor(batch, {})
        assert ASKED not in batch.extra_info
    return found


def same_values(trainer, plain, step):
    found = trainer.session.estimator.predict([f'["sums","train",{prompt}]' for prompt in range(6)], step)
    np.testing.assert_allclose(found.value, plain.predict(list(range(6)), step).value, rtol=1e-5)


def adam_trainer(folder, *overrides):
    trainer = trainer_in(folder, *ADAM, *overrides)
    trainer.actor_rollout_wg = Update()
    return trainer


@pytest.mark.parametrize("weights", ["adam", "exact"])
def test_advantages_take_expected_weights_and_the_history_the_norms(queue, weights, tmp_path):
    trainer = adam_trainer(tmp_path, f"algorithm.kaestat.weights={weights}")
    plain, expected = AdvantageEstimator("kae"), ExpectedWeights()
    for step, found in enumerate(run(queue, trainer, range(6))):
        prompts, rewards, norms = completions(step)
        own = norms / norms.mean() if weights == "adam" else norms
        history = AdvantageEstimator("kae")
        history.load_state_dict(plain.state_dict())
        wanted = history.step(prompts, rewards, step, weights=expected(rewards))
        np.testing.assert_allclose(found, np.where(np.abs(wanted) < TINY, TINY, wanted), rtol=1e-5, atol=1e-6)
        assert (found != 0).all(), "a row that sends nothing back has no norm"
        plain.step(prompts, rewards, step, weights=own)
        expected.add(rewards, own)
    assert trainer.actor_rollout_wg.asked == [weights] * 6
    same_values(trainer, plain, 6)


def test_advantages_of_groups_take_expected_weights(queue, tmp_path):
    method = ("algorithm.adv_estimator=kaestat_rloo", "actor_rollout_ref.rollout.n=3")
    trainer, expected = adam_trainer(tmp_path, *method), ExpectedWeights()
    for step, found in enumerate(run(queue, trainer, range(4), groups)):
        prompts, rewards, norms = groups(step)
        wanted = AdvantageEstimator("rloo").step(prompts, rewards, step, weights=expected(rewards))
        np.testing.assert_allclose(found, np.where(np.abs(wanted) < TINY, TINY, wanted), rtol=1e-5, atol=1e-6)
        assert (found != 0).all(), "a row that sends nothing back has no norm"
        expected.add(rewards, norms / norms.mean())
    np.testing.assert_allclose(trainer._expected(np.arange(2.0)), expected(np.arange(2.0)), rtol=1e-5)


def test_a_resumed_run_is_the_uninterrupted_one(queue, tmp_path):
    whole = run(queue, adam_trainer(tmp_path), range(6))
    stopped = adam_trainer(tmp_path)
    run(queue, stopped, range(3))
    stopped._save_checkpoint()
    assert (tmp_path / "global_step_3" / FILE).exists()
    resumed = adam_trainer(tmp_path)
    resumed._load_checkpoint()
    assert resumed.actor_rollout_wg.asked == ["tried"]
    np.testing.assert_array_equal(run(queue, resumed, range(3, 6)), whole[3:])


def test_rows_without_norms_are_recorded_with_expected_weights_and_said(queue, tmp_path):
    def given(step):
        prompts, rewards, norms = completions(step)
        if step == 1:
            norms[0] = np.nan
        return prompts, rewards, norms

    trainer = adam_trainer(tmp_path)
    run(queue, trainer, range(1), given)
    with pytest.warns(UserWarning, match="for 1 of 4 completions the loss is not advantage times log-probability"):
        run(queue, trainer, range(1, 2), given)
    plain, expected = AdvantageEstimator("kae"), ExpectedWeights()
    for step in range(2):
        prompts, rewards, norms = given(step)
        weights, known = expected(rewards), np.isfinite(norms)
        weights[known] = norms[known] / norms[known].mean()
        plain.step(prompts, rewards, step, weights=weights)
        expected.add(rewards[known], weights[known])
    same_values(trainer, plain, 2)


def test_an_agent_loop_with_several_outputs_is_refused(queue, tmp_path):
    rows = [sample("u", 0, output, "2+2=", 7, 1.0, 2) for output in range(2)]
    with pytest.raises(ValueError, match="several outputs for a completion"):
        compute(queue, adam_trainer(tmp_path), put(queue, rows), 0)


def test_the_actor_is_ours_and_verls_own_stays_for_other_weights():
    fused = ("+algorithm.kaestat.weights=score_norm", f"{ACTOR}calculate_sum_pi_squared=True", *ONE)
    fused = (*fused, "actor_rollout_ref.model.use_fused_kernels=True")
    for options, ours in ((ADAM, True), (fused, True), (fused[:-1], False), ((), False)):
        trainer = make_trainer(*options)
        trainer._init_resource_pool_mgr()
        (worker,) = trainer.role_worker_mapping.values()
        assert issubclass(worker.__ray_metadata__.modified_class, NormsWorker) == ours


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        (f"{ACTOR}strategy=fsdp", "strategy=fsdp2"),
        (f"{ACTOR}strategy=megatron", "model_engine=dp and .*strategy=fsdp2"),
        ("data.train_batch_size=8", "ppo_mini_batch_size=data.train_batch_size=8"),
        (f"{ACTOR}entropy_coeff=0.01", "entropy_coeff=0"),
        (f"{ACTOR}use_kl_loss=True", "use_kl_loss=False"),
        (f"{ACTOR}policy_loss.loss_mode=gspo", "loss_mode=vanilla"),
        (f"{ACTOR}ulysses_sequence_parallel_size=2", "ulysses_sequence_parallel_size=1"),
        ("algorithm.rollout_correction.bypass_mode=True", "bypass_mode=False"),
        ("trainer.critic_warmup=2", "critic_warmup=0"),
        ("kaestat_colocate_async", r"trainer\.v1\.trainer_mode=kaestat_sync"),
        ("kaestat_separate_async", r"trainer\.v1\.trainer_mode=kaestat_sync"),
    ],
)
def test_an_update_that_does_not_give_norms_is_refused_when_the_trainer_is_made(override, remedy):
    with pytest.raises(ValueError, match=rf"weights=adam takes norms from the actor's update, which needs .*{remedy}"):
        make_trainer(*ADAM, override if "=" in override else f"trainer.v1.trainer_mode={override}")


@pytest.mark.parametrize(
    ("method", "group"), [("kaestat_opo", 1), ("kae", 2), ("kaestat_grpo", 2), ("kaestat_rloo", 2), ("kaestat_rloo", 9)]
)
def test_values_that_expected_weights_make_noisier_are_refused(method, group):
    with pytest.raises(ValueError, match=r"rollout\.n=1 and an .* such as kae_eb, or kaestat_rloo and a .* of 3 to 8;"):
        make_trainer(*ADAM, f"actor_rollout_ref.rollout.n={group}", method=method)


def test_sums_of_squared_probabilities_come_from_parts_of_the_vocabulary(monkeypatch):
    monkeypatch.setattr(norms_worker, "VOCABULARY", 7)
    torch.manual_seed(0)
    layer, hidden = torch.nn.Linear(5, 23, bias=False), 4 * torch.randn(2, 3, 5)
    expected = (layer(hidden) / 0.7).softmax(-1).square().sum(-1)
    torch.testing.assert_close(square_sums(hidden, layer, 0.7), expected.detach())
