"""The result of one look at a log that is still being written."""

from __future__ import annotations

from dataclasses import dataclass

from kaestat.logs.reward_log import RewardLog


@dataclass(frozen=True, eq=False)
class Reading:
    """The new part of a log.

    Attributes
    ----------
    log : RewardLog or None
        Completions that were not there before; None where there are none, or none that can be read yet.
    anew : bool
        Whether the log began anew (it was cut, overwritten or rewritten): what was read before counts no more.
    whole_steps : bool
        Whether the log's steps are complete; otherwise the newest may go on.
    more : bool
        Whether there is more to read at once.
    waiting : str
        Why something could not be read yet; empty where nothing is amiss.
    left_out : int
        Rows that cannot be read and were set aside.
    first : str
        Where the first of these stands, and what is wrong with it: ``"line 7: reward is 'much'; ..."``. Without rows,
        which file was set aside as a whole, and why.
    """

    log: RewardLog | None = None
    anew: bool = False
    whole_steps: bool = False
    more: bool = False
    waiting: str = ""
    left_out: int = 0
    first: str = ""
