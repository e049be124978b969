"""What a method says of itself; every fact has the default that most methods share."""

from __future__ import annotations

from typing import ClassVar, Literal


class Facts:
    """Facts that a baseline declares where it differs from most.

    Attributes
    ----------
    unit : {"prompt", "group"}
        The meaning of a row: all completions of a prompt at a step, or each of its groups (streams) separately.
    takes_weights, needs_weights : bool
        Whether completions may carry weights (averaging baselines), and whether they must.
    stepwise : bool
        Whether steps must be served one at a time and in order, because of a carry or to look prompts up.
    shrinks : bool
        Whether the value given the past is a posterior mean, shrunk towards a prior or the other prompts.
    knows_unseen : bool
        Whether a prompt without a past has a value of its own, from something other than rewards.
    estimates_mean : bool
        Whether the value estimates the prompt's mean reward.
    within_group : bool
        Whether every value lies between the lowest and the highest reward of the completion's own group, or the
        completion is alone. Only then may advantages be divided by the group's deviation.
    relative : bool
        Whether there is a baseline for rewards less a number (`less`), so that rewards far from 0 lose no digits.
    counts_suffice : bool
        Whether the values depend on a group's rewards only through their counts, which it reads from `Groups.times`. A
        log with few distinct rewards is then served without a pass over all completions.
    one_mean : bool
        Whether the value is one mean over all completions of the step, the same for each of them.
    takes_divergence : bool
        Whether the value depends on the policy divergence between visits.
    refuses_prior : str or None
        Why this baseline cannot use visits from before the run (`kaestat.Prior`); None if it can.
    alone : str
        The advantage of the only completion of a group, in words, where a value needs others; empty if not.
    missing_input : str or None
        An input other than rewards that is still to be given, in words; None if the baseline is ready.
    state_size : int
        How many numbers are kept for each prompt in addition to its visits (`Visits.state`); 0 for none.
    """

    unit: ClassVar[Literal["prompt", "group"]] = "prompt"
    takes_weights: ClassVar[bool] = False
    needs_weights: ClassVar[bool] = False
    stepwise: ClassVar[bool] = False
    shrinks: ClassVar[bool] = False
    knows_unseen: ClassVar[bool] = False
    estimates_mean: ClassVar[bool] = True
    within_group: ClassVar[bool] = False
    relative: ClassVar[bool] = False
    counts_suffice: ClassVar[bool] = False

    @property
    def one_mean(self) -> bool:
        return False

    @property
    def takes_divergence(self) -> bool:
        return False

    @property
    def refuses_prior(self) -> str | None:
        return None

    @property
    def alone(self) -> str:
        return ""

    @property
    def missing_input(self) -> str | None:
        return None

    @property
    def state_size(self) -> int:
        return 0
