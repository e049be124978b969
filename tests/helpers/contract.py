"""What every entry point owes to any input: a result, or a refusal that says what was wrong."""

import warnings
from collections.abc import Callable, Collection
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import kaestat
from kaestat.logs.columns import LogWarning
from kaestat.logs.prompt_risks import FewPromptsWarning

HERE = str(Path(kaestat.__file__).parent)
REFUSALS = (ValueError, TypeError, FileNotFoundError)
REFUSED = object()


def attempt(call: Callable[[], Any], names: Collection[str] = ()) -> Any:
    """The result of a call, or `REFUSED`; anything else that it does is an assertion error.

    A refusal is a ValueError, a TypeError or a FileNotFoundError, none of their subclasses but kaestat's own (others
    were raised by a decoder or parser, and nobody caught them), raised by kaestat itself, with one of ``names`` in its
    message. Warnings count as errors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FewPromptsWarning)
        warnings.simplefilter("ignore", LogWarning)  # what was left out is said, and the log is a log
        warnings.filterwarnings("ignore", ".*no group has more than one completion")
        try:
            return call()
        except Exception as error:
            _check_refusal(error, names)
            return REFUSED


def _check_refusal(error: Exception, names: Collection[str]) -> None:
    frame = error.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    file = frame.tb_frame.f_code.co_filename
    if type(error) not in REFUSALS:
        what = f"{type(error).__name__} is no refusal"
    elif not file.startswith(HERE):
        what = f"comes from {file}, not from kaestat"
    elif names and not any(name in str(error) for name in names):
        what = f"names none of {list(names)}"
    else:
        return
    raise AssertionError(f"{what}: {error}") from error


class _Silent:
    """An object that is nothing that anybody asks for."""

    def __repr__(self) -> str:
        return "<an object>"


ODD_NUMBERS = [
    0, 1, -1, 2, 3, 7, 2**31, 2**63, 2**70, -(2**70), 10**400, True, False, 0.0, -0.0, 0.5, 1.5, -0.5, 5e-324, 1e-300,
    1e300, 1.7976931348623157e308, float("inf"), float("-inf"), float("nan"), 1j,
    np.float32(0.25), np.float64("nan"), np.int8(3), np.uint64(2**64 - 1), np.bool_(True), Fraction(1, 3),
]  # fmt: skip
ODD_THINGS = [
    None, "", "a", "10", "nan", "kae", "\x00", "\ud800", "\N{SNOWMAN}", b"", b"a", (), (1,), ("a", 1), frozenset({1}),
    range(3), np.array(1.0), np.array([]), np.array([1.0, 2.0]), np.array([[1.0]]), np.array(["a"]),
    np.array([None, 1], dtype=object), np.datetime64("2026-01-01"), pd.NA, pd.NaT, pd.Series([1.0], index=[5]),
    _Silent(), _Silent, len, NotImplemented, ...,
]  # fmt: skip
JUNK = st.sampled_from(ODD_NUMBERS + ODD_THINGS) | st.builds(list) | st.builds(dict) | st.floats() | st.text(max_size=5)
NUMBERS = st.sampled_from(ODD_NUMBERS) | st.floats()


def mostly(usual: st.SearchStrategy, odd: st.SearchStrategy = JUNK) -> st.SearchStrategy:
    """The usual four times in five, so that not every input is refused at the first argument."""
    return st.integers(0, 4).flatmap(lambda draw: odd if draw == 4 else usual)
