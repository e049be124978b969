"""State files: a NumPy archive without pickle, written atomically, refused when torn or foreign."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "kaestat-state"
VERSION = 1


def write_atomically(path: str | os.PathLike, content: bytes | str) -> None:
    """Replace the file at ``path`` in one go: readers see the old file or the new one, never half of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_state(path: str | os.PathLike, state: dict[str, Any]) -> None:
    """Write a state (a dict of plain data, with NumPy arrays anywhere among its values).

    Raises
    ------
    TypeError
        If the state holds something that cannot be stored without pickle.
    """
    arrays: dict[str, np.ndarray] = {}
    header = {"format": FORMAT, "version": VERSION, "state": _take_arrays(state, arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
    write_atomically(path, buffer.getvalue())


def load_state(path: str | os.PathLike) -> dict[str, Any]:
    """Read a state written by `save_state`.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is torn, no state of kaestat, or of a newer version.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(bytes(archive["header"]).decode())
            arrays = {name: archive[name] for name in archive.files if name != "header"}
        known = header["format"] == FORMAT
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise ValueError(
            f"{path}: not a complete kaestat state file ({error}); it was cut short or is something else. "
            "Use the checkpoint before it."
        ) from error
    if not known:
        raise ValueError(f"{path}: not a kaestat state file (format {header['format']!r}).")
    if header["version"] != VERSION:
        raise ValueError(
            f"{path}: state version {header['version']}, but this kaestat reads version {VERSION}; install the kaestat "
            "that wrote it."
        )
    return _put_arrays(header["state"], arrays)


def encode_keys(keys: list[Hashable]) -> list[Any] | np.ndarray:
    """Prompt ids as plain data: an array where all are integers, else JSON values tagged by type.

    Raises
    ------
    TypeError
        If an id is not a string, number, boolean, bytes or tuple of these.
    """
    if keys and all(type(key) is int for key in keys) and -(2**63) <= min(keys) and max(keys) < 2**63:
        return np.array(keys, dtype=np.int64)
    return [key if type(key) is str else _encode_key(key) for key in keys]


def decode_keys(keys: list[Any] | np.ndarray) -> list[Hashable]:
    """The inverse of `encode_keys`."""
    if isinstance(keys, np.ndarray):
        return keys.tolist()
    return [key if type(key) is str else _decode_key(key) for key in keys]


def _encode_key(key: Hashable) -> Any:
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, bool | int | float | str):
        return {type(key).__name__: key.hex() if isinstance(key, float) else str(key)}
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, tuple):
        return {"tuple": [_encode_key(part) for part in key]}
    if key is None:
        return {"none": ""}
    raise TypeError(
        f"prompt id {key!r} of type {type(key).__name__} cannot be saved; use strings, numbers, bytes or tuples of them."
    )


def _decode_key(plain: dict[str, Any]) -> Hashable:
    ((kind, text),) = plain.items()
    if kind == "tuple":
        return tuple(_decode_key(part) for part in text)
    return {
        "str": str,
        "int": int,
        "float": float.fromhex,
        "bool": lambda value: value == "True",
        "bytes": bytes.fromhex,
        "none": lambda value: None,
    }[kind](text)


def _take_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("state: arrays of Python objects cannot be saved without pickle.")
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"__array__": name}
    if isinstance(value, dict):
        return {key: _take_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list) and any(isinstance(item, np.ndarray) for item in value):
        return [_take_arrays(item, arrays) for item in value]
    return value


def _put_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            return arrays[value["__array__"]]
        return {key: _put_arrays(item, arrays) for key, item in value.items()}
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
