"""The result of one look at a log that is still being written."""

from dataclasses import dataclass

from kaestat.logs.reward_log import RewardLog


@dataclass(frozen=True, eq=False)
class Reading:
    """The new part of a log.

    Attributes
    ----------
    log : RewardLog or None
        New completions; None if there are none, or none that can be read yet.
    anew : bool
        Whether the log started again (it was cut, overwritten or rewritten): earlier readings are then invalid.
    whole_steps : bool
        Whether the log's steps are complete; otherwise the newest may still grow.
    more : bool
        Whether there is more to read at once.
    waiting : str
        Why something could not be read yet; empty if everything was read.
    left_out : int
        Number of unreadable rows that were skipped.
    first : str
        Place of the first of these rows, and its fault: ``"line 7: reward is 'much'; ..."``. Without rows,
        the file that was skipped as a whole, and why.
    """

    log: RewardLog | None = None
    anew: bool = False
    whole_steps: bool = False
    more: bool = False
    waiting: str = ""
    left_out: int = 0
    first: str = ""
