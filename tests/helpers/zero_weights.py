"""A process of DeepSpeed's ZeRO, or one without it: what it recorded of TRL's completions.

Run as ``python -m tests.helpers.zero_weights FOLDER STAGE``; a launcher starts it twice for stages above 0.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from kaestat import AdvantageEstimator
from llm_experiments.policies.tiny import tiny_tokenizer
from tests.helpers import tiny_trl
from tests.helpers.sharded_rank import shard_on_the_cpu
from tests.helpers.tiny_trl import WeighingTrainer, tiny_trainer

PROMPTS = 16  # each once in every generation


class Fixed(WeighingTrainer):
    """Samples, and puts completions that depend on the prompt and the step in the place of what it sampled."""

    def _generate_single_turn(self, prompt_ids, *args, **kwargs):
        sampled, log_probs, *others = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        assert len(sampled) == len(prompt_ids)
        places, completions = {}, []
        for ids in prompt_ids:
            place = places[tuple(ids)] = places.get(tuple(ids), -1) + 1
            seed = hashlib.sha256(repr((list(ids), place, self.state.global_step)).encode()).digest()
            completions.append([each for each in seed[: 1 + seed[-1] % 4]])
        return completions, log_probs, *others

    def _rows(self, scored):
        self._now["ids"] = scored.ids
        return super()._rows(scored)


def zero(stage: int, **sizes) -> dict:
    """DeepSpeed's configuration; transformers fills in what is ``auto``."""
    return {
        "zero_optimization": {"stage": stage} | sizes,
        "zero_allow_untested_optimizer": True,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
    }


def read_model(folder: Path, stage: int) -> None:
    """Have trainers read their model from a checkpoint, written without ZeRO: with stage 3 no process holds it all."""
    if stage == 0:
        tiny_trl.tiny_model(tiny_tokenizer(), seed=0, size=tiny_trl.SIZE).save_pretrained(folder)
    tiny_trl.tiny_model = lambda *given, **options: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def run(folder: Path, stage: int, weights: str, group: int = 1, **config) -> Fixed:
    processes = 2 if stage else 1
    trainer = tiny_trainer(
        folder,
        AdvantageEstimator("kae_eb"),
        n_prompts=PROMPTS // group,
        trainer_class=Fixed,
        num_generations=group,
        trainer_options={"prompt_id": "question_id", "weights": weights},
        per_device_train_batch_size=8 // processes,
        gradient_accumulation_steps=2,
        loss_type="grpo",
        temperature=0.7,
        optim="adamw_torch",
        **({"deepspeed": zero(stage, stage3_param_persistence_threshold=0), "use_cpu": False} if stage else {}),
        **({"max_steps": 4} | config),
    )
    trainer.train()
    return trainer


def main(folder: Path, stage: int) -> None:
    if stage:
        import deepspeed

        deepspeed.ops.__compatible_ops__.clear()  # it would compile a collective of its own
        shard_on_the_cpu()
    read_model(folder / "model", stage)
    for name, weights, group, config in (
        ("training pass", "adam", 1, {}),
        ("checkpointing", "adam", 1, {"gradient_checkpointing": True}),
        ("exact", "exact", 1, {}),
        ("own pass", "adam", 2, {}),
    ):
        trainer = run(folder / name, stage, weights, group, **config)
        assert (trainer._norms_to_come is not None) == (group == 1)
        assert hasattr(trainer.optimizer.optimizer, "optimizer") == (stage > 0)  # one of DeepSpeed's, around AdamW
        rank = trainer.accelerator.process_index
        order = [np.argsort(batch["ids"], kind="stable") for batch in trainer.batches]
        weights = [batch["weights"].numpy()[rows] for batch, rows in zip(trainer.batches, order, strict=True)]
        np.save(folder / f"{name}-{stage}-{rank}.npy", weights)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
