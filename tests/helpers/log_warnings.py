"""The warnings of readers of logs."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from kaestat.logs.columns import LogWarning


@contextmanager
def warned() -> Iterator[list[str]]:
    """The texts of all `LogWarning`s within, known behind it."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LogWarning)
        yield texts
    texts += [str(each.message) for each in caught if issubclass(each.category, LogWarning)]
