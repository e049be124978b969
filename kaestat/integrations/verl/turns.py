"""A value for every turn of verl's multi-turn rollouts: ``+algorithm.kaestat.turns=True`` with one of our trainers.

A turn is what the policy wrote between the answers of tools or users, a run of ones in verl's ``response_mask``. It
earns the rewards at its tokens: ``token_level_rewards`` have the outcome at the last token of the response and a KL
penalty at each. With ``algorithm.kaestat.turn_rewards`` it also earns the rewards that the agent loop recorded for it:

===============  =======================================================================================================
turn_rewards     is read from the outputs' ``extra_fields``
===============  =======================================================================================================
tool_rewards     one for every call of a tool, as verl's ``tool_agent`` collects them from its tools. It belongs to the
                 turn that made the call: so one call a turn (``multi_turn.max_parallel_calls=1``, verl's default).
turn_scores      one for every turn, from an agent loop of your own; verl 0.9.1 leaves its list empty.
===============  =======================================================================================================
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transfer_queue
from transfer_queue import KVBatchMeta

from kaestat.credit.turns import rewards_of_turns, spread_over_tokens, turn_counts
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.verl.options import Options, filters_groups
from kaestat.integrations.verl.rows import BatchRows, check_rows, completions_of


@dataclass(frozen=True, eq=False)
class StoredTurns:
    """The turns of a batch's rows."""

    mask: np.ndarray  # of bool, shape (N, response length); tokens that the policy wrote, before verl rejects any
    # length N; rewards recorded by the agent loop, one per turn; zeros if none are requested
    earned: tuple[np.ndarray, ...]


def read_turns(batch: KVBatchMeta, rows: BatchRows, field: str | None) -> StoredTurns:
    """The turns of a V1 batch, from verl's transfer queue.

    ``field`` is `Options.turn_rewards`. A ValueError if a session has several outputs, or an output's rewards do not
    match its turns.
    """
    several = np.flatnonzero((rows.final != np.arange(len(rows.final))) & ~rows.padding)
    if len(several):
        raise ValueError(
            f"algorithm.kaestat.turns: session {batch.keys[several[0]].rpartition('_')[0]!r} has several outputs, and "
            "turns belong to one output. Let the agent loop give one output, or leave turns out."
        )
    names = ["response_mask"] if field is None else ["response_mask", "extra_fields"]
    stored = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    told: Sequence[Any] = stored.pop("extra_fields").tolist() if field is not None else [None] * len(rows.padding)
    mask = stored.to_padded_tensor()["response_mask"].bool().numpy()
    earned = []
    for row, (count, padding) in enumerate(zip(turn_counts(mask).tolist(), rows.padding, strict=True)):
        each = np.zeros(count)
        if field is not None and not padding:
            given = _given(told[row], field)
            least = count - 1 if field == "tool_rewards" else count  # the last turn need not call a tool
            if not max(least, 0) <= len(given) <= count:
                raise ValueError(
                    f"algorithm.kaestat.turn_rewards={field}: output {batch.keys[row]!r} has {count} turns and "
                    f"{len(given)} {field}; " + _REMEDY[field]
                )
            each[: len(given)] = given
        earned.append(each)
    return StoredTurns(mask, tuple(earned))


def turn_advantages(
    session: TrainerSession,
    turns: StoredTurns,
    rows: BatchRows,
    step: int,
    index: Sequence[Hashable] | None,
    token_rewards: torch.Tensor,
    version: np.ndarray | None = None,
) -> torch.Tensor:
    """Advantages of a batch's tokens, (N, response length), as the rewards in type and device.

    Records the returns of the turns. Advantages are 0 outside of turns, and for padding. ``index`` and errors are as
    for `row_advantages`.
    """
    check_rows(rows, index)
    of_tokens = rewards_of_turns(token_rewards.double().cpu().numpy(), turns.mask)
    found = session.advantages(
        [one + other for one, other in zip(of_tokens, turns.earned, strict=True)],
        step,
        version=version,
        **completions_of(session, rows, np.zeros(len(rows.padding)), None),
    )
    return torch.as_tensor(spread_over_tokens(found, turns.mask)).to(token_rewards)


def check_turns(config: Any, options: Options) -> None:
    """Raise a ValueError if the history would get only some of the turns, or rewards without a turn."""
    if filters_groups(config):
        raise ValueError(
            "algorithm.kaestat.turns: algorithm.filter_groups drops groups that the history of turns would need; turn "
            "one of them off."
        )
    calls = config.actor_rollout_ref.rollout.multi_turn.max_parallel_calls
    if options.turn_rewards == "tool_rewards" and calls != 1:
        raise ValueError(
            "algorithm.kaestat.turn_rewards=tool_rewards: with "
            f"actor_rollout_ref.rollout.multi_turn.max_parallel_calls={calls} nobody knows which turn a call belongs "
            "to; set it to 1, or write turn_scores in an agent loop of your own."
        )


_REMEDY = {
    "tool_rewards": "each turn but the last must have called one tool that gave a reward.",
    "turn_scores": "let the agent loop write one into extra_fields for every turn (a run of ones in response_mask).",
}


def _given(extra_fields: Any, field: str) -> list[float]:
    found = extra_fields.get(field) if isinstance(extra_fields, dict) else None
    return [] if found is None else [float(reward) for reward in found]
