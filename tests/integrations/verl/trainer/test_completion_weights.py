"""Score norms from verl's actor: asked of it, read back from the queue, and importance weights with them."""

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.verl.norms_worker import NormsWorker
from tests.helpers.tiny_verl import Actor, compute, make_trainer, put, sample
from tests.integrations.verl.trainer.test_resume import trainer_in

SQUARES = "actor_rollout_ref.actor.calculate_sum_pi_squared=True"
SCORE_NORM = ("+algorithm.kaestat.weights=score_norm", SQUARES)
CORRECTION = ("algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.rollout_is_threshold=1.5")


def rows_at(step, outputs=1):
    """Two prompts with three completions each; rewards, lengths and the rollout's probabilities vary by step."""
    rng = np.random.default_rng(step)
    rows = [
        sample(f"{prompt}{step}", session, output, f"{prompt}+1", prompt, reward, int(rng.integers(1, 6)))
        for prompt in (3, 4)
        for session in range(3)
        for reward in [float(rng.random() < 0.5)]
        for output in range(outputs)
    ]
    for row in rows:
        row["rollout_log_probs"] = torch.tensor(-3 * rng.random(len(row["responses"])), dtype=torch.float32)
    return rows


def asked(queue, trainer, rows, **actor):
    """A batch whose log probabilities verl's trainer has asked for, and the actor that it asked."""
    trainer.actor_rollout_wg = asked = Actor(queue, **actor)
    batch = put(queue, rows)
    trainer._compute_old_log_prob(batch, {})
    assert "calculate_sum_pi_squared" not in batch.extra_info, "the reference policy would be asked, too"
    return batch, asked


def weights_of(rows, actor, importance=None):
    """One weight per completion, its outputs together, by the definition."""
    weights = {}
    for row in rows:
        key = f"{row['uid']}_{row['session_id']}_{row['output']}"
        norms = actor.norms[key] if importance is None else actor.norms[key] * importance[key].double() ** 2
        completion = row["uid"], row["session_id"]
        weights[completion] = weights.get(completion, 0.0) + float(norms.sum())
    return weights


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("method", ["kae", "kaestat_rloo", "kaestat_opo"])
def test_advantages_are_those_of_the_estimator_weighted_by_score_norms(queue, method, outputs):
    trainer, plain = make_trainer(*SCORE_NORM, method=method), AdvantageEstimator(method.removeprefix("kaestat_"))
    for step in range(3):
        rows = rows_at(step, outputs)
        batch, actor = asked(queue, trainer, rows, seed=step)
        assert actor.asked == [True]
        found, _ = compute(queue, trainer, batch, step)
        weights = weights_of(rows, actor)
        rewards = {(row["uid"], row["session_id"]): float(row["rm_scores"].sum()) for row in rows}
        prompts = [uid[0] for uid, _ in weights]
        expected = plain.step(prompts, list(rewards.values()), step, weights=list(weights.values()))
        expected = dict(zip(weights, expected, strict=True))
        for key, tokens in found.items():
            uid, session, _ = key.rsplit("_", 2)
            same = torch.full_like(tokens, expected[uid, int(session)])
            torch.testing.assert_close(tokens, same, rtol=1e-4, atol=1e-5)


def test_importance_weights_enter_squared(queue):
    """OPOB's baseline, E[w^2 s^2 r] / E[w^2 s^2], with the weights that verl multiplies its loss by."""
    trainer, rows = make_trainer(*SCORE_NORM, *CORRECTION, method="kaestat_opo"), rows_at(0)
    batch, actor = asked(queue, trainer, rows)
    trainer.global_steps = 1
    trainer._compute_advantage(batch, {})
    fields = ["advantages", "rollout_is_weights"]
    stored = queue.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=fields)
    queue.kv_clear(keys=batch.keys, partition_id="train")

    importance = dict(zip(batch.keys, stored["rollout_is_weights"].unbind(), strict=True))
    assert max(float(tokens.max()) for tokens in importance.values()) == 1.5, "nothing was truncated"
    prompts, rewards = [row["uid"] for row in rows], [float(row["rm_scores"].sum()) for row in rows]
    expected, without = (
        AdvantageEstimator("opo").step(prompts, rewards, 0, weights=list(weights_of(rows, actor, ratios).values()))
        for ratios in (importance, None)
    )
    found = np.array([tokens[0].item() for tokens in stored["advantages"].unbind()])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(found - without).max() > 1e-2


def test_an_engine_without_squares_is_refused(queue):
    trainer = make_trainer(*SCORE_NORM)
    batch, _ = asked(queue, trainer, rows_at(0), engine_has_squares=False)
    with pytest.raises(ValueError, match=r"returned no sum_pi_squared.*weights=length"):
        compute(queue, trainer, batch, 0)


FSDP2 = ("actor_rollout_ref.actor.strategy=fsdp2", "actor_rollout_ref.model.use_remove_padding=False")


def of_parameters(weights):
    return f"+algorithm.kaestat.weights={weights}", *FSDP2


@pytest.mark.parametrize("weights", ["exact", "adam"])
def test_norms_in_the_parameters_come_with_the_log_probabilities(queue, weights):
    trainer, plain = make_trainer(*of_parameters(weights)), AdvantageEstimator("kae")
    for step in range(3):
        rows = rows_at(step)
        batch, actor = asked(queue, trainer, rows, seed=step)
        found, _ = compute(queue, trainer, batch, step)
        assert {wanted for wanted, _ in actor.row_norms.values()} == {weights}
        norms = np.array([actor.row_norms[key][1] for key in batch.keys])
        rewards = [float(row["rm_scores"].sum()) for row in rows]
        given = norms / norms.mean() if weights == "adam" else norms
        expected = plain.step([row["uid"][0] for row in rows], rewards, step, weights=given)
        np.testing.assert_allclose([float(found[key][0]) for key in batch.keys], expected, rtol=1e-4, atol=1e-5)


def test_an_agent_loop_with_several_outputs_is_refused(queue):
    trainer = make_trainer(*of_parameters("adam"))
    batch, _ = asked(queue, trainer, rows_at(0, outputs=2))
    with pytest.raises(ValueError, match="several outputs for a completion"):
        compute(queue, trainer, batch, 0)


def test_the_actor_is_ours_where_norms_need_it_and_tries_the_model_first(tmp_path):
    for options, ours in ((of_parameters("adam"), True), (SCORE_NORM, False), ((), False)):
        trainer = trainer_in(tmp_path, *options)
        trainer._init_resource_pool_mgr()
        (worker,) = trainer.role_worker_mapping.values()
        assert issubclass(worker.__ray_metadata__.modified_class, NormsWorker) == ours
        trainer.actor_rollout_wg = Actor(None)
        trainer._load_checkpoint()
        assert trainer.actor_rollout_wg.asked == ["tried"] * ours


@pytest.mark.parametrize(
    ("options", "override", "remedy"),
    [
        (SCORE_NORM[:1], None, "actor.calculate_sum_pi_squared=True"),
        (SCORE_NORM, "actor_rollout_ref.model.use_fused_kernels=True", "use_fused_kernels=False"),
        (SCORE_NORM, "algorithm.rollout_correction.bypass_mode=True", "bypass_mode=False"),
        *(
            (of_parameters("adam"), override, remedy)
            for override, remedy in (
                ("actor_rollout_ref.actor.strategy=fsdp", "strategy=fsdp2"),
                ("actor_rollout_ref.actor.strategy=megatron", "model_engine=dp and .*strategy=fsdp2"),
                ("actor_rollout_ref.model.use_remove_padding=True", "use_remove_padding=False"),
                ("actor_rollout_ref.model.use_fused_kernels=True", "use_fused_kernels=False"),
                ("actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", "ulysses_sequence_parallel_size=1"),
                ("algorithm.rollout_correction.bypass_mode=True", "bypass_mode=False"),
                ("algorithm.rollout_correction.rollout_is=token", "rollout_is=null"),
                ("trainer.v1.trainer_mode=kaestat_colocate_async", "trainer_mode=kaestat_sync"),
                ("trainer.v1.trainer_mode=kaestat_separate_async", "trainer_mode=kaestat_sync"),
            )
        ),
    ],
)
def test_a_configuration_that_gives_no_norms_stops_the_run_before_it_begins(options, override, remedy):
    with pytest.raises(
        ValueError, match=rf"weights=(score_norm|adam) takes norms from the actor.* needs .*{remedy}; or"
    ):
        make_trainer(*options, *([] if override is None else [override]))
