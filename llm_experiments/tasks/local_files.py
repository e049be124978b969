"""Tasks read from a folder of local files, in place of the hub."""

from pathlib import Path

from llm_experiments.config import TaskConfig

from .rows import READERS
from .sources import SOURCES


def with_local_file(task: TaskConfig, data: Path | None) -> TaskConfig:
    """The task, reading a file in a folder of local data where there is one.

    A relative ``path`` that does not exist is looked for in the folder; without a path, a file called
    ``NAME_SPLIT.jsonl``, ``.json`` or ``.parquet``, such as ``gsm8k_train.jsonl``.

    Raises FileNotFoundError if there is no such folder, or neither place has the ``path``.
    """
    if data is not None and not data.is_dir():
        raise FileNotFoundError(f"data {data}: no such folder.")
    if task.path is not None:
        places = [task.path] + ([] if data is None else [data / task.path])
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise FileNotFoundError(
                f"task.path {task.path}: no such file here"
                + (f" or in {data}." if data else "; give its folder: --data.")
            )
        return task.model_copy(update={"path": found})
    if data is None or task.name not in SOURCES:
        return task
    split = task.split or SOURCES[task.name].split
    found = next((path for kind in READERS if (path := data / f"{task.name}_{split}{kind}").is_file()), None)
    return task if found is None else task.model_copy(update={"path": found})
