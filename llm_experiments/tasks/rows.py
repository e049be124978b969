"""Rows of a data set, from a local file or from the Hugging Face hub, as dictionaries."""

import json
from pathlib import Path

READERS = (".jsonl", ".json", ".parquet")


def local_rows(path: Path) -> list[dict]:
    """Rows of a JSON-lines file, a JSON list or a Parquet file.

    Raises FileNotFoundError if there is no such file.
    Raises ValueError if it is of another kind, or its content is not what its name says.
    """
    if not path.is_file():
        raise FileNotFoundError(f"path {path}: no such file; give a {', '.join(READERS)} file of problems.")
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_table(path).to_pylist()
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        elif path.suffix == ".json":
            rows = json.loads(path.read_text(encoding="utf-8"))
        else:
            raise ValueError(f"it must be a {', '.join(READERS)} file")
    except ValueError as error:  # pyarrow's and json's errors are ValueErrors too
        raise ValueError(f"path {path}: {error}.") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"path {path}: must hold one JSON object for each problem.")
    return rows


def hub_rows(hub: str, subset: str | None, split: str, expected: str) -> list[dict]:
    """Rows of a data set on the hub, from the local cache where it is complete.

    expected: What a local file would have to hold; for the message.
    Raises ConnectionError if it can not be read, for whatever reason.
    """
    import datasets

    try:
        return datasets.load_dataset(hub, subset, split=split).to_list()
    except Exception as error:
        raise ConnectionError(
            f"data set {hub} (subset {subset}, split {split}) could not be read: "
            f"{type(error).__name__}: {error}. Without a network, give path: a local file ({', '.join(READERS)}) with "
            f"{expected}."
        ) from error
