"""Prompts drawn by their predicted values: verl's own data set, batches and transfer queue around kaestat_sync."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from kaestat import AdvantageEstimator
from kaestat.integrations.verl.checkpoint import SAMPLER_FILE
from tests.helpers.tiny_verl import balance, compute, make_trainer, put, sample
from tests.integrations.verl.trainer.test_dataset import Tokenizer, rows_of
from tests.integrations.verl.trainer.test_resume import Workers

N, BATCH = 12, 6


@pytest.fixture
def folder(tmp_path):
    pd.DataFrame(rows_of(N)).to_parquet(tmp_path / "train.parquet")
    return tmp_path


def trainer_in(folder, *overrides, size=2, method="kae", sampler="neyman"):
    trainer = make_trainer(
        f"trainer.default_local_dir={folder}",
        f"data.train_files={folder}/train.parquet",
        f"data.val_files={folder}/train.parquet",
        f"data.train_batch_size={BATCH}",
        f"actor_rollout_ref.rollout.n={size}",
        "data.max_prompt_length=16",
        "data.filter_overlong_prompts_workers=1",
        "data.dataloader_num_workers=0",
        "+data.seed=3",
        f"+algorithm.kaestat.prompt_sampler={sampler}",
        *overrides,
        method=method,
    )
    trainer.tokenizer, trainer.processor = Tokenizer(), None
    trainer._init_dataloader()
    trainer.tokenizer = type("Tokens", (), {"eos_token_id": 0})
    trainer.actor_rollout_wg = Workers()
    return trainer


def step_of(queue, trainer, step, size=2):
    """One training step: the prompts that verl's agent loops are given, and each completion's advantage by prompt."""
    trainer.global_steps = step + 1
    batch = trainer._next_train_batch()
    prompts = [info["index"] for info in batch["extra_info"]]
    rng = np.random.default_rng([5, step])
    rewards = [[float(rng.random() < (k + 1) / (N + 1)) for _ in range(size)] for k in prompts]
    rows = [
        sample(uid, session, 0, f"{prompt}+1=", prompt, reward, int(rng.integers(1, 6)))
        for uid, prompt, many in zip(batch["uid"], prompts, rewards, strict=True)
        for session, reward in enumerate(many)
    ]
    kept = put(queue, rows)
    keys = list(kept.keys)
    found, metrics = compute(queue, trainer, balance(trainer, kept), step)
    trainer.actor_rollout_wg = Workers()  # in place of the ranks that balance() put there
    return prompts, rewards, [found[key] for key in keys], metrics


@pytest.mark.parametrize(("size", "method"), [(2, "kae"), (1, "kae"), (2, "rloo")])
def test_each_step_is_a_draw_and_its_advantages_are_corrected(queue, folder, size, method):
    trainer = trainer_in(folder, size=size, method="kaestat_" + method)
    plain, corrections = AdvantageEstimator(method), []
    for step in range(8):
        prompts, rewards, found, metrics = step_of(queue, trainer, step, size)
        draw = trainer.drawn.sampler.last_draw
        names = [f'["sums","train",{prompt}]' for prompt in prompts]
        assert draw.step == step and len(prompts) == BATCH
        assert Counter(names) == {key: n // size for key, n in zip(draw.prompt_ids, draw.counts, strict=True)}
        ids = [name for name in names for _ in range(size)]
        expected = plain.step(ids, np.ravel(rewards), step) * draw.correction_of(ids)
        for tokens, advantage in zip(found, expected, strict=True):
            torch.testing.assert_close(tokens, torch.full_like(tokens, advantage), rtol=1e-5, atol=1e-6)
        corrections += draw.correction.tolist()
    assert min(corrections) < 1 < max(corrections)
    assert 0 < metrics["sampling/effective_completions"] <= BATCH * size
    assert (trainer.drawn.sampler.predictor is trainer.session.estimator) == (method == "kae")


@pytest.mark.parametrize("method", ["kae", "kaestat_rloo"])
def test_a_resumed_run_draws_as_if_it_had_never_stopped(queue, folder, method):
    first = trainer_in(folder, method=method)
    for step in range(3):
        step_of(queue, first, step)
    first._save_checkpoint()
    expected = [step_of(queue, first, step) for step in range(3, 6)]
    resumed = trainer_in(folder, method=method)
    resumed._load_checkpoint()
    assert resumed.global_steps == 3
    for step, before in zip(range(3, 6), expected, strict=True):
        after = step_of(queue, resumed, step)
        assert after[0] == before[0]
        assert all(torch.equal(a, b) for a, b in zip(after[2], before[2], strict=True))
    (folder / "global_step_3" / SAMPLER_FILE).unlink()
    with pytest.raises(FileNotFoundError, match="without a prompt sampler"):
        trainer_in(folder, method=method)._load_checkpoint()
    anew = trainer_in(folder, "+algorithm.kaestat.start_anew=True", method=method)
    anew._load_checkpoint()
    assert anew.drawn.sampler.last_draw is None


def test_where_no_prompts_are_drawn_or_no_correction_reaches_the_estimator_the_option_is_refused(queue, folder):
    with pytest.raises(ValueError, match="kaestat_colocate_async takes prompts"):
        make_trainer("+algorithm.kaestat.prompt_sampler=neyman", mode="kaestat_colocate_async")
    with pytest.raises(ValueError, match="unknown 'best'"):
        make_trainer("+algorithm.kaestat.prompt_sampler=best")
    with pytest.raises(ValueError, match="filter_groups chooses among"):
        trainer_in(folder, "algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=acc")
    with pytest.raises(ValueError, match="advantages of adv_estimator=grpo are not corrected"):
        make_trainer("+algorithm.kaestat.prompt_sampler=neyman", method="grpo")


def test_a_filter_that_hides_groups_from_the_history_is_warned_of(recwarn):
    filtering = ("algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=acc")
    make_trainer(*filtering, method="kaestat_rloo")
    assert not [warning for warning in recwarn if "1/2" in str(warning.message)]
    with pytest.warns(UserWarning, match="pulls its values towards 1/2"):
        make_trainer(*filtering, method="ebpo")


def test_a_group_that_was_not_drawn_is_refused(queue, folder):
    trainer = trainer_in(folder)
    with pytest.raises(ValueError, match="was not drawn at this step"):
        compute(queue, trainer, put(queue, [sample("u", 0, 0, "2+1=", 2, 1.0, 2)]), 0)
