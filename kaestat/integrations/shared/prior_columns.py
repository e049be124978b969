"""A prior from the columns of a trainer's data set."""

from collections.abc import Hashable, Sequence
from typing import Any

from kaestat.history.prior import BEFORE_THE_RUN, Prior
from kaestat.history.prior_table import usable_rows


def prior_of_columns(ids: Sequence[Hashable], table: Any, columns: Any, step: int = BEFORE_THE_RUN) -> Prior:
    """The prior of a data set: its prompts' pass rates from before the run.

    ``ids`` are the prompts of the rows; ``columns`` names the columns of ``table`` with mean rewards, from 0 to 1, and
    with numbers of completions; a row without one of them has no prior.
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
