"""Limits on the size of a file: larger ones are refused before they are expanded."""

import os
from pathlib import Path

# Logs compress to a tenth, or to a fiftieth if many rows repeat a prompt; no log compresses better.
MAX_RATIO = 100
ALWAYS_ALLOWED = 2**27  # bytes; a small file may be as repetitive as it likes
BYTES_PER_ROW = 40  # of a log in memory, and of what sorts it
MAX_ROWS = 2**31 - 1  # more cannot be numbered by 32 bits


def check_unpacked(path: Path, packed: int, unpacked: int, remedy: str) -> None:
    """Raise a ValueError if a file of ``packed`` bytes may not expand to so many bytes."""
    limit = max(ALWAYS_ALLOWED, MAX_RATIO * packed)
    if unpacked > limit:
        raise ValueError(
            f"{path}: {packed:,} compressed bytes hold {unpacked:,} or more, over the limit of {limit:,} ({MAX_RATIO} "
            f"times, at least {ALWAYS_ALLOWED:,}). If that is right, {remedy}: files that are not compressed have none."
        )


def check_rows(path: Path, rows: int) -> None:
    """Raise a ValueError if a file claims more rows than fit into this machine's memory."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on every system
        memory = BYTES_PER_ROW * MAX_ROWS
    limit = min(MAX_ROWS, memory // BYTES_PER_ROW)
    if rows > limit:
        raise ValueError(
            f"{path}: claims {rows:,} rows, over the limit of {limit:,} for the memory here. Read a part of it: a "
            "sample of the prompts with all their rows."
        )
