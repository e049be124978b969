"""The best bandwidth of a kernel method on a log, and an honest risk of the method at it.

Each half of the prompts is scored at the bandwidth that was best on the other one. On a large log a random sample of
the prompts makes the choice, and all prompts are scored.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kaestat.logs.jackknife import jackknife_groups
from kaestat.logs.prompt_risks import PromptRisks
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import eligible_visits

KERNELS = ("triangular", "exponential")
CANDIDATES = 14
SMALLEST = 1.5  # times the gap between visits
LARGEST = (2.0, 6.0, 20.0)  # times the span of the log; from the first on, risks hardly change
RATIO = 1.35  # of neighbours, where that takes no more candidates
SHORT_GAPS = 0.1  # quantile of the gaps that the grid begins at
STRIDE = 3  # of the candidates that are scored before those next to the best
MIN_PROMPTS = 10
SAMPLE_PROMPTS, SAMPLE_VISITS, SAMPLE_AT_STEP = 2_000, 50_000, 128  # that a sample keeps: scored prompts and visits
MARK = " (tuned)"


@dataclass(frozen=True)
class Tuned:
    """A method at its best bandwidth and kernel on a log."""

    name: str  # Name of its row in the tables: ``specification`` with a mark, since the row is scored by halves
    specification: str  # The method at the bandwidth that is best on all prompts, such as ``"kae_eb:bandwidth=190"``
    by_halves: tuple[str, str]  # The specifications used to score the two halves of the prompts
    n_prompts: int  # How many prompts made the choice


def return_gaps(log: RewardLog) -> np.ndarray:
    """Steps between consecutive visits of a prompt, shape (number of returns,)."""
    units = log.prompt_units
    step, prompt = units.visit_step[units.by_unit], units.visit_unit[units.by_unit]
    return np.diff(step)[prompt[1:] == prompt[:-1]]


def wide_grid(log: RewardLog, size: int = CANDIDATES) -> tuple[float, ...]:
    """Bandwidths in geometric progression from 1.5 short gaps to twice the log's span, and up to 20 times it."""
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
class Sample:
    """The prompts on which bandwidths are chosen, and their log."""

    prompts: np.ndarray  # of bool, shape (C,), of the scored prompts
    log: RewardLog


def sample(log: RewardLog, *, min_visits: int, absolute: bool, seed: int) -> Sample:
    """The prompts that choose: all scored ones, or a random sample of these (`SAMPLE_PROMPTS`) if the log is large."""
    units, eligible = log.prompt_units, eligible_visits(log, min_visits, absolute)
    codes = np.unique(units.visit_prompt[eligible])
    width = np.median(np.unique(units.visit_step[eligible], return_counts=True)[1])
    needed = (SAMPLE_PROMPTS / len(codes), SAMPLE_VISITS / eligible.sum(), SAMPLE_AT_STEP / width)
    size = math.ceil(max(needed) * len(codes))
    if size >= len(codes):
        return Sample(np.ones(len(codes), dtype=bool), log)
    chosen = np.random.default_rng((seed, size)).permutation(len(codes)) < size
    sampled = np.zeros(len(log.prompts), dtype=bool)
    sampled[codes[chosen]] = True
    return Sample(chosen, log.subset(sampled))


def halves(n_prompts: int, seed: int) -> np.ndarray:
    """Which prompts are in the first half, of bool, (n_prompts,)."""
    return np.random.default_rng(seed).permutation(n_prompts) < n_prompts // 2


def tune(scored: PromptRisks, first: np.ndarray) -> tuple[Tuned, np.ndarray]:
    """The best of several candidates, and its risk for each prompt, (C,), as chosen on the other half of prompts."""
    risks = scored.per_prompt
    best = _choices(risks, first)
    names = [str(scored.methods[k]) for k in best]
    tuned = Tuned(names[2] + MARK, names[2], (names[0], names[1]), len(risks))
    return tuned, np.where(first, *risks[:, best[:2]].T)


def _choices(risks: np.ndarray, first: np.ndarray) -> list[int]:
    """The best candidates for the first half of the prompts, for the other one, and on all of them."""
    on = (~first, first, np.ones(len(risks), dtype=bool))
    return [int(np.argmin(risks[half].mean(axis=0))) for half in on]


def _searched(group: Sequence[str], scorer: Callable[[Sequence[str]], PromptRisks], first: np.ndarray) -> PromptRisks:
    """Risks of some candidates of a method: every third of each kernel, and the neighbours of the best of these."""
    runs = [run.tolist() for run in np.array_split(range(len(group)), len(KERNELS)) if len(run)]
    coarse = [run[min(1, len(run) - 1) :: STRIDE] for run in runs]
    place = [k for run in coarse for k in run]
    # The last is named once more: as the reference, which risks need.
    scored = scorer([group[k] for k in [*place, place[-1]]]).take(range(len(place)))
    near = set()
    for run, tried in zip(runs, coarse, strict=True):
        best = _choices(scored.per_prompt[:, [place.index(k) for k in tried]], first)
        near |= {k for k in run for b in best if abs(k - tried[b]) < STRIDE}
    more = sorted(near - set(place))
    if more:
        added = scorer([group[k] for k in [*more, more[-1]]]).take(range(len(more)))
        place += more
        scored = replace(
            scored,
            methods=scored.methods + added.methods,
            per_prompt=np.hstack([scored.per_prompt, added.per_prompt]),
            pooled=scored.pooled + added.pooled,
        )
    return scored.take(np.argsort(place).tolist())


def with_tuned(
    scored: PromptRisks,
    tried: Sequence[Sequence[str]],
    scorer: Callable[..., PromptRisks],
    log: RewardLog,
    on: Sample,
    *,
    seed: int = 0,
) -> tuple[PromptRisks, tuple[Tuned, ...]]:
    """The result of `tune` for each scored group of candidates; their columns come after all others.

    Every third bandwidth is scored on the sample, and then the neighbours of the best ones of each kernel. The chosen
    candidates are then scored on the whole log, and replayed without groups of prompts.
    """
    first = halves(len(scored.per_prompt), seed)
    choosing = first[on.prompts]
    groups = [_searched(group, partial(scorer, on.log), choosing) for group in tried]
    tuned, risks = map(list, zip(*(tune(group, choosing) for group in groups), strict=True))
    pooled = [bool(group.pooled[0]) for group in groups]
    again = scored.left_out is not None
    replays = {k: scorer(log, tuned[k].by_halves, again=True) for k in range(len(tuned)) if again and pooled[k]}
    if not on.prompts.all():
        whole = (replays.get(k) or scorer(log, method.by_halves) for k, method in enumerate(tuned))
        risks = [np.where(first, *both.per_prompt.T) for both in whole]
    together = replace(
        scored,
        methods=(*scored.methods, *(method.name for method in tuned)),
        per_prompt=np.column_stack([scored.per_prompt, *risks]),
        pooled=(*scored.pooled, *pooled),
    )
    if scored.left_out is not None and scored.apart is not None:
        n_groups = len(scored.left_out)
        outside = jackknife_groups(len(first), seed=seed, n_groups=n_groups) != np.arange(n_groups)[:, None]
        apart = [(outside * risk).sum(axis=1) / outside.sum(axis=1) for risk in risks]
        left_out = list(apart)
        for k, both in replays.items():
            assert both.left_out is not None and both.apart is not None
            left_out[k] = apart[k] + np.mean(both.left_out - both.apart, axis=1)
        together = replace(
            together,
            left_out=np.column_stack([scored.left_out, *left_out]),
            apart=np.column_stack([scored.apart, *apart]),
        )
    return together, tuple(tuned)
