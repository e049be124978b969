"""The rows of a batch in the form that the history needs, and their advantages."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.verl.prompts import FIELDS, Prompt, read_prompt

if TYPE_CHECKING:
    from transfer_queue import KVBatchMeta


@dataclass(frozen=True, eq=False)
class BatchRows:
    """The rows of a batch, in its order."""

    uids: tuple[Hashable, ...]  # length N; verl's name of each row's group
    prompts: tuple[Prompt | None, ...]  # length N; None for padding
    final: np.ndarray  # of int, shape (N,); position of the last output of each row's session
    padding: np.ndarray  # of bool, shape (N,)

    def graded(self, rewards: np.ndarray) -> np.ndarray:
        """Which rows end a session that has a reward, shape (N,)."""
        return (self.final == np.arange(len(self.final))) & ~self.padding & ~np.isnan(rewards)


def read_rows(batch: KVBatchMeta, prompt_id: str) -> BatchRows:
    """The rows of a V1 batch, from its keys and tags, and from one row of each group in the transfer queue."""
    outputs = [_output(key) for key in batch.keys]
    padding = np.array([tag.get("is_padding", False) for tag in batch.tags], dtype=bool)
    last: dict[tuple[str, str], int] = {}
    for row, (uid, session, number) in enumerate(outputs):
        before = last.setdefault((uid, session), row)
        if number > outputs[before][2]:
            last[uid, session] = row
    one_row = {uid: row for row, (uid, *_) in enumerate(outputs) if not padding[row]}
    prompts = _read_prompts(batch, one_row, prompt_id)
    return BatchRows(
        uids=tuple(uid for uid, *_ in outputs),
        prompts=tuple(prompts.get(uid) for uid, *_ in outputs),
        final=np.array([last[uid, session] for uid, session, _ in outputs], dtype=np.int64),
        padding=padding,
    )


def row_advantages(
    session: TrainerSession,
    rows: BatchRows,
    step: int,
    index: Sequence[Hashable] | None,
    rewards: torch.Tensor,
    weights: torch.Tensor | None,
    version: np.ndarray | None = None,
) -> torch.Tensor:
    """Advantages of a batch's rows, shape (N,), like ``rewards`` in type and device; 0 for the reward NaN; records
    them.
    """
    if index is None or list(index) != list(rows.uids):
        raise ValueError(
            "index: verl computes advantages of other rows than those of this batch, or in another order; this is not "
            "the verl that kaestat.integrations.verl was written for."
        )
    of_rows = None if weights is None else weights.double().cpu().numpy()
    given = rewards.double().cpu().numpy()
    # The correction of what was drawn is verl's rows' own: see `DrawnRows`.
    factor = None if session.drawn is None else np.ones(len(given))
    columns = completions_of(session, rows, given, of_rows)
    advantages = session.advantages(given, step, version=version, correction=factor, **columns)
    advantages = np.where(rows.padding, 0.0, advantages[rows.final])
    return torch.as_tensor(advantages, dtype=rewards.dtype, device=rewards.device)


def completions_of(
    session: TrainerSession, rows: BatchRows, rewards: np.ndarray, weights: np.ndarray | None
) -> dict[str, Any]:
    """What a session needs of rows in addition to their rewards: each session's final output is a completion."""
    of_sessions, known = None, session.stateful or session.drawn is not None
    if weights is not None and session.weighs:
        of_rows = np.where(rows.padding, 0.0, weights)
        of_sessions = np.bincount(rows.final, of_rows, minlength=len(of_rows))
    return {
        "prompts": [None if prompt is None else prompt.hash for prompt in rows.prompts],
        "ids": [None if prompt is None else prompt.id for prompt in rows.prompts] if known else None,
        "groups": rows.uids,
        "mask": rows.graded(rewards),
        "weights": of_sessions,
    }


def row_weights(weights: str, response_mask: torch.Tensor, norms: torch.Tensor | None) -> torch.Tensor | None:
    """The weight of each row, (N,), from ``norms`` of rows or of tokens, (N, T); None for no weights."""
    if weights == "none":
        return None
    if weights == "length":
        return response_mask.sum(dim=-1)
    assert norms is not None  # read before verl asks for advantages
    norms = norms.to(response_mask.device)
    return norms if norms.ndim == 1 else (norms * response_mask).sum(dim=-1)


def _output(key: str) -> tuple[str, str, int]:
    """Group, session and number of an output, from its key."""
    parts = key.rsplit("_", 2)
    if len(parts) != 3 or not parts[2].isdigit():
        raise ValueError(
            f"key {key!r}: expected uid_session_output, as verl's agent loop manager names its outputs; an agent loop "
            "manager of your own must name them so too."
        )
    return parts[0], parts[1], int(parts[2])


def _read_prompts(batch: KVBatchMeta, one_row: dict[str, int], prompt_id: str) -> dict[str, Prompt]:
    """The prompt of each group, from the data set's fields of one of its rows."""
    if not one_row:
        return {}
    import transfer_queue  # needed here alone: all else works on plain rows

    data = transfer_queue.kv_batch_get(
        keys=[batch.keys[row] for row in one_row.values()], partition_id=batch.partition_id, select_fields=list(FIELDS)
    )
    columns = [list(data[name]) if name in data.keys() else [None] * len(one_row) for name in FIELDS]
    return {uid: read_prompt(prompt_id, *fields) for uid, *fields in zip(one_row, *columns, strict=True)}
