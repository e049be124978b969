"""Text files, plain or gzipped; errors name the file."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kaestat.logs.readers.limits import check_unpacked


@contextmanager
def text_file(path: Path) -> Iterator[TextIO]:
    """A UTF-8 text file, opened; unpacked while reading if its name ends in ``.gz``.

    A ValueError if the packed file is cut short, damaged or implausibly compressed, or if the content is not UTF-8
    text, as soon as this is known.
    """
    try:
        with _opened(path) as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: the gzip file is cut short or damaged ({error}); copy it again, or pack it once it is complete."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error}); convert it to UTF-8.") from error


def whole_text(file: TextIO) -> str:
    """The whole file, read in pieces, so that excessive compression is noticed early."""
    return "".join(iter(lambda: file.read(2**20), ""))


def has_suffix(path: Path, *suffixes: str) -> bool:
    """Whether the file's name ends in one of the suffixes, optionally followed by ``.gz``."""
    return path.name.lower().removesuffix(".gz").endswith(suffixes)


def _opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    return _BoundedGzip(path) if path.name.lower().endswith(".gz") else open(path, "rb")


class _BoundedGzip(gzip.GzipFile):
    """Raises a ValueError once it has given more than a log would."""

    def __init__(self, path: Path):
        super().__init__(path, "rb")
        self._path, self._packed = path, path.stat().st_size

    def read1(self, size: int = -1) -> bytes:
        content = super().read1(size)
        check_unpacked(self._path, self._packed, self.tell(), "unpack it with gzip -d")
        return content
