"""The result of one look at a log that is still being written."""

from __future__ import annotations

from dataclasses import dataclass

from kaestat.logs.reward_log import RewardLog


@dataclass(frozen=True, eq=False)
class Reading:
    """The new part of a log."""

    log: RewardLog | None = None  # New completions; None if there are none, or none that can be read yet
    # Whether the log started again (it was cut, overwritten or rewritten): earlier readings are then invalid
    anew: bool = False
    whole_steps: bool = False  # Whether the log's steps are complete; otherwise the newest may still grow
    more: bool = False  # Whether there is more to read at once
    waiting: str = ""  # Why something could not be read yet; empty if everything was read
    left_out: int = 0  # Number of unreadable rows that were skipped
    # Place of the first of these rows, and its fault: ``"line 7: reward is 'much'; ..."``. Without rows, the file that
    # was skipped as a whole, and why
    first: str = ""
