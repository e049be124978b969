"""The worth that sampling prompts by their predicted values would have had on a logged run.

A policy is replayed from the log: at each step it spreads a part of the step's completions over the step's prompts, and
its history holds only those. The other completions still tell, without bias, how noisy each prompt was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kaestat.core.bootstrap import cluster_bootstrap, widened
from kaestat.core.checks import check_share, check_whole
from kaestat.logs.reward_log import RewardLog, as_log
from kaestat.logs.reward_range import reward_range
from kaestat.logs.risk import draws_of
from kaestat.sampling.draw import Plan
from kaestat.sampling.policies import POLICIES, Policy, make_policy
from kaestat.sampling.sampler import FLOOR, PromptSampler

if TYPE_CHECKING:
    import pandas as pd

OF_REPLAY = ["dead", "signal", "effective", "largest_correction"]
SAMPLING_COLUMNS = ["policy", "worth", "se", "ci_low", "ci_high", *OF_REPLAY, "n_prompts", "n_steps"]


def sampling_risk(
    log: RewardLog | pd.DataFrame,
    policies: Sequence[str | Policy] | None = None,
    *,
    budget: float = 0.5,
    groups: bool = False,
    floor: float = FLOOR,
    predictor: str = "kae_eb",
    n_boot: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """The worth of each sampling policy on a log, with fully corrected advantages.

    The noise of the gradient at a step is ``sum pi^2 m / nu`` up to terms without nu, with ``m = E (R - b)^2`` of a
    prompt and nu its completions in expectation. The mean of ``(Z - b)^2`` over *all* completions of the prompt at the
    step is an unbiased estimate of m, where b is the prediction from what the policy would have drawn before. Squared
    score norms and lengths are assumed equal. A prompt can be sampled only at the steps where the log has it. Rewards
    are mapped to [0, 1] by the log's range (`kaestat.logs.reward_range`).

    Parameters
    ----------
    log : RewardLog or DataFrame
    policies : sequence of str or Policy, optional
        Names or policies; None for all of `kaestat.sampling.POLICIES` that fit.
    budget : float
        Share of each step's completions to use, in (0, 1]. At 1 no prompt can get more than it had.
    groups : bool
        Whether each prompt gets a whole group of the log's size or none; otherwise any number of completions up to
        the log's.
    floor : float
        Smallest part of its share that every prompt keeps (`PromptSampler`). At 0 some policies leave prompts out. They
        then optimise a different objective, and their ``worth`` is 0.
    predictor : str
        The method whose history makes the predictions.
    n_boot, seed : int
        Bootstrap draws of prompts for the 95 % interval of ``worth`` (0 for none), and the seed of these and of all
        other draws.

    Returns
    -------
    DataFrame
        One row per policy, in the order given: ``policy``, its name; ``worth``, the factor by which uniform sampling
        would need more completions for the same noise, with ``se, ci_low, ci_high`` over prompts, given the
        allocations; ``dead``, the share of completions of prompts whose rewards at the step were all equal; ``signal``,
        the mean reward variance per completion over that of uniform sampling; ``effective``, the effective sample size
        of the corrections over the number of completions; ``largest_correction``; ``n_prompts, n_steps``.

    Raises
    ------
    ValueError
        If a policy is unknown or cannot give whole groups, a number is out of range, or no prompt returns.
    """
    log, part, n_boot = as_log(log), check_share("budget", budget), draws_of(n_boot)
    seed = check_whole("seed", seed, least=0)
    if policies is None:
        policies = [name for name, policy in POLICIES.items() if policy.takes_groups or not groups]
    if isinstance(policies, str):
        raise TypeError(f"policies must be a list of names or policies, got {policies!r}.")
    if not policies:
        raise ValueError(f"policies is empty: name at least one of {', '.join(POLICIES)}.")
    if log.prompt_units.earlier.max() == 0:
        raise ValueError("every prompt of the log occurs once: there is no history that a sampler could predict from.")

    def replayed(policy: str | Policy, floor: float) -> tuple[np.ndarray, dict[str, float]]:
        size = int(log.prompt_units.counts.max())
        shape: dict[str, Any] = {"group_size": size} if groups else {"most": size}
        shape |= {"floor": floor, "correction": "none" if floor == 0 else "full", "low": 0.0, "high": 1.0}
        sampler = PromptSampler(log.prompts, size, policy=policy, predictor=predictor, seed=seed, **shape)
        return _replayed(log, sampler, part, np.random.default_rng([seed, 1]))

    uniform, of_uniform = replayed("uniform", 0.0)
    rows = []
    for policy in map(make_policy, policies):
        noise, figures = replayed(policy, floor)
        figures["signal"] = figures["signal"] / of_uniform["signal"] if of_uniform["signal"] > 0 else np.nan
        worth = _worth(uniform, noise, n_boot, seed)
        rows.append([policy.name, *worth, *(figures[name] for name in OF_REPLAY), len(log.prompts), log.n_steps])
    import pandas as pd

    return pd.DataFrame(rows, columns=SAMPLING_COLUMNS)


def _worth(uniform: np.ndarray, noise: np.ndarray, n_boot: int, seed: int) -> tuple[float, float, float, float]:
    """Ratio of the prompts' summed noises, its standard error and interval."""
    unknown = float("nan")
    if not np.isfinite(noise).all() or not noise.sum() > 0:
        return (0.0 if np.isinf(noise).any() else unknown), unknown, unknown, unknown
    worth = float(uniform.sum() / noise.sum())
    if n_boot == 0:
        return worth, unknown, unknown, unknown
    drawn = cluster_bootstrap(np.column_stack([uniform, noise]), n_boot=n_boot, seed=seed)
    worths = drawn[:, 0] / drawn[:, 1]
    lowest, highest = np.quantile(worths, [0.025, 0.975])
    linear = (uniform - worth * noise)[:, None]
    low, high = widened(np.array([worth]), lowest[None], highest[None], linear)
    return worth, float(worths.std(ddof=1)), float(low[0]), float(high[0])


def _replayed(
    log: RewardLog, sampler: PromptSampler, part: float, rng: np.random.Generator
) -> tuple[np.ndarray, dict[str, float]]:
    """``sum pi^2 m / nu`` of each prompt over its visits, and the figures of `OF_REPLAY`."""
    units, size = log.prompt_units, sampler.group_size or 1
    low, high = reward_range(log)
    rewards, variances = (units.reward - low) / (high - low), np.nan_to_num(units.variance) / (high - low) ** 2
    alike = np.maximum.reduceat(rewards, units.first) == np.minimum.reduceat(rewards, units.first)
    noise = np.zeros(len(log.prompts))
    counted = dead = signal = squares = largest = 0.0
    completions = 0
    starts = np.flatnonzero(np.diff(units.visit_step, prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(units.visit_step)], strict=True):
        of_step, step = slice(start, end), int(units.visit_step[start])
        prompts, count = units.visit_prompt[of_step], units.counts[of_step]
        names = [log.prompts[prompt] for prompt in prompts.tolist()]
        budget = max(1, round(part * (len(prompts) if sampler.group_size else count.sum()))) * size
        draw = sampler.draw(step, among=names, budget=budget)
        plan = cast(Plan, draw.plan)  # a draw just made has one
        reward = rewards[units.first[start] : units.first[start] + count.sum()]
        expected, error, ends = plan.expected, reward - np.repeat(plan.prediction.value, count), np.cumsum(count)
        m = np.add.reduceat(error**2, ends - count) / count
        sampled = expected > 0
        noise[prompts] += np.where(sampled, budget * m / (np.where(sampled, expected, 1.0) * len(prompts) ** 2), np.inf)
        several = expected * (count > 1)
        counted, dead, signal = (
            counted + several.sum(),
            dead + several @ alike[of_step],
            signal + several @ variances[of_step],
        )
        completions, squares = completions + int(draw.counts.sum()), squares + draw.counts @ draw.correction**2
        largest = max(largest, float(draw.correction.max()))
        of_prompt = dict(zip(names, np.split(reward, ends[:-1]), strict=True))
        numbers = zip(draw.prompt_ids, draw.counts.tolist(), strict=True)
        drawn = {name: rng.permutation(of_prompt[name])[:number] for name, number in numbers}
        ids = [name for name, some in drawn.items() for _ in some]
        sampler.observe(ids, np.concatenate(list(drawn.values())), step)
    figures = (dead / counted, signal / counted) if counted else (np.nan, np.nan)
    return noise, dict(zip(OF_REPLAY, (*figures, completions / squares, largest), strict=True))
