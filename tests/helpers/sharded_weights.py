"""One of two processes with a sharded model: weights of TRL's completions, and what they should be.

Run as ``python -m tests.helpers.sharded_weights FOLDER`` by a launcher that starts it twice.
"""

import sys
from pathlib import Path

import numpy as np
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

from kaestat import AdvantageEstimator
from llm_experiments.policies.tiny import tiny_model
from tests.helpers.sharded_rank import shard_on_the_cpu
from tests.helpers.tiny_trl import SIZE, WeighingTrainer, end_at_every, tiny_trainer
from tests.integrations.trl.test_weights import _of_gradients

OPTIONS = {"prompt_id": "question_id"}


class Sharded(WeighingTrainer):
    """Keeps the weights, and a loop's over the completions of a whole model with whole mean squares."""

    def _generate_and_score_completions(self, inputs):
        self._copy = tiny_model(self._tokenizer, seed=1, size=SIZE)
        weights, states = whole(self)
        self._copy.load_state_dict(weights)
        squares = {}
        for name, each in self._copy.named_parameters():
            if state := states.get(name):
                square = state["exp_avg_sq"] / (1 - 0.999 ** float(state["step"]))
                squares[each] = (square.sqrt() + 1e-8).square()
        self._squares = squares or None
        return super()._generate_and_score_completions(inputs)

    def _completion_weights(self, output):
        squares = self._squares if self.weights == "adam" else None
        norms = _of_gradients(self._copy, output, squares, self.temperature)
        self._now["reference"] = self.accelerator.gather(norms)
        return super()._completion_weights(output)


def run(folder: Path, weights: str, **config) -> Sharded:
    trainer = tiny_trainer(
        folder,
        AdvantageEstimator("kae_eb"),
        n_prompts=16,
        trainer_class=Sharded,
        num_generations=1,
        trainer_options=OPTIONS | {"weights": weights},
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        temperature=0.7,
        **config,
    )
    end_at_every(trainer, 4)
    trainer.train()
    return trainer


def whole(trainer: Sharded) -> tuple[dict, dict]:
    """The model's parameters and what Adam keeps of each, whole in every process, by name."""
    optimizer = trainer.optimizer.optimizer
    weights, kept = get_state_dict(trainer.model, optimizer, options=StateDictOptions(full_state_dict=True))
    return weights, kept["state"] if optimizer.state else {}


def main(folder: Path) -> None:
    shard_on_the_cpu()
    for name, weights, config in (
        ("exact", "exact", {}),
        ("adam", "adam", {}),
        ("checkpointing", "adam", {"gradient_checkpointing": True}),
    ):
        trainer = run(folder / name, weights, **config)
        rank = trainer.accelerator.process_index
        found = {key: np.array([batch[key].numpy() for batch in trainer.batches]) for key in ("weights", "reference")}
        np.savez(folder / f"{name}-{rank}.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
