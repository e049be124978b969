"""A simulated reward log that resembles a real training run, and its true values."""

from dataclasses import dataclass

import numpy as np

from kaestat.core.checks import check_seed, check_whole
from kaestat.logs.reward_log import RewardLog

# Calibrated to the run described in `simulated_run`; logits of the success rate, per epoch where they are changes.
START_MEAN, START_SPREAD = -1.2, 3.2
UNSOLVABLE_SHARE, UNSOLVABLE_LOGIT = 0.06, -7.0
DRIFT, EARLY_DRIFT, EARLY_EPOCHS = 0.024, 0.10, 3.0
WALK = 0.09
SAT_OUT = 57 / 1209  # 9 batches of 128 prompts leave 57 of 1,209 out of every epoch


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """A reward log together with its true values, which no real log has.

    Attributes
    ----------
    log : RewardLog
    values : ndarray, shape (N,)
        True value of each completion, ``E[reward | prompt, epoch]``, in the order of ``log.frame``.
    """

    log: RewardLog
    values: np.ndarray


def simulated_run(*, n_prompts: int = 1209, n_epochs: int = 56, group_size: int = 8, seed: int = 0) -> SimulatedRun:
    """A simulated run with binary rewards, whose success rates drift over the epochs.

    The logit of each prompt's success rate starts normally distributed (mean -1.2, sd 3.2; 6 % of the prompts are
    almost unsolvable). It then follows a random walk (sd 0.09 per epoch) with an upward drift of 0.024, plus 0.10
    that dies out over the first epochs. In each epoch 4.7 % of the prompts are left out: the rest after the others
    fill whole batches. As in the real log, time is the visit index.

    Parameters
    ----------
    n_prompts, n_epochs, group_size : int
        At least 1 each. The defaults are those of the real run.
    seed : int
        The same seed gives the same run.

    Returns
    -------
    SimulatedRun

    Raises
    ------
    ValueError
        If a size is not a whole number of at least 1, or the seed of at least 0.

    Notes
    -----
    Calibrated to 629 prompts of a 500-step GRPO run of Qwen2.5-Math-1.5B (Wang et al., 2025: data/acc_step_500.json of
    github.com/ypwang61/One-Shot-RLVR). That run, the default simulated one, and the mean (sd) over eight seeds:

    ===================================  =======  ==========  ===============
    figure                               real     simulated   eight seeds
    ===================================  =======  ==========  ===============
    visits per prompt, range             47-56    48-56
    mean reward, epoch 0                 .341     .324        .341 (.013)
    mean reward, epoch 20                .413     .399        .418
    mean reward, epoch 50                .486     .480        .492
    groups all 0, epochs 0 and 50        .36 .27  .41 .27     .40 .26
    groups all 1, epochs 0 and 50        .08 .25  .10 .23     .12 .24
    value MSE x 1000, grpo               14.1     14.4        14.5 (0.3)
    value MSE x 1000, reinforce++        143.6    141.2       142.4
    value MSE x 1000, kae, bandwidth 5   3.30     3.28        3.39 (0.08)
    value MSE x 1000, kae, bandwidth 10  2.12     2.10        2.21 (0.05)
    value MSE x 1000, kae, bandwidth 20  2.04     2.04        2.13
    value MSE x 1000, kae, bandwidth 40  3.08     3.08        3.11
    ===================================  =======  ==========  ===============

    Examples
    --------
    >>> run = simulated_run(n_prompts=50, n_epochs=5)
    >>> len(run.values) == len(run.log.frame)
    True
    """
    n_prompts, n_epochs = check_whole("n_prompts", n_prompts), check_whole("n_epochs", n_epochs)
    group_size = check_whole("group_size", group_size)
    rng = check_seed(seed)
    start = rng.normal(START_MEAN, START_SPREAD, n_prompts)
    start[rng.random(n_prompts) < UNSOLVABLE_SHARE] = UNSOLVABLE_LOGIT
    epoch = np.arange(1, n_epochs)
    moves = DRIFT + EARLY_DRIFT * np.exp(-epoch / EARLY_EPOCHS) + rng.normal(0.0, WALK, (n_prompts, n_epochs - 1))
    logit = np.cumsum(np.concatenate([start[:, None], moves], axis=1), axis=1)

    # Each epoch, the same number of prompts sits out; visits are counted over the epochs attended.
    rank = np.argsort(np.argsort(rng.random((n_prompts, n_epochs)), axis=0), axis=0)
    attended = rank >= round(SAT_OUT * n_prompts)
    visit = np.cumsum(attended, axis=1) - 1
    prompt, at = np.nonzero(attended)
    order = np.lexsort((prompt, visit[prompt, at]))
    prompt, at = prompt[order], at[order]
    value = 1.0 / (1.0 + np.exp(-logit[prompt, at]))
    reward = rng.random((len(value), group_size)) < value[:, None]
    log = RewardLog(
        np.repeat(prompt, group_size),
        np.repeat(visit[prompt, at], group_size),
        reward.reshape(-1).astype(float),
        time_axis="visit",
    )
    return SimulatedRun(log, np.repeat(value, group_size))
