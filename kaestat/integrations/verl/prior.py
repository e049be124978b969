"""Pass rates from before the run, in two further columns of a verl data file."""

from __future__ import annotations

from typing import Any

import numpy as np

from kaestat.history.prior import BEFORE_THE_RUN, Prior
from kaestat.history.prior_table import table_of_file
from kaestat.integrations.shared.prior_columns import prior_of_columns
from kaestat.integrations.verl.prompts import read_prompt

COLUMNS = ("prior_mean", "prior_count")
PROMPT = "prompt"  # what verl's data.prompt_key is if left alone


def prior_of_data_file(path: str, prompt_id: str, step: int = BEFORE_THE_RUN) -> Prior:
    """The prior in a data file in verl's format, Parquet or JSON lines.

    It has the columns ``prompt``, ``data_source`` and ``extra_info`` of verl's data files, and ``prior_mean`` and
    ``prior_count``: mean reward, from 0 to 1, and number of completions. A row without one of these two has no prior.
    ``prompt_id`` must be the run's. A ValueError if a column is missing or an id is unclear; ``step`` and further
    errors are as for `prior_of_columns`.
    """
    table = table_of_file(path)
    if PROMPT not in table:
        found = ", ".join(map(str, table.columns))
        raise ValueError(f"{path}: no column {PROMPT!r} among {found}; give a data file as verl reads it.")
    absent = [None] * len(table)
    columns = [table[name].tolist() if name in table else absent for name in ("data_source", "extra_info", PROMPT)]
    try:
        ids = [
            read_prompt(prompt_id, source, info, _messages(raw)).id for source, info, raw in zip(*columns, strict=True)
        ]
        return prior_of_columns(ids, table, COLUMNS, step)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _messages(raw: Any) -> Any:
    return raw.tolist() if isinstance(raw, np.ndarray) else raw
