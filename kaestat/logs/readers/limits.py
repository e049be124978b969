"""Limits on the size of a file: larger ones are refused before they are expanded."""

from pathlib import Path

# Logs compress to a tenth, or to a fiftieth if many rows repeat a prompt; no log compresses better.
MAX_RATIO = 100
ALWAYS_ALLOWED = 2**27  # bytes; a small file may be as repetitive as it likes


def check_unpacked(path: Path, packed: int, unpacked: int, remedy: str) -> None:
    """Raise a ValueError if a file of ``packed`` bytes may not expand to so many bytes."""
    limit = max(ALWAYS_ALLOWED, MAX_RATIO * packed)
    if unpacked > limit:
        raise ValueError(
            f"{path}: {packed:,} compressed bytes hold {unpacked:,} or more, over the limit of {limit:,} ({MAX_RATIO} "
            f"times, at least {ALWAYS_ALLOWED:,}). If that is right, {remedy}: files that are not compressed have none."
        )
