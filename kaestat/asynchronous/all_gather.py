"""Ranks of `torch.distributed` that exchange what each has recorded since the last exchange."""

from typing import Any

from kaestat.asynchronous.delta import HistoryDelta
from kaestat.asynchronous.estimator import AsynchronousEstimator
from kaestat.asynchronous.received_deltas import Received
from kaestat.core.storage import dump_state, parse_state


def exchange(estimator: AsynchronousEstimator, group: Any = None) -> int:
    """Bytes that this rank has sent, to merge what each has recorded since the last exchange into all estimators.

    All ranks of the group (None for all) must call it, at any interval, including ranks that have recorded nothing.
    Afterwards all have the same history, up to the rounding of sums (exactly for rewards 0 and 1). The estimators are
    made alike, with ``keep_deltas=True``. A ValueError if one keeps no deltas, or the ranks record different things.

    A rank keeps what it sends until all others confirm it, in a second, short all-gather. If either all-gather fails,
    the next call sends it again, and it counts once. Deltas are numbered per process: ranks that restart must load
    their states from the same checkpoint.
    """
    delta = estimator.pending_delta()
    content, refused = delta.to_bytes(), None
    for other in _of_others(content, group):
        try:
            estimator.merge(HistoryDelta.from_bytes(other))
        except ValueError as error:
            refused = error  # the others wait for this rank in the next all-gather
    numbers = dump_state({"received": estimator.received.plain()})
    answers = [parse_state(answer, "acknowledgement") for answer in _of_others(numbers, group)]
    by_rank = [Received.of_plain(answer["received"]) for answer in answers]
    estimator.acknowledge(origin for origin in delta.origins if all(origin in received for received in by_rank))
    if refused is not None:
        raise refused
    return len(content) + len(numbers)


def _of_others(content: bytes, group: Any) -> list[bytes]:
    import torch.distributed as dist

    found = all_gather_bytes(content, group)
    return [other for rank, other in enumerate(found) if rank != dist.get_rank(group)]


def all_gather_bytes(content: bytes, group: Any = None) -> list[bytes]:
    """The bytes of each rank, not empty, in the order of ranks; they may differ in length. No pickle."""
    import torch
    import torch.distributed as dist

    # NCCL only transfers data on GPUs.
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else "cpu"
    n_ranks = dist.get_world_size(group)
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(n_ranks)]
    dist.all_gather(sizes, torch.tensor([len(content)], dtype=torch.int64, device=device), group=group)
    longest = max(int(size) for size in sizes)
    own = torch.zeros(longest, dtype=torch.uint8)
    own[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    of_ranks = [torch.zeros(longest, dtype=torch.uint8, device=device) for _ in range(n_ranks)]
    dist.all_gather(of_ranks, own.to(device), group=group)
    return [padded[: int(size)].cpu().numpy().tobytes() for padded, size in zip(of_ranks, sizes, strict=True)]
