"""Who the rows of a generation batch are, if a column of the data set says so."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from kaestat.integrations.prompt_ids import UnstablePromptIds
from kaestat.storage import encode_keys


def column_ids(rows: Sequence[Mapping[str, Any]], column: str) -> list[Hashable]:
    """The ids that the data set gives, from a column of it.

    Raises
    ------
    UnstablePromptIds
        If the rows have no such column.
    TypeError
        If an id is no string, number or tuple of these.
    """
    if column not in rows[0]:
        raise UnstablePromptIds(
            f"prompt_id={column!r}: the rows have no such column, only {', '.join(sorted(rows[0]))}. Name one that "
            "identifies the prompt (and keep remove_unused_columns=False), or leave prompt_id out: the history is then "
            "kept by a hash of the prompt."
        )
    ids = [_plain(row[column]) for row in rows]
    try:
        encode_keys([key for key in ids if key is not None])  # None is a missing id: IdentityCheck says so
    except TypeError as error:
        raise TypeError(f"prompt_id={column!r}: {error}") from error
    return ids


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
