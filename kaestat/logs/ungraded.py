"""Completions of a log without a reward: they are left out and counted, and a warning says so."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from kaestat.logs.reward_log import RewardLog


class UngradedWarning(UserWarning):
    """The warning that completions without a reward are left out."""


def with_ungraded(log: RewardLog, files: Sequence[Path], counts: Sequence[int]) -> RewardLog:
    """The log, with the number of completions without a reward, a count for each file (`RewardLog.ungraded`).

    Warns by an `UngradedWarning` if there are any; it names the first file with some.
    """
    log.ungraded = sum(counts)
    if log.ungraded:
        first = next(file for file, count in zip(files, counts, strict=True) if count)
        message = f"{first}: {log.ungraded} completions without a reward are left out from here on."
        warnings.warn(message, UngradedWarning, stacklevel=4)
    return log
