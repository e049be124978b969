"""A task's problems in verl's format: one Parquet file for training, another for validation."""

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from kaestat.core.storage import write_atomically
from kaestat.history.prior import Prior
from kaestat.integrations.verl.prompts import COLUMNS
from llm_experiments.config import TaskConfig
from llm_experiments.tasks import MADE_WORLDS
from llm_experiments.tasks.base import Problem
from llm_experiments.tasks.sources import SOURCES
from llm_experiments.training.config import RunConfig
from llm_experiments.training.start import Start
from llm_experiments.training.verl.command import ID_FIELD, prompt_style

N_STAND_IN = 8  # rows of the validation file that verl wants even where nothing is tested
_LIMITS = ("timeout", "memory_mib", "workers", "budget")  # options of tasks that are their verifier's


def _no_bar(part: str, total: int) -> AbstractContextManager[Callable[[], None]]:
    return nullcontext(lambda: None)


@dataclass(frozen=True)
class VerlData:
    """The files of a run.

    n_train, n_test: Problems; a copy is not another one. ``n_test`` is 0 where nothing is tested along the run.
    """

    train: Path
    test: Path
    n_train: int
    n_test: int


def prepare_data(config: RunConfig, folder: Path, *, data: Path | None = None) -> VerlData:
    """Write ``train.parquet`` and ``test.parquet``, the same problems and prompts as in a run on TRL.

    data: Folder of local files; see `with_local_file`.
    Raises ValueError if there are fewer prompts than a step has, or every problem of the test is trained on.
    Raises FileNotFoundError, ConnectionError if problems can not be read; the message says what to give.
    """
    start, (_, system) = Start(config, folder, data, _no_bar), prompt_style(config.model)
    start.check_sizes()
    problems, task = start.task.problems, start.local(config.task)
    rows = verl_rows(problems, task, system=system, copies=config.updates.copies)
    prior = config.read_prior()
    if prior is not None:
        rows = with_prior(rows, prior)
    if config.test is None:
        stand_in = verl_rows(problems[:N_STAND_IN], task, system=system)
    else:
        stand_in = verl_rows(start.tested, start.local(config.test.task), system=system, patient=True)
    files = VerlData(folder / "train.parquet", folder / "test.parquet", len(problems), len(start.tested))
    write_parquet(files.train, rows)
    write_parquet(files.test, stand_in)
    return files


def verl_rows(
    problems: Sequence[Problem], task: TaskConfig, *, system: str | None, copies: int = 1, patient: bool = False
) -> list[dict[str, Any]]:
    """Rows of verl's format, one for each problem and copy; copies of a problem are alike.

    task: Where they come from.
    system: System message.
    patient: Whether no completion may be left ungraded, as in a test.
    Returns: ``data_source, prompt, ability, reward_model, extra_info``. ``extra_info`` holds ``split`` and ``index``
        (the problem's number), ``problem_id`` (what the history is kept by), ``level``, and ``grader`` and ``patient``
        (read by `reward`).
    """
    messages = [{"role": "system", "content": system}] if system else []
    split = task.split or (SOURCES[task.name].split if task.name in SOURCES else "train")
    graded = grader(task)
    rows = [
        {
            "data_source": task.name,
            "prompt": [*messages, {"role": "user", "content": problem.prompt}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": problem.answer},
            "extra_info": {
                "split": split,
                "index": index,
                ID_FIELD: problem.id,
                "level": problem.level,
                "grader": graded,
                "patient": patient,
            },
        }
        for index, problem in enumerate(problems)
    ]
    return [row for row in rows for _ in range(copies)]


def with_prior(rows: Sequence[dict[str, Any]], prior: Prior) -> list[dict[str, Any]]:
    """Rows of `verl_rows` with what is known of their problems, as `kaestat.integrations.verl.prompts` reads it."""
    known = dict(zip(prior.prompt_ids, zip(*map(prior.sums.get, ("total", "count")), strict=True), strict=True))
    numbers = [known.get(row["extra_info"][ID_FIELD]) for row in rows]
    pairs = [(None, None) if found is None else (float(found[0] / found[1]), int(found[1])) for found in numbers]
    return [row | dict(zip(COLUMNS, pair, strict=True)) for row, pair in zip(rows, pairs, strict=True)]


def grader(task: TaskConfig) -> str:
    """How a task's completions are graded, as text for `reward.compute_score`.

    Examples
    --------
    >>> grader(TaskConfig(name="gsm8k"))
    '{"options": {}, "verifier": "numbers"}'
    >>> grader(TaskConfig(name="math", options={"timeout": 2.0, "levels": [5]}))
    '{"options": {"timeout": 2.0}, "verifier": "mathematics"}'
    """
    if task.name in SOURCES and SOURCES[task.name].verifier == "mathematics":
        return _grader("mathematics", {key: task.options[key] for key in _LIMITS if key in task.options})
    if task.name in MADE_WORLDS:
        raise ValueError(f"task {task.name}: verl's runs cannot grade it, only sets of problems and arithmetic.")
    return _grader("numbers", {})


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows to a Parquet file, atomically; the same rows give the same bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    buffer = BytesIO()
    parquet.write_table(pa.Table.from_pylist(list(rows)), buffer)
    write_atomically(path, buffer.getvalue())


def _grader(verifier: str, options: dict[str, Any]) -> str:
    return json.dumps({"verifier": verifier, "options": options}, sort_keys=True)
