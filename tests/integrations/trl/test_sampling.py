"""Prompts drawn by their predicted values, through TRL's own training loop."""

import numpy as np
import pytest
from datasets import Dataset

from kaestat import AdvantageEstimator
from kaestat.sampling import PromptSampler
from tests.helpers.tiers import slow_after
from tests.helpers.tiny_trl import RecordingTrainer, check_resumed, questions, tiny_trainer

SAVING = {"save_strategy": "steps", "save_steps": 1}


def trainer_of(folder, policy="neyman", method="kae", group_size=1, prompt_id="question_id", n_prompts=12, **config):
    return tiny_trainer(
        folder,
        AdvantageEstimator(method, **({"bandwidth": 5.0} if method == "kae" else {})),
        n_prompts=n_prompts,
        num_generations=group_size,
        trainer_class=RecordingTrainer,
        trainer_options={"prompt_sampler": policy, "prompt_id": prompt_id},
        **config,
    )


def question(prompt: str) -> str:
    return f"q{prompt.removesuffix('+1=')}"


@pytest.mark.parametrize(("policy", "group_size"), slow_after(1, [("neyman", 1), ("mopps", 1), ("neyman", 2)]))
def test_each_generation_is_a_draw_and_its_advantages_are_corrected(policy, group_size, tmp_path):
    trainer = trainer_of(tmp_path, policy, group_size=group_size, max_steps=8)
    draws, draw = [], trainer.session.drawn.sampler.draw

    def kept(step, **options):
        draws.append(draw(step, **options))
        return draws[-1]

    trainer.session.drawn.sampler.draw = kept
    trainer.train()
    plain = AdvantageEstimator("kae", bandwidth=5.0)
    assert len(trainer.batches) == 8
    for step, batch in enumerate(trainer.batches):
        ids = [question(prompt) for prompt in batch["prompts"]]
        assert draws[step].step == step and ids == draws[step].rows()
        expected = plain.step(ids, batch["rewards"][:, 0].double().numpy(), step) * draws[step].correction_of(ids)
        np.testing.assert_allclose(batch["advantages"].numpy(), expected, rtol=1e-6, atol=1e-7)
    assert {len(draw.prompt_ids) for draw in draws} != {12}
    assert any(draw.correction.std() > 0 for draw in draws)
    logged = [row for row in trainer.state.log_history if "sampling/effective_completions" in row]
    assert len(logged) == 8 and all(0 < row["sampling/effective_completions"] <= 8 for row in logged)


@pytest.mark.parametrize(
    ("method", "stop", "config"),
    slow_after(
        1,
        [
            ("kae", 5, {"n_prompts": 32}),  # the second generation of an epoch's four
            ("kae", 4, {}),
            ("rloo", 3, {"n_prompts": 32, "group_size": 2}),
            ("kae", 3, {"num_iterations": 2, "n_prompts": 32}),
        ],
    ),
)
def test_a_resumed_run_draws_as_if_it_had_never_stopped(method, stop, config, tmp_path):
    updates = config.get("num_iterations", 1)
    whole = trainer_of(tmp_path, method=method, max_steps=7 * updates, **config, **SAVING)
    whole.train()
    resumed = trainer_of(tmp_path / "again", method=method, max_steps=7 * updates, **config)
    resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{stop * updates}"))
    assert whole.generation == 7
    check_resumed(whole, resumed, stop)
    assert [row["epoch"] for row in resumed.state.log_history] == [row["epoch"] for row in whole.state.log_history]
    assert whole.session.drawn.sampler.state_dict() == resumed.session.drawn.sampler.state_dict()


def test_prompts_without_ids_are_known_by_their_text_and_repeated_rows_weigh_more(tmp_path):
    rows = questions(6).to_dict()
    dataset = Dataset.from_dict({"prompt": [*rows["prompt"], *rows["prompt"][:2]]})
    trainer = trainer_of(tmp_path, "uniform", prompt_id=None, dataset=dataset, max_steps=2)
    sampler = trainer.session.drawn.sampler
    assert len(sampler) == 6
    np.testing.assert_allclose(sampler.draw(0).plan.share * 8, [2, 2, 1, 1, 1, 1])
    trainer.train()


def test_a_sampler_of_ones_own_is_taken_if_it_fits(tmp_path):
    ids = [f"q{k}" for k in range(12)]
    own = PromptSampler(ids, 8, policy="spo", floor=0.3)
    assert trainer_of(tmp_path, own).session.drawn.sampler is own
    with pytest.raises(ValueError, match="budget=8"):
        trainer_of(tmp_path, PromptSampler(ids, 4))
    with pytest.raises(ValueError, match="11 prompts, the data set 12 others, 'q11' among them"):
        trainer_of(tmp_path, PromptSampler(ids[:11], 8))


def test_what_does_not_go_together_is_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match="dataloader_num_workers"):
        trainer_of(tmp_path, dataloader_num_workers=1)
    with pytest.raises(ValueError, match="no column 'id'"):
        trainer_of(tmp_path, prompt_id="id")
    with pytest.raises(ValueError, match="unknown 'best'"):
        trainer_of(tmp_path, "best")
    with pytest.raises(ValueError, match="reuse"):
        tiny_trainer(tmp_path, AdvantageEstimator("kae"), trainer_options={"prompt_sampler": "neyman", "reuse": 2})
