"""A progress bar that says nothing."""

from contextlib import contextmanager


@contextmanager
def silent(part, total):
    yield lambda: None
