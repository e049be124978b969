"""State files: NumPy archives without pickle, written atomically, and refused if damaged or not from kaestat."""

import errno
import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import zipfile
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from kaestat.core.temporary_files import new_file, remove_left

FORMAT = "kaestat-state"
VERSION = 1
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_LONGEST_HEADER = 10_000  # NumPy's own limit
_MOST_OF_NONE = 2**20  # numbers that each row of an array without rows may have; no method keeps as many of a prompt
_MANY_KEYS = 4096  # below, an array costs more than it saves
PACKED_DTYPE = re.compile(r"[<>|][biuf]\d{1,2}")  # of truth values, integers and floats, as `numpy.dtype.str` has them


@contextmanager
def reading(content: str = "state") -> Iterator[None]:
    """Raise one ValueError for anything that altered content raises where it is read; it is called ``content``."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(f"{content}: "):
            raise
        what = f"{type(error).__name__}: {error}"
        raise ValueError(f"{content}: cannot be read ({what}); it was altered, or is something else.") from error


def write_atomically(path: str | os.PathLike[str], content: bytes | str | Callable[[BinaryIO], None]) -> None:
    """Replace the file at ``path`` atomically: readers see the old file or the new one, never a part.

    An existing file keeps its permissions, and its owner and group if the process may set them. A link stays a link;
    its target is replaced. File and folder are flushed to the disk. Files that killed writers left in the folder are
    removed. An OSError if the file cannot be written, or its links form a circle; the old file is then unchanged.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path.parent)
    old = path.stat() if path.exists() else None
    with new_file(path, 0o666 if old is None else 0o600) as (temporary, file):
        if callable(content):
            content(file)
        else:
            file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        if old is not None:
            _take_over(file.fileno(), old)
        os.fsync(file.fileno())
        if os.name == "nt":  # which moves no open file
            file.close()
        os.replace(temporary, path)
    _flush_folder(path.parent)


def _take_over(handle: int, old: os.stat_result) -> None:
    """Give a new file the owner, the group and the permissions of the old one."""
    if not hasattr(os, "fchmod"):  # Windows
        return
    new, mode = os.fstat(handle), stat.S_IMODE(old.st_mode)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(handle, old.st_uid, old.st_gid)
        except OSError:  # not allowed: the group is another one, which the old file's group bits do not speak of
            mode &= ~(stat.S_IRWXG | stat.S_ISGID | stat.S_ISUID) if new.st_gid != old.st_gid else ~stat.S_ISUID
    os.fchmod(handle, mode)


def _flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, where the system lets a folder be flushed."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def save_state(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Write a state to a file: a (nested) dict of plain data and NumPy arrays.

    The file is one line of text (format, version, SHA-256 of the rest) and a NumPy archive. Raises a TypeError if the
    state holds something that cannot be stored without pickle.
    """
    write_atomically(path, _writer(state))


def dump_state(state: dict[str, Any]) -> bytes:
    """The bytes that `save_state` writes; a TypeError if something in the state cannot be stored without pickle."""
    buffer = io.BytesIO()
    _writer(state)(buffer)
    return buffer.getvalue()


class _Hashed(io.RawIOBase):
    """A file that takes the digest of what is written; it cannot seek, so that nothing is written twice."""

    def __init__(self, file: BinaryIO):
        self.file, self.digest = file, hashlib.sha256()

    def write(self, content: Any) -> int:
        self.digest.update(content)
        return self.file.write(content)


def _writer(state: dict[str, Any]) -> Callable[[BinaryIO], None]:
    """What writes a state to an empty file."""
    arrays: dict[str, Any] = {}
    header = json.dumps(_take_arrays(state, arrays)).encode()

    def write(file: BinaryIO) -> None:
        file.write(_first_line("0" * 64))
        hashed = _Hashed(file)
        np.savez(hashed, header=np.frombuffer(header, dtype=np.uint8), **arrays)
        file.seek(0)
        file.write(_first_line(hashed.digest.hexdigest()))

    return write


def load_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The state in a file written by `save_state`.

    Raises a FileNotFoundError if there is no such file, and a ValueError if the file is damaged, not a state of
    kaestat, or of another version.
    """
    with open(path, "rb") as file:
        return _read_state(file, path)


def parse_state(content: bytes, name: str) -> dict[str, Any]:
    """The inverse of `dump_state`; messages call the file ``name``, and errors are as for `load_state`."""
    # `hashlib.file_digest` takes all of a BytesIO, whatever its position; of a reader, what is left.
    return _read_state(io.BufferedReader(io.BytesIO(content)), name)


def _read_state(file: io.BufferedIOBase, path: str | os.PathLike[str]) -> dict[str, Any]:
    first = file.readline(len(_first_line("0" * 64)))
    words = first.split()
    if len(words) < 2 or words[0] != FORMAT.encode():
        raise ValueError(f"{path}: not a kaestat state file; it is something else, or was cut short.")
    if words[1] != str(VERSION).encode():
        raise ValueError(
            f"{path}: state version {words[1].decode(errors='replace')}, but this kaestat reads version {VERSION}; "
            "install the kaestat that wrote it."
        )
    if first != _first_line(hashlib.file_digest(file, "sha256").hexdigest()):
        raise ValueError(
            f"{path}: not a complete kaestat state file; it was cut short or altered. Use the checkpoint before it."
        )
    file.seek(len(first))
    with reading(str(path)):  # the checksum may be forged to fit
        arrays = _read_arrays(file)
        state = _put_arrays(json.loads(bytes(arrays.pop("header"))), arrays)
    if not isinstance(state, dict):
        raise ValueError(f"{path}: holds a {type(state).__name__}, no state; it was altered.")
    return state


def _read_arrays(file: io.BufferedIOBase) -> dict[str, np.ndarray]:
    """Arrays of a NumPy archive by name; a ValueError unless each is as large as it claims, before it is made.

    `save_state` does not compress, so that no array is larger than the file: what is compressed, or claims more than
    there is, is not a state, and could take any amount of memory. The checksum of the whole file covers the members.
    """
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    claimed = sum(member.file_size for member in members)
    if claimed > (there := file.seek(0, os.SEEK_END)):
        raise ValueError(f"its arrays claim {claimed:,} bytes, and the file has {there:,}")
    return {member.filename.removesuffix(".npy"): _read_array(file, member) for member in members}


def _read_array(file: io.BufferedIOBase, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is compressed, which states are not")
    file.seek(member.header_offset + 26)
    start = member.header_offset + 30 + sum(struct.unpack("<HH", file.read(4)))  # after the name and what is extra
    file.seek(start)
    shape, by_columns, dtype = _HEADERS[np.lib.format.read_magic(file)](file, max_header_size=_LONGEST_HEADER)
    size, claimed = start + member.file_size - file.tell(), math.prod(shape) * dtype.itemsize
    if claimed != size:
        raise ValueError(f"{member.filename} claims {claimed:,} bytes and has {size:,}")
    _check_dtype(dtype.str)
    _check_empty(shape)
    content = np.empty(size, dtype=np.uint8)
    if file.readinto(content.data) < size:
        raise ValueError(f"{member.filename} goes beyond the end of the file")
    return content.view(dtype).reshape(shape, order="F" if by_columns else "C")


def _check_dtype(name: str) -> None:
    if not PACKED_DTYPE.fullmatch(name):
        raise ValueError(f"an array has dtype {name!r}, which states have not")


def _check_empty(shape: tuple[int, ...]) -> None:
    """Raise a ValueError if an array holds no number but claims rows so long that making one fills the memory."""
    claimed = math.prod(size for size in shape if size)
    if 0 in shape and claimed > _MOST_OF_NONE:
        raise ValueError(f"an array without numbers claims the shape {shape}")


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


def encode_keys(keys: list[Hashable]) -> list[Any] | np.ndarray | dict[str, np.ndarray]:
    """Prompt ids as plain data: an array if all are integers, the lines of one text if they are many strings.

    Otherwise JSON values tagged by type, which take six times as long. A TypeError if an id is not a string, number,
    boolean, bytes or tuple of these.
    """
    types = set(map(type, keys))
    if types == {str} and len(keys) >= _MANY_KEYS:
        text = "\n".join(cast(list[str], keys))
        if text.count("\n") == len(keys) - 1:  # no id has a line break
            return {"lines": np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)}
    if types == {int}:
        integers: list[Any] = keys
        if -(2**63) <= min(integers) and max(integers) < 2**63:
            return np.array(integers, dtype=np.int64)
    return keys if types == {str} else [key if type(key) is str else _encode_key(key) for key in keys]


@reading()
def decode_keys(keys: list[Any] | np.ndarray | dict[str, np.ndarray]) -> list[Hashable]:
    """The inverse of `encode_keys`; a ValueError if they are not encoded ids."""
    if isinstance(keys, np.ndarray) and keys.ndim == 1 and keys.dtype.kind in "iu":
        return keys.tolist()
    if not isinstance(keys, list | dict):
        raise ValueError(f"state: prompt ids must be a list or an array of integers, got {keys!r}.")
    if isinstance(keys, dict):
        return cast(list[Hashable], keys["lines"].tobytes().decode("utf-8", "surrogatepass").split("\n"))
    return keys if set(map(type, keys)) == {str} else [k if type(k) is str else _decode_key(k) for k in keys]


@reading()
def _unpack_array(packed: dict[str, Any]) -> np.ndarray:
    name = str(packed["dtype"])
    _check_dtype(name)  # before NumPy, which knows more types and warns of some
    array = np.frombuffer(packed["__bytes__"], dtype=np.dtype(name)).reshape(packed["shape"])
    _check_empty(array.shape)
    return array.copy()


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


def _first_line(digest: str) -> bytes:
    return f"{FORMAT} {VERSION} {digest}\n".encode()


def _take_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        if not PACKED_DTYPE.fullmatch(value.dtype.str):
            raise TypeError(f"state: an array of dtype {value.dtype.str!r} cannot be saved; only numbers can.")
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"__array__": name}
    if isinstance(value, dict):
        return {key: _take_arrays(item, arrays) for key, item in value.items()}
    return value


def _put_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            return arrays[value["__array__"]]
        return {key: _put_arrays(item, arrays) for key, item in value.items()}
    return value
