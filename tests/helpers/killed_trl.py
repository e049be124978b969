"""Training runs on TRL, killed with SIGKILL at chosen batches and resumed from their last checkpoints.

    python -m tests.helpers.killed_trl FOLDER CASE PROCESSES BATCH...

runs CASE to the end, then once for each BATCH until that batch and on from the last checkpoint, and writes what each
run did to ``FOLDER/found.json``. The modules are imported once; each process of a run is a fork.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch
from transformers.trainer_utils import get_last_checkpoint

from kaestat import AdvantageEstimator
from tests.helpers.tiny_trl import RecordingTrainer, tiny_trainer

COMPLETIONS = 8  # of a generation, in all processes
PROMPTS = 32  # an epoch has 4 generations or, in groups of 2, 8
CASES: dict[str, dict[str, Any]] = {
    # optimiser steps of 2 batches, generations of 4
    "sampler": {"prompt_sampler": "neyman", "num_iterations": 2, "steps_per_generation": 2},
    # optimiser steps of 4 batches, generations of 2
    "short generations": {"prompt_sampler": "neyman", "steps_per_generation": 2, "gradient_accumulation_steps": 4},
    # optimiser steps of 3 batches, of which an epoch's last has 2, generations of 2
    "uneven epochs": {"prompt_sampler": "neyman", "steps_per_generation": 2, "gradient_accumulation_steps": 3},
    "groups": {"prompt_sampler": "neyman", "num_generations": 2, "steps_per_generation": 2},
    "TRL's order": {"reuse": 2, "num_iterations": 2, "steps_per_generation": 2},
}
OPTIONS = ("prompt_sampler", "reuse")
SAVED_EVERY = {"uneven epochs": 3}  # optimiser steps: there, an epoch


class Killed(RecordingTrainer):
    """Ends its process before a batch is trained on."""

    last_batch: int | None = None

    def training_step(self, *given, **also):
        if self.last_batch == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.last_batch is not None:
            self.last_batch -= 1
        return super().training_step(*given, **also)


def run(folder: Path, case: str, processes: int, batch: int | None) -> None:
    """Train, or go on from the last checkpoint; die before a batch, or write what was done."""
    torch.set_num_threads(1)
    config = {"gradient_accumulation_steps": 2, "num_generations": 1} | CASES[case]
    options = {name: config.pop(name) for name in OPTIONS if name in config}
    trainer = tiny_trainer(
        folder,
        AdvantageEstimator("kae_eb"),
        n_prompts=PROMPTS,
        trainer_class=Killed,
        trainer_options={"prompt_id": "question_id", "weights": "adam"} | options,
        per_device_train_batch_size=COMPLETIONS // config["steps_per_generation"] // processes,
        max_steps=18,
        save_strategy="steps",
        save_steps=SAVED_EVERY.get(case, 2),
        **config,
    )
    trainer.last_batch = batch
    checkpoint = get_last_checkpoint(str(folder))
    trainer.train(resume_from_checkpoint=checkpoint)
    rank = trainer.accelerator.process_index
    trainer.advantage_estimator.save(folder / f"estimator-{rank}")
    states = [folder / f"estimator-{rank}"]
    if trainer.session.drawn is not None:
        (folder / f"sampler-{rank}").write_text(repr(trainer.session.drawn.sampler.state_dict()))
        states.append(folder / f"sampler-{rank}")
    found = {
        "checkpoint": checkpoint and Path(checkpoint).name,
        "generations": [
            {
                "step": each["step"],
                "prompts": each["prompts"],
                "completions": each["completions"].tolist(),
                "advantages": each["advantages"].tolist(),
            }
            for each in trainer.batches
        ],
        "log": [
            {name: value for name, value in row.items() if "time" not in name}
            for row in trainer.state.log_history
            if "loss" in row
        ],
        "weights": digest(each.detach().numpy().tobytes() for each in trainer.model.parameters()),
        "states": digest(path.read_bytes() for path in states),
    }
    (folder / f"done-{rank}.json").write_text(json.dumps(found))


def digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def forked(processes: int, work: Callable[[], None]) -> bool:
    """Whether all processes came to the end of the work; all are killed once one did not."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def child(rank: int) -> None:
        if processes > 1:
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        work()

    started = [get_context("fork").Process(target=child, args=(rank,)) for rank in range(processes)]
    for each in started:
        each.start()
    while running := [each for each in started if each.is_alive()]:
        wait([each.sentinel for each in running])
        if any(each.exitcode for each in started):
            for each in running:
                each.kill()
    return not any(each.exitcode for each in started)


def main(folder: Path, case: str, processes: int, batches: list[int]) -> None:
    def done(name: str) -> list[dict[str, Any]]:
        assert forked(processes, lambda: run(folder / name, case, processes, None)), f"{case}, {name}: failed"
        return [json.loads((folder / name / f"done-{rank}.json").read_text()) for rank in range(processes)]

    (folder / "whole").mkdir()
    found = {"whole": done("whole"), "resumed": {}}
    for batch in batches:
        name = f"killed-{batch}"
        (folder / name).mkdir()
        assert not forked(processes, lambda at=batch, own=name: run(folder / own, case, processes, at))
        found["resumed"][batch] = done(name)
        shutil.rmtree(folder / name)
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), [int(each) for each in sys.argv[4:]])
