"""State files: plain data and arrays without pickle, written atomically, and refused if corrupted."""

import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "kaestat-state"
VERSION = 1


@contextmanager
def reading(content: str = "state") -> Iterator[None]:
    """Raise one ValueError for anything that corrupted content raises where it is read; it is called ``content``."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(f"{content}: "):
            raise
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{content}: cannot be read ({what}); it is corrupted, or something else.") from error


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Replace the file at ``path`` atomically: readers see the old file or the new one, never a part.

    An existing file keeps its permissions. A link stays a link; its target is replaced. File and folder are flushed to
    the disk. An OSError if the file cannot be written; the old file is then unchanged.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.kaestat.tmp")
    try:
        created = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else 0o600)
        with open(created, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, mode)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def save_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write a state to a file: a (nested) dict of plain data and NumPy arrays.

    The file is a line with format, version and SHA-256 of the rest, a line of JSON, and the bytes of the arrays.
    Raises a TypeError if the state holds something that cannot be stored without pickle.
    """
    write_atomically(path, dump_state(state))


def dump_state(state: dict[str, Any]) -> bytes:
    """The bytes that `save_state` writes; a TypeError if something in the state cannot be stored without pickle."""
    arrays: list[bytes] = []
    content = json.dumps(_take_arrays(state, arrays)).encode() + b"\n" + b"".join(arrays)
    return _first_line(content) + content


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The state in a file written by `save_state`.

    Raises a FileNotFoundError if there is no such file, and a ValueError if the file is corrupted, not a state of
    kaestat, or of another version.
    """
    return parse_state(Path(path).read_bytes(), str(path))


def parse_state(content: bytes, name: str) -> dict[str, Any]:
    """The inverse of `dump_state`; messages call the file ``name``, and errors are as for `load_state`."""
    first, _, rest = content.partition(b"\n")
    words = first.split()
    if len(words) < 2 or words[0] != FORMAT.encode():
        raise ValueError(f"{name}: not a kaestat state file; it is something else, or was cut short.")
    if words[1] != str(VERSION).encode():
        raise ValueError(
            f"{name}: state version {words[1].decode(errors='replace')}, but this kaestat reads version {VERSION}; "
            "install the kaestat that wrote it."
        )
    if first + b"\n" != _first_line(rest):
        raise ValueError(
            f"{name}: not a complete kaestat state file; it was cut short or corrupted. Use the checkpoint before it."
        )
    with reading(name):  # the checksum may be forged to fit
        header, _, arrays = rest.partition(b"\n")
        state = _put_arrays(json.loads(header), memoryview(arrays))
        if not isinstance(state, dict):
            raise ValueError(f"a {type(state).__name__} is no state")
    return state


def pack_arrays(value: Any) -> Any:
    """The state with its arrays as bytes, safe for ``torch.save`` and ``torch.load(weights_only=True)``."""
    if isinstance(value, np.ndarray):
        return {"__bytes__": value.tobytes(), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, dict):
        return {key: pack_arrays(item) for key, item in value.items()}
    return value


def unpack_arrays(value: Any) -> Any:
    """The inverse of `pack_arrays`, with copies; a ValueError if a packed array does not fit together."""
    if isinstance(value, dict):
        if "__bytes__" in value:
            return _unpack_array(value)
        return {key: unpack_arrays(item) for key, item in value.items()}
    return value


def encode_keys(keys: list[Hashable]) -> list[Any]:
    """Prompt ids as JSON values: strings and integers as they are, others tagged by type.

    Raises a TypeError for any other id than strings, numbers, booleans, bytes and tuples of these.
    """
    return [key if type(key) in (str, int) else _encode_key(key) for key in keys]


@reading()
def decode_keys(keys: list[Any]) -> list[Hashable]:
    """The inverse of `encode_keys`; a ValueError if they are not encoded ids."""
    if not isinstance(keys, list):
        raise ValueError(f"state: prompt ids must be a list, got {keys!r}.")
    return [key if type(key) in (str, int) else _decode_key(key) for key in keys]


@reading()
def _unpack_array(packed: dict[str, Any]) -> np.ndarray:
    if packed["dtype"][1] not in "biuf":  # before NumPy, which warns of some
        raise ValueError(f"an array has dtype {packed['dtype']!r}, which no state has")
    return np.frombuffer(packed["__bytes__"], dtype=np.dtype(packed["dtype"])).reshape(packed["shape"]).copy()


def _encode_key(key: Hashable) -> Any:
    if isinstance(key, np.generic):
        key = key.item()
    # By base type: an enumeration's member or a named tuple equals the plain value, and is found under it again.
    if isinstance(key, bool):
        return {"bool": str(key)}
    if isinstance(key, int):
        return {"int": hex(key)}
    if isinstance(key, float):
        return {"float": float.hex(key)}
    if isinstance(key, str):
        return {"str": str.__str__(key)}
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, tuple):
        return {"tuple": [_encode_key(part) for part in key]}
    if key is None:
        return {"none": ""}
    raise TypeError(
        f"prompt id {key!r} of type {type(key).__name__} cannot be saved; use strings, numbers, bytes or tuples."
    )


def _decode_key(plain: dict[str, Any]) -> Hashable:
    ((kind, text),) = plain.items()
    if kind == "tuple":
        return tuple(_decode_key(part) for part in text)
    read: dict[str, Callable[[str], Hashable]] = {
        "str": str,
        "int": lambda value: int(value, 16),
        "float": float.fromhex,
        "bool": lambda value: value == "True",
        "bytes": bytes.fromhex,
        "none": lambda value: None,
    }
    return read[kind](text)


def _first_line(content: bytes) -> bytes:
    return f"{FORMAT} {VERSION} {hashlib.sha256(content).hexdigest()}\n".encode()


def _take_arrays(value: Any, arrays: list[bytes]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise TypeError(f"state: an array of dtype {value.dtype.str!r} cannot be saved; only numbers can.")
        arrays.append(value.tobytes())
        return {"__array__": sum(map(len, arrays[:-1])), "dtype": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, dict):
        return {key: _take_arrays(item, arrays) for key, item in value.items()}
    return value


def _put_arrays(value: Any, arrays: memoryview) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            size = math.prod(value["shape"]) * np.dtype(value["dtype"]).itemsize
            return _unpack_array(value | {"__bytes__": arrays[value["__array__"] :][:size]})
        return {key: _put_arrays(item, arrays) for key, item in value.items()}
    return value
