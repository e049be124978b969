"""A prior from the columns of a trainer's data set."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from kaestat.history.prior import BEFORE_THE_RUN, Prior
from kaestat.history.prior_table import usable_rows


def prior_of_columns(ids: Sequence[Hashable], table: Any, columns: Any, step: int = BEFORE_THE_RUN) -> Prior:
    """The prior of a data set: its prompts' pass rates from before the run.

    Parameters
    ----------
    ids : sequence of hashables, length N
        Prompt of each row, the same ids as for rewards. Rows of one prompt with the same numbers count once.
    table : mapping of columns
        The data set, as `Prior.of_table` takes it.
    columns : pair of str
        Names of the columns with mean rewards, from 0 to 1, and with numbers of completions. A row without one of
        them has no prior.
    step : int
        Step of the policy that sampled them, see `Prior`.

    Raises
    ------
    ValueError
        If ``columns`` are not a pair of columns of the table, rows of one prompt differ, or as `Prior.of_rates`.
    TypeError
        As `Prior.of_rates`.
    """
    if not (isinstance(columns, tuple | list) and len(columns) == 2 and all(isinstance(name, str) for name in columns)):
        raise ValueError(
            "prior_columns must be the names of two columns, of mean rewards and of numbers of completions, got "
            f"{columns!r}."
        )
    mean, count = columns
    names = list(getattr(table, "column_names", table))
    for name in columns:
        if name not in names:
            raise ValueError(f"prior_columns: the data set has no column {name!r}, only {', '.join(map(str, names))}.")
    keys, *numbers = usable_rows({"": ids, mean: table[mean], count: table[count]}, "", mean, count)
    known: dict[Hashable, tuple[float, int]] = {}
    for key, *pair in zip(keys, *(column.tolist() for column in numbers), strict=True):
        if known.setdefault(key, tuple(pair)) != tuple(pair):
            raise ValueError(
                f"prior_columns: rows of prompt {key!r} say {known[key]} and {tuple(pair)}; give every row of a prompt "
                "the same mean and count, those of all its completions."
            )
    return Prior.of_mapping(known, step=step)
