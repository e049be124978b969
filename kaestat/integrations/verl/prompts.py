"""Ids for the history's prompts, from verl's data about a prompt, and pass rates from before the run."""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kaestat.history.prior import BEFORE_THE_RUN, Prior
from kaestat.history.prior_table import table_of_file
from kaestat.integrations.shared.prior_columns import prior_of_columns
from kaestat.integrations.shared.prompt_ids import FIX, UnstablePromptIds, hash_prompt

FIELDS = ("data_source", "extra_info", "raw_prompt")  # of verl's data sets


@dataclass(frozen=True)
class Prompt:
    """A prompt with its id in the history."""

    id: Hashable  # Id that is stable through the run
    hash: str  # Hash of the prompt's messages, to check the id against


def read_prompt(prompt_id: str, data_source: Any, extra_info: Any, raw_prompt: Any) -> Prompt:
    """The id and hash of one row of a verl data set; an `UnstablePromptIds` if it has no such id.

    verl's ``uid`` is random at every step, and its ``index`` is 0 if the data set has none; neither is used.
    """
    if raw_prompt is None:
        raise UnstablePromptIds("raw_prompt is missing, so the prompt has no id that could be trusted: " + FIX)
    digest = hash_prompt(raw_prompt)
    info = extra_info if isinstance(extra_info, Mapping) else {}
    if prompt_id.startswith("extra_info."):
        key = prompt_id.removeprefix("extra_info.")
        if info.get(key) is None:
            raise UnstablePromptIds(
                f"algorithm.kaestat.prompt_id={prompt_id}: the prompt has no such id, its extra_info holds "
                f"{', '.join(sorted(info)) or 'nothing'}. Put it into the data set, or write prompt_id=prompt."
            )
        return Prompt(_plain(info[key]), digest)
    if prompt_id == "auto" and info.get("index") is not None:
        # Text, since a history with many ids is saved ten times faster by texts than by tuples.
        parts = [_plain(part) for part in (data_source, info.get("split"), info["index"])]
        return Prompt(json.dumps(parts, ensure_ascii=False, separators=(",", ":"), default=str), digest)
    return Prompt(digest, digest)


def _plain(value: Any) -> Hashable:
    return value.item() if isinstance(value, np.generic) else value


COLUMNS = ("prior_mean", "prior_count")
PROMPT = "prompt"  # verl's default of data.prompt_key


def prior_of_data_file(path: str, prompt_id: str, step: int = BEFORE_THE_RUN) -> Prior:
    """The prior in verl's data file, Parquet or JSON lines, with columns ``prior_mean`` and ``prior_count``."""
    table = table_of_file(path)
    if PROMPT not in table:
        found = ", ".join(map(str, table.columns))
        raise ValueError(f"{path}: no column {PROMPT!r} among {found}; give a data file as verl reads it.")
    absent = [None] * len(table)
    columns = [table[name].tolist() if name in table else absent for name in ("data_source", "extra_info", PROMPT)]
    try:
        ids = [read_prompt(prompt_id, *fields).id for fields in zip(*columns, strict=True)]
        return prior_of_columns(ids, table, COLUMNS, step)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
