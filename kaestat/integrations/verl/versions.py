"""Policy versions in verl's asynchronous trainers, and the groups that its replay buffer drops."""

from collections.abc import Callable, Set
from typing import Any

import numpy as np
import transfer_queue
from transfer_queue import KVBatchMeta

from kaestat.integrations.shared.upstream import misfit
from kaestat.integrations.verl import TESTED
from kaestat.integrations.verl.rows import BatchRows

CLEARS = "_clear_groups"  # of verl's replay buffer, for what it drops


def row_versions(batch: KVBatchMeta, rows: BatchRows, batches_per_version: int, now: int) -> np.ndarray:
    """The version of each row as an estimator's step, (N,): that of the weights at the end of its session."""
    found = np.full(len(batch.tags), now)
    for row, (tag, padding) in enumerate(zip(batch.tags, rows.padding, strict=True)):
        if padding:
            continue
        ended = tag.get("max_global_steps")
        if ended is None or not 0 <= int(ended) * batches_per_version <= now:
            raise ValueError(
                f"tag max_global_steps of {batch.keys[row]!r} is {ended!r} at step {now} ({batches_per_version} "
                "batches a version): an asynchronous trainer needs the version of the weights of every output."
            )
        found[row] = int(ended) * batches_per_version
    return found


def observe_dropped(buffer: Any, observe: Callable[[KVBatchMeta], None]) -> None:
    """Let groups of the training partition be observed before verl's replay buffer clears them."""
    clear = getattr(buffer, CLEARS, None)
    if clear is None:
        raise ImportError(misfit(f"verl's replay buffer has no {CLEARS}", "verl", TESTED))

    def clear_observed(partition_id: str, uids: Set[str]) -> None:
        whole = uids - buffer.failure_keys[partition_id]
        tags = {key: tag for key, tag in buffer.partitions[partition_id].items() if key.split("_")[0] in whole}
        if tags and partition_id == "train":
            observe(KVBatchMeta(keys=list(tags), tags=list(tags.values()), partition_id=partition_id))
        clear(partition_id, uids)

    setattr(buffer, CLEARS, clear_observed)


def stored_rewards(batch: KVBatchMeta) -> tuple[np.ndarray, np.ndarray]:
    """The reward of each row and its number of response tokens in the loss, both (N,), from the transfer queue."""
    names = ["rm_scores", "response_mask"]
    stored = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    rewards, lengths = (np.array([float(row.sum()) for row in stored[name].unbind()]) for name in names)
    return rewards, lengths
