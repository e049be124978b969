"""The records of a run on verl in the form of those on TRL, from the completions that verl writes out.

verl writes a file for each step (``trainer.rollout_data_dir``) and for each test (``trainer.validation_data_dir``);
a resumed run writes them over, and tests once more where it goes on, which no run has that was not interrupted: such
tests are left out. verl's steps count from 1 and ours from 0; a test after ``N`` steps has the number ``N`` in both.
"""

import hashlib
import json
from pathlib import Path

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from llm_experiments.provenance import provenance
from llm_experiments.tasks.rows import local_rows
from llm_experiments.training.identity import run_config_of
from llm_experiments.training.tables import CURVE, PROVENANCE, run_tables
from llm_experiments.training.verl.command import ROLLOUTS, VALIDATION


def write_tables(folder: Path) -> None:
    """Records, tests and tables of a finished run, as `llm_experiments.training.run.TrainingRun` leaves them.

    folder: Of the run.
    Raises FileNotFoundError if verl has written no completions there.
    """
    config = run_config_of(folder)
    dumps = _by_number(folder / ROLLOUTS)
    if not dumps:
        raise FileNotFoundError(f"{folder / ROLLOUTS}: verl has written no completions there.")
    for number, path in dumps.items():
        rows = local_rows(path)
        record = {
            "step": number - 1,
            "ids": [hashlib.sha256(row["input"].encode()).hexdigest()[:16] for row in rows],
            "rewards": [float(row["score"]) for row in rows],
        }
        write_atomically(folder / "records" / f"{number - 1:06d}.json", json.dumps(record))
    for number, path in _by_number(folder / VALIDATION).items() if config.test is not None else ():
        if number % config.test.every and number != config.updates.steps:
            continue
        test = {"step": number, "sampled": _by_problem(local_rows(path), config.test.samples)}
        write_atomically(folder / "tests" / f"{number:06d}.json", json.dumps(test))
    frames = run_tables(folder, config.updates.updates_per_step)
    write_atomically(folder / PROVENANCE, json.dumps(provenance(config), indent=1))
    for name in sorted(frames, key=lambda name: f"{name}.csv" == CURVE):  # the curve says that the run is done
        write_table(folder / f"{name}.csv", frames[name], 6)


def _by_number(folder: Path) -> dict[int, Path]:
    return {int(path.stem): path for path in sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem))}


def _by_problem(rows: list[dict], samples: int) -> list[list[float]]:
    """Rewards of each problem's completions."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["input"], []).append(float(row["score"]))
    return [each[start : start + samples] for each in found.values() for start in range(0, len(each), samples)]
