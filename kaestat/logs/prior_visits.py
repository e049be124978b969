"""A log that begins with a prior: what was known about its prompts before the run."""

import os
from collections.abc import Hashable, Mapping

import numpy as np

from kaestat.history.prior import Prior, as_prior
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.reward_range import reward_range


def log_with_prior(
    log: RewardLog, prior: Prior | Mapping[Hashable, tuple[float, int]] | str | os.PathLike[str]
) -> RewardLog:
    """The log with one more visit, at the prior's date, of each prompt in the prior.

    In tables of risks it is the first visit of its prompts, which is not scored; later visits are scored as if the
    estimator had begun with it. If the prior lies before step 0, steps are counted from it.
    """
    given, columns = as_prior(prior), log.arrays
    extra = [name for name in columns if name not in ("prompt", "step", "reward", "group")]
    if log.has_groups or extra:
        raise ValueError(
            f"prior: the log has {', '.join(extra) or 'groups'} for each completion, which a prior does not have; "
            "score a log of prompts, steps and rewards."
        )
    first = int(columns["step"].min())
    if given.step >= first:
        raise ValueError(
            f"prior: its step {given.step} is not before the log's first, {first}; give it an earlier one."
        )
    in_log = set(log.prompts)
    completions = given.completions(*reward_range(log))
    of_log = np.array([key in in_log for key in given.prompt_ids], dtype=bool)
    if not of_log.any():
        raise ValueError("prior: none of the log's prompts has one; the ids must be those of the log.")
    rows, _ = np.nonzero(np.asarray(completions.mask) & of_log[:, None])
    reward = completions.reward[np.asarray(completions.mask) & of_log[:, None]]
    ids = [given.prompt_ids[row] for row in rows.tolist()] + [log.prompts[code] for code in columns["prompt"].tolist()]
    step = np.concatenate([np.full(len(rows), given.step), columns["step"]]) + max(0, -given.step)
    whole = RewardLog(ids, step, np.concatenate([reward, columns["reward"]]))
    whole.time_axis = log.time_axis
    return whole
