"""The best bandwidth of a kernel method on a log, and an honest risk of the method at it.

A bandwidth that was chosen on the visits it is scored at looks better than it is. So prompts are split into two halves,
and each half is scored at the bandwidth that was best on the other one. Where a log has many prompts, a random sample
of each half makes the choice, and all prompts are scored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kaestat.logs.jackknife import jackknife_groups
from kaestat.logs.prompt_risks import PromptRisks
from kaestat.logs.reward_log import RewardLog

KERNELS = ("triangular", "exponential")
CANDIDATES = 14
SMALLEST = 1.5  # times the gap between visits
LARGEST = (2.0, 6.0, 20.0)  # times the span of the log; from the first on, risks hardly change
RATIO = 1.35  # of neighbours, where that takes no more candidates
SHORT_GAPS = 0.1  # quantile of the gaps that the grid begins at
STRIDE = 3  # of the candidates that are scored before those next to the best
MIN_PROMPTS = 10
SAMPLE = 1024  # prompts that choose, in a log with at least twice as many; see `Halves`
MARK = " (tuned)"


@dataclass(frozen=True)
class Tuned:
    """A method at its best bandwidth and kernel on a log."""

    name: str  # Name of its row in the tables: ``specification`` with a mark, since the row is scored by halves
    specification: str  # The method at the bandwidth that is best on all prompts, such as ``"kae_eb:bandwidth=190"``
    by_halves: tuple[str, str]  # The specifications used to score the two halves of the prompts
    n_prompts: int  # Number of prompts that made the choice


def return_gaps(log: RewardLog) -> np.ndarray:
    """Steps between consecutive visits of a prompt, shape (number of returns,)."""
    units = log.prompt_units
    step, prompt = units.visit_step[units.by_unit], units.visit_unit[units.by_unit]
    return np.diff(step)[prompt[1:] == prompt[:-1]]


def wide_grid(log: RewardLog, size: int = CANDIDATES) -> tuple[float, ...]:
    """Bandwidths rounded to two digits, from 1.5 times a short gap between visits to 20 times the log's span.

    They are in geometric progression up to twice the span, at most ``size`` of them. At 20 times the span even the
    triangular kernel weighs all visits equally. Some prompt must have two visits.
    """
    short = float(np.quantile(return_gaps(log), SHORT_GAPS))
    step = log.prompt_units.visit_step
    span = float(step.max() - step.min()) + short
    lowest, highest = SMALLEST * short, LARGEST[0] * span
    needed = math.ceil(math.log(highest / lowest) / math.log(RATIO)) + 1
    grid = [*np.geomspace(lowest, highest, min(size, needed)), *(times * span for times in LARGEST[1:])]
    return tuple(sorted({float(f"{bandwidth:.1e}") for bandwidth in grid}))


def candidates(method: str, grid: Sequence[float]) -> list[str]:
    """The specifications of a method to try."""
    kernels = {kernel: "" if kernel == KERNELS[0] else f",kernel={kernel}" for kernel in KERNELS}
    return [f"{method}:bandwidth={bandwidth:g}{kernel}" for kernel in kernels.values() for bandwidth in grid]


@dataclass(frozen=True, eq=False)
class Halves:
    """The scored prompts of a log in two random halves, and the prompts that choose.

    On 24 simulated logs with 2,100 to 3,000 prompts, the MSE of the candidate that 1,024 of them chose was at most
    .8 % above the best candidate's on all prompts, even with rewards so rare that few prompts carry the MSE.
    """

    first: np.ndarray  # of bool, shape (C,); the prompts of the first half
    choosing: np.ndarray  # of bool, shape (C,); all prompts, or a sample with equally many from both halves

    @classmethod
    def of(cls, n_prompts: int, seed: int) -> Halves:
        """The halves drawn from ``seed``; a ValueError if there is only one prompt."""
        if n_prompts < 2:
            raise ValueError(
                "a bandwidth is chosen on some prompts and scored on others: the log must have two or more."
            )
        place, middle = np.random.default_rng(seed).permutation(n_prompts), n_prompts // 2
        first = place < middle
        if n_prompts < 2 * SAMPLE:
            return cls(first, np.ones(n_prompts, dtype=bool))
        return cls(first, np.where(first, place, place - middle) < SAMPLE // 2)

    def choices(self, risks: np.ndarray) -> list[int]:
        """The best columns of the choosing prompts' risks for the first half, for the other one, and for all."""
        first = self.first[self.choosing]
        on = (~first, first, np.ones(len(first), dtype=bool))
        return [int(np.argmin(risks[half].mean(axis=0))) for half in on]


def choosing_log(log: RewardLog, eligible: np.ndarray, *, seed: int = 0) -> RewardLog:
    """The log of the choosing prompts of `Halves`; the whole log if all choose.

    ``eligible``, (W,), says which visits of `RewardLog.prompt_units` are scored.
    """
    scored = np.unique(log.prompt_units.visit_prompt[eligible])
    choosing = Halves.of(len(scored), seed).choosing
    return log if choosing.all() else log.subset(np.isin(np.arange(len(log.prompts)), scored[choosing]))


def _searched(
    tried: Sequence[Sequence[str]], scorer: Callable[[Sequence[str]], PromptRisks], halves: Halves
) -> tuple[PromptRisks, list[range]]:
    """Risks of the candidates that were scored, group after group, and the columns of each group."""
    runs = [(g, run) for g, group in enumerate(tried) for run in np.array_split(range(len(group)), len(KERNELS))]
    some = [(g, run[min(1, len(run) - 1) :: STRIDE]) for g, run in runs if len(run)]
    scored = scorer([tried[g][k] for g, coarse in some for k in coarse])
    place = [(g, k) for g, coarse in some for k in coarse]
    near: set[tuple[int, int]] = set()
    start = 0
    for (g, coarse), (_, run) in zip(some, runs, strict=True):
        best = halves.choices(scored.per_prompt[:, start : start + len(coarse)])
        start += len(coarse)
        near |= {(g, k) for k in run for b in best if abs(k - coarse[b]) < STRIDE}
    more = sorted(near - set(place))
    if more:
        names = [tried[g][k] for g, k in more]
        found = scorer([*names, names[-1]])  # once more as the reference, which risks need
        place += more
        scored = replace(
            scored,
            methods=scored.methods + found.methods[:-1],
            per_prompt=np.hstack([scored.per_prompt, found.per_prompt[:, :-1]]),
            pooled=scored.pooled + found.pooled[:-1],
        )
    order = sorted(range(len(place)), key=place.__getitem__)
    ends = np.searchsorted([place[k][0] for k in order], range(len(tried) + 1)).tolist()
    return scored.take(order), [range(*pair) for pair in itertools.pairwise(ends)]


def with_tuned(
    scored: PromptRisks,
    tried: Sequence[Sequence[str]],
    scorer: Callable[[Sequence[str]], PromptRisks],
    scorer_again: Callable[[Sequence[str]], PromptRisks],
    *,
    seed: int = 0,
) -> tuple[PromptRisks, tuple[Tuned, ...]]:
    """The best of each group of candidates; the columns of these tuned methods come after all others.

    Every third bandwidth is scored, and then the neighbours of the best ones of each kernel. If the risk has a single
    minimum along the bandwidths of a kernel, the result equals the choice among all of them. A prompt's risk is that of
    the candidate chosen on the other half of prompts.

    ``tried`` holds groups of candidates, as `candidates` returns them. ``scorer`` returns risks of specifications for
    the choosing prompts of `Halves`. ``scorer_again`` returns those of the chosen ones for all prompts, with the
    replays for the jackknife if ``scored`` has them. The changes are added to the risks of the tuned method without
    each group. ``seed`` is that of the halves, and of the groups of prompts of ``scored``.
    """
    halves = Halves.of(len(scored.per_prompt), seed)
    sampled = not halves.choosing.all()
    replayed = scored.left_out is not None and scored.apart is not None
    among, columns_of = _searched(tried, scorer, halves)
    found, pooled, risks, changes = [], [], [], []
    for columns in columns_of:
        best = [columns[k] for k in halves.choices(among.per_prompt[:, list(columns)])]
        names = [str(among.methods[column]) for column in best]
        found.append(Tuned(names[2] + MARK, names[2], (names[0], names[1]), int(halves.choosing.sum())))
        pooled.append(bool(among.pooled[columns[0]]))
        again = scorer_again(found[-1].by_halves) if sampled or (pooled[-1] and replayed) else None
        of_halves = among.per_prompt[:, best[:2]] if again is None or not sampled else again.per_prompt
        risks.append(np.where(halves.first, *of_halves.T))
        change = 0.0
        if again is not None and again.left_out is not None and again.apart is not None:
            change = np.mean(again.left_out - again.apart, axis=1)
        changes.append(change)
    together = replace(
        scored,
        methods=(*scored.methods, *(tuned.name for tuned in found)),
        per_prompt=np.column_stack([scored.per_prompt, *risks]),
        pooled=(*scored.pooled, *pooled),
    )
    if scored.left_out is not None and scored.apart is not None:
        n_groups = len(scored.left_out)
        kept = jackknife_groups(len(risks[0]), seed=seed, n_groups=n_groups) != np.arange(n_groups)[:, None]
        apart = [(kept * risk).sum(axis=1) / kept.sum(axis=1) for risk in risks]
        left_out = [rest + change for rest, change in zip(apart, changes, strict=True)]
        together = replace(
            together,
            left_out=np.column_stack([scored.left_out, *left_out]),
            apart=np.column_stack([scored.apart, *apart]),
        )
    return together, tuple(found)
