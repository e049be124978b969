"""The worth that sampling prompts by their predicted values would have had on a logged run.

A policy is replayed from the log: at each step it spreads a part of the step's completions over the step's prompts, and
its history holds only those that it would have drawn. The completions of a step that it would not have drawn are still
there to tell, without bias, how noisy each prompt was: so is the gradient's noise under the policy's allocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from kaestat.core.bootstrap import cluster_bootstrap, widened
from kaestat.core.checks import check_share, check_whole
from kaestat.logs.reward_log import RewardLog, as_log
from kaestat.logs.risk import draws_of
from kaestat.sampling.draw import Plan
from kaestat.sampling.policies import POLICIES, Policy
from kaestat.sampling.sampler import FLOOR, PromptSampler

if TYPE_CHECKING:
    import pandas as pd

SAMPLING_COLUMNS = [
    "policy",
    "worth",
    "se",
    "ci_low",
    "ci_high",
    "dead",
    "signal",
    "effective",
    "largest_correction",
    "n_prompts",
    "n_steps",
]


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
    prompt and nu its completions in expectation. The mean of ``(Z - b)^2`` over *all* completions of the
    prompt at the step is an unbiased estimate of m, where b is the prediction from what the policy would have drawn
    before. Squared score norms and lengths are assumed equal. A prompt can be sampled only at the steps where the log
    has it, so a sampler that may choose among all prompts gains more.

    Parameters
    ----------
    log : RewardLog or DataFrame
    policies : sequence of str or Policy, optional
        Names, specifications or policies; None for all of `kaestat.sampling.POLICIES` that fit.
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
        One row per policy, in the order given: ``worth``, the factor by which uniform sampling would need more
        completions for the same noise, with ``se, ci_low, ci_high`` over prompts, given the allocations; ``dead``, the
        share of completions of prompts whose rewards at the step were all equal; ``signal``, the mean reward variance
        per completion over that of uniform sampling; ``effective``, the effective sample size of the corrections over
        the number of completions; ``largest_correction``; ``n_prompts, n_steps``.

    Raises
    ------
    ValueError
        If a policy is unknown or cannot give whole groups, a number is out of range, or no prompt returns.
    """
    log, part, n_boot = as_log(log), check_share("budget", budget), draws_of(n_boot)
    seed = check_whole("seed", seed, least=0)
    if policies is None:
        policies = [name for name, kind in POLICIES.items() if kind.takes_groups or not groups]
    if isinstance(policies, str):
        raise TypeError(f"policies must be a list of names or policies, got {policies!r}.")
    if not policies:
        raise ValueError(f"policies is empty: name at least one of {', '.join(POLICIES)}.")
    if log.prompt_units.earlier.max() == 0:
        raise ValueError("every prompt of the log occurs once: there is no history that a sampler could predict from.")
    visits = _visits(log)
    uniform = _replayed(log, visits, "uniform", part, groups, 0.0, predictor, seed)
    rows = []
    for policy in policies:
        found = _replayed(log, visits, policy, part, groups, floor, predictor, seed)
        rows.append(
            [
                policy,
                *_worth(uniform.noise, found.noise, n_boot, seed),
                found.dead,
                found.signal / uniform.signal if uniform.signal > 0 else np.nan,
                found.effective,
                found.largest_correction,
                len(log.prompts),
                log.n_steps,
            ]
        )
    import pandas as pd

    return pd.DataFrame(rows, columns=SAMPLING_COLUMNS)


@dataclass(frozen=True, eq=False)
class _Visits:
    """What a log has at each step: visits of the step, and their completions."""

    starts: np.ndarray
    first: np.ndarray
    count: np.ndarray
    prompt: np.ndarray
    step: np.ndarray
    reward: np.ndarray
    variance: np.ndarray
    alike: np.ndarray


@dataclass(frozen=True, eq=False)
class _Replayed:
    """A policy on a log: ``sum pi^2 m / nu`` of each prompt over its visits, and the shares of `SAMPLING_COLUMNS`."""

    noise: np.ndarray
    dead: float
    signal: float
    effective: float
    largest_correction: float


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


def _visits(log: RewardLog) -> _Visits:
    units = log.prompt_units
    highest, lowest = (ends.reduceat(units.reward, units.first) for ends in (np.maximum, np.minimum))
    return _Visits(
        starts=np.flatnonzero(np.diff(units.visit_step, prepend=-1)),
        first=units.first,
        count=units.counts,
        prompt=units.visit_prompt,
        step=units.visit_step,
        reward=units.reward,
        variance=units.variance,
        alike=np.where(units.counts > 1, highest == lowest, np.nan),
    )


def _replayed(
    log: RewardLog,
    visits: _Visits,
    policy: str | Policy,
    part: float,
    groups: bool,
    floor: float,
    predictor: str,
    seed: int,
) -> _Replayed:
    """Replay a policy; its first steps, without any history, count as those of uniform sampling do."""
    size = int(visits.count.max())
    sampler = PromptSampler(
        log.prompts,
        size,
        policy=policy,
        predictor=predictor,
        group_size=size if groups else None,
        most=None if groups else size,
        floor=floor,
        correction="none" if floor == 0 else "full",
        seed=seed,
    )
    rng = np.random.default_rng([seed, 1])
    noise = np.zeros(len(log.prompts))
    spent = dead = signal = known = 0.0
    squares, completions, largest = 0.0, 0, 0.0
    for start, end in zip(visits.starts, [*visits.starts[1:], len(visits.prompt)], strict=True):
        here = slice(start, end)
        prompts, count, step = visits.prompt[here], visits.count[here], int(visits.step[start])
        budget = max(1, round(part * (len(prompts) if groups else count.sum()))) * (size if groups else 1)
        names = [log.prompts[prompt] for prompt in prompts.tolist()]
        draw = sampler.draw(step, among=names, budget=budget)
        plan = cast(Plan, draw.plan)  # a draw just made has one
        expected, value = plan.expected, plan.prediction.value
        error = visits.reward[visits.first[start] : visits.first[start] + count.sum()] - np.repeat(value, count)
        ends = np.cumsum(count) - count
        m = np.add.reduceat(error**2, ends) / count
        each = np.divide(budget * m, expected * len(prompts) ** 2, out=np.full(len(m), np.inf), where=expected > 0)
        noise += np.bincount(prompts, weights=each, minlength=len(noise))
        several = count > 1
        spent, known = spent + budget, known + expected[several].sum()
        dead += expected[several] @ visits.alike[here][several]
        signal += expected[several] @ visits.variance[here][several]
        completions, squares = completions + draw.n_completions, squares + draw.counts @ draw.correction**2
        largest = max(largest, float(draw.correction.max()))
        row = dict(zip(names, range(len(names)), strict=True))
        taken = [row[key] for key in draw.prompt_ids]
        numbers = np.minimum(draw.counts, count[taken])
        chosen = [
            visits.first[start + place] + rng.permutation(count[place])[:n]
            for place, n in zip(taken, numbers, strict=True)
        ]
        ids = [names[place] for place, n in zip(taken, numbers.tolist(), strict=True) for _ in range(n)]
        sampler.observe(ids, visits.reward[np.concatenate(chosen)], step)
    return _Replayed(
        noise=noise,
        dead=dead / known if known else np.nan,
        signal=signal / known if known else np.nan,
        effective=completions / squares,
        largest_correction=largest,
    )
