"""A tiny model, a tiny data set and quick trainers for the tests of the TRL adapter."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no telemetry, no hub

import torch
from datasets import Dataset
from trl import GRPOConfig

from kaestat import AdvantageEstimator
from kaestat.integrations.trl import BaselineGRPOTrainer
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer

SIZE = TinySize(width=16, layers=1, heads=2, key_value_heads=1, feed_forward=16, context=64)


def questions(n_prompts: int) -> Dataset:
    """Prompts with an id of their own."""
    return Dataset.from_dict(
        {"prompt": [f"{k}+1=" for k in range(n_prompts)], "question_id": [f"q{k}" for k in range(n_prompts)]}
    )


def parity_reward(completion_ids: list[list[int]], **_) -> list[float]:
    """1 for completions whose token ids have an even sum: about half of an untrained model's."""
    return [float(sum(ids) % 2 == 0) for ids in completion_ids]


def tiny_trainer(
    folder: Path,
    estimator: AdvantageEstimator,
    *,
    n_prompts: int = 4,
    reward=parity_reward,
    trainer_class: type[BaselineGRPOTrainer] = BaselineGRPOTrainer,
    num_generations: int = 2,
    trainer_options: dict | None = None,
    dataset: Dataset | None = None,
    eval_dataset: Dataset | None = None,
    chat_template: str | None = None,
    size: TinySize = SIZE,
    **config,
) -> BaselineGRPOTrainer:
    """A trainer whose generation batch has 8 completions."""
    options = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "num_generations": max(2, num_generations),
        "max_completion_length": 4,
        "max_steps": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "learning_rate": 1e-2,
        "gradient_checkpointing": False,
    } | config
    arguments = GRPOConfig(**options)
    arguments.num_generations = num_generations
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = "left"
    tokenizer.chat_template = chat_template
    torch.manual_seed(0)
    return trainer_class(
        model=tiny_model(tokenizer, seed=0, size=size),
        reward_funcs=reward,
        args=arguments,
        train_dataset=questions(n_prompts) if dataset is None else dataset,
        eval_dataset=eval_dataset,
        processing_class=tokenizer,
        advantage_estimator=estimator,
        **(trainer_options or {}),
    )


def end_at_every(trainer: BaselineGRPOTrainer, number: int) -> None:
    """Let every so many tokens end a completion, besides the tokenizer's own."""
    ends = [trainer._tokenizer.eos_token_id, *range(0, 256, number)]
    trainer.generation_config.eos_token_id = trainer.eos_token_ids = ends


class RecordingTrainer(BaselineGRPOTrainer):
    """Keeps what went into and came out of each generation."""

    def __init__(self, *args, **kwargs):
        self.batches: list[dict] = []
        super().__init__(*args, **kwargs)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._now = {"prompts": list(prompts), "rewards": rewards.clone(), "training": self.model.training}
        return rewards

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self._now |= {
            "advantages": output["advantages"].clone(),
            "completions": output["completion_ids"].clone(),
            "mask": output["completion_mask"].clone(),
            "step": self.state.global_step,
        }
        self.batches.append(self._now)
        return output


class WeighingTrainer(RecordingTrainer):
    """Also keeps the weights."""

    def _completion_weights(self, output):
        self._now["weights"] = super()._completion_weights(output)
        return self._now["weights"]


def train_tiny(folder: Path, estimator: AdvantageEstimator, **options) -> BaselineGRPOTrainer:
    """A trainer of `tiny_trainer`, by default one that records, after its run."""
    trainer = tiny_trainer(folder, estimator, **{"trainer_class": RecordingTrainer} | options)
    trainer.train()
    return trainer


def check_resumed(whole: RecordingTrainer, resumed: RecordingTrainer, stop: int) -> None:
    """A run resumed after ``stop`` generations had the prompts, completions and advantages of the whole run."""
    assert resumed.generation == whole.generation and len(resumed.batches) == whole.generation - stop
    for before, after in zip(whole.batches[stop:], resumed.batches, strict=True):
        assert after["prompts"] == before["prompts"]
        assert (after["completions"] == before["completions"]).all()
        assert (after["advantages"] == before["advantages"]).all()
