"""Ranks of `torch.distributed` that exchange what each has recorded since the last exchange."""

from collections.abc import Callable, Sequence
from typing import Any

from kaestat.core.storage import dump_state, parse_state
from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.history.delta import HistoryDelta
from kaestat.history.received_deltas import Received


def exchange(estimator: AdvantageEstimator, group: Any = None) -> int:
    """Bytes that this rank has sent, to merge what each has recorded since the last exchange into all estimators.

    All ranks of the group (None for all) must call it, at any interval, including ranks that have recorded nothing.
    Afterwards all have the same history, up to the rounding of sums (exactly for rewards 0 and 1). The estimators are
    made alike, with ``order="any", keep_deltas=True``. A ValueError if one keeps no deltas, or the ranks record
    different things.

    A rank keeps what it sends until all others confirm it, in a second, short all-gather. If either all-gather fails,
    the next call sends it again, and it counts once. Deltas are numbered per process: ranks that restart must load
    their states from the same checkpoint.
    """
    return _exchange(lambda: (estimator,), lambda deltas: estimator.merge(*deltas), group)


def exchange_turns(turns: TurnEstimator, group: Any = None) -> int:
    """`exchange` for a `TurnEstimator`; ranks may have different numbers of turns."""
    return _exchange(lambda: turns.estimators, turns.merge, group)


def _exchange(
    holders: Callable[[], Sequence[AdvantageEstimator]], merge: Callable[[list[HistoryDelta]], None], group: Any
) -> int:
    """Send a delta of each estimator; see `exchange`. A merge may add estimators of further turns."""
    senders = holders()
    deltas = [sender.pending_delta() for sender in senders]
    content = _packed(deltas)
    refused = None
    for other in _of_others(content, group):
        try:
            merge(_unpacked(other))
        except ValueError as error:
            refused = error  # the others wait for this rank in the next all-gather
    numbers = dump_state({"received": {str(n): e.received.plain() for n, e in enumerate(holders())}})
    held = [parse_state(other, "acknowledgement")["received"] for other in _of_others(numbers, group)]
    for turn, (sender, delta) in enumerate(zip(senders, deltas, strict=True)):
        by_rank = [Received.of_plain(of_rank.get(str(turn), {})) for of_rank in held]
        everywhere = [origin for origin in delta.origins if all(origin in received for received in by_rank)]
        sender.acknowledge(everywhere)
    if refused is not None:
        raise refused
    return len(content) + len(numbers)


def _of_others(content: bytes, group: Any) -> list[bytes]:
    import torch.distributed as dist

    found = all_gather_bytes(content, group)
    return [other for rank, other in enumerate(found) if rank != dist.get_rank(group)]


def _packed(deltas: Sequence[HistoryDelta]) -> bytes:
    return dump_state({"deltas": {str(number): delta.plain() for number, delta in enumerate(deltas)}})


def _unpacked(content: bytes) -> list[HistoryDelta]:
    return [HistoryDelta.of_plain(each) for each in parse_state(content, "deltas")["deltas"].values()]


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
