"""What each of two processes does in the test of TRL's processes: train, resume, and write down what it saw.

Run as ``python -m tests.helpers.two_ranks FOLDER`` by a launcher that starts it twice.
"""

import sys
from pathlib import Path

import numpy as np

from kaestat import AdvantageEstimator
from tests.helpers.tiny_trl import RecordingTrainer, WeighingTrainer, end_at_every, tiny_trainer


def trainer(folder: Path, weights: str = "length", **config) -> WeighingTrainer:
    """6 completions per process and groups of 4: the second group is cut through. Every fourth token is an end."""
    run = tiny_trainer(
        folder,
        AdvantageEstimator("kae", bandwidth=5.0),
        n_prompts=6,
        trainer_class=WeighingTrainer,
        num_generations=4,
        trainer_options={"prompt_id": "question_id", "weights": weights},
        per_device_train_batch_size=6,
        max_steps=5,
        **config,
    )
    end_at_every(run, 4)
    return run


def write(folder: Path, name: str, run: RecordingTrainer) -> None:
    rank = run.accelerator.process_index
    run.advantage_estimator.save(folder / f"{name}-{rank}.state")
    columns = {
        column: np.array([batch[column] if column == "prompts" else batch[column].numpy() for batch in run.batches])
        for column in ("prompts", "advantages", "rewards")
    }
    columns["lengths"] = np.array([batch["mask"].sum(dim=1).numpy() for batch in run.batches])
    np.savez(folder / f"{name}-{rank}.npz", processes=run.accelerator.num_processes, **columns)


def main(folder: Path) -> None:
    whole = trainer(folder / "run", save_strategy="steps", save_steps=3)
    whole.train()
    write(folder, "whole", whole)
    resumed = trainer(folder / "again")
    resumed.train(resume_from_checkpoint=str(folder / "run" / "checkpoint-3"))
    write(folder, "resumed", resumed)
    weighed = trainer(folder / "weighed", "adam")
    weighed.train()
    write(folder, "weighed", weighed)
    norms = np.array([batch["weights"].numpy() for batch in weighed.batches])
    np.save(folder / f"weights-{weighed.accelerator.process_index}.npy", norms)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
