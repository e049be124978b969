"""Who the rows of a generation batch are: ids that the history is kept by, and hashes that watch over them."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from kaestat.integrations.prompt_ids import UnstablePromptIds, hash_prompt
from kaestat.storage import encode_keys


def prompt_hashes(prompts: Sequence[Any]) -> list[str]:
    """Hash of each prompt; images within chat messages count by their pixels.

    Parameters
    ----------
    prompts : sequence of str or of chat messages
        As TRL hands them to reward functions: with images and the first observation of an environment in place.

    Returns
    -------
    list of str

    Raises
    ------
    TypeError
        If a prompt holds something that cannot be hashed.
    """
    return [hash_prompt(_with_image_digests(prompt)) for prompt in prompts]


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


def _with_image_digests(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_image_digests(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_image_digests(item) for item in value]
    if hasattr(value, "tobytes") and hasattr(value, "mode"):  # a PIL image, without importing PIL
        content = f"{value.mode} {value.size}".encode() + value.tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()
    return value


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
