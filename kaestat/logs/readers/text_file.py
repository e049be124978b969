"""Text files, packed or not, whose failures name the file."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def text_file(path: Path) -> Iterator[TextIO]:
    """Open a UTF-8 text file, unpacked on the way if its name ends in ``.gz``.

    Raises
    ------
    ValueError
        If the packed file is cut short or damaged, or the content is no UTF-8 text, as soon as that shows.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: the gzip file is cut short or damaged ({error}); copy it again, or pack it once it is complete."
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error}); convert it to UTF-8.") from error


def has_suffix(path: Path, *suffixes: str) -> bool:
    """Whether the file's name ends in one of the suffixes, with or without ``.gz`` behind it."""
    return path.name.lower().removesuffix(".gz").endswith(suffixes)
