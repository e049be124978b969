"""Which cases of a test stay in the quick suite."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_after(quick: int, cases: Iterable[Any]) -> list[Any]:
    """Cases for ``pytest.mark.parametrize``, all but the first so many of them slow; a tuple has several arguments."""
    return [
        case if k < quick else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for k, case in enumerate(cases)
    ]
