"""Text files, plain or gzipped; errors name the file."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def text_file(path: Path) -> Iterator[TextIO]:
    """A UTF-8 text file, opened; unpacked while reading if its name ends in ``.gz``."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rb") as binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: the gzip file is cut short or damaged ({error}); copy it again, or pack it once it is complete."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error}); convert it to UTF-8.") from error


def has_suffix(path: Path, *suffixes: str) -> bool:
    """Whether the file's name ends in one of the suffixes, optionally followed by ``.gz``."""
    return path.name.lower().removesuffix(".gz").endswith(suffixes)
