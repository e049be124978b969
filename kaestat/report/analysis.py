"""The analysis behind `kaestat analyze`: the risk of many methods on one log, as plain tables, and conclusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import DEFAULT_METHOD, METHODS, parse_method
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.risk import draws_of, prompt_risks
from kaestat.logs.selection import select_bandwidth
from kaestat.logs.tuning import MIN_PROMPTS, Tuned, candidates, sample, wide_grid, with_tuned
from kaestat.report.facts import LogFacts
from kaestat.report.gradient import GradientAnalysis, analyze_gradient
from kaestat.report.law import LawAnalysis
from kaestat.report.notes import notes
from kaestat.report.recommendation import Recommendation, recommend
from kaestat.report.sampling import NO_RETURNS, SamplingAnalysis
from kaestat.report.unit import Unit
from kaestat.smoothing.selectors import BandwidthSelection
from kaestat.smoothing.selectors.base import PATH_COLUMNS

REFERENCES = (DEFAULT_METHOD, "grpo")  # of the paired differences
RIVAL_OF_SINGLES = "reinforce++"  # with one completion per visit there is no group mean to compare with
TUNED_METHODS = ("kae", "kae_eb", "local_linear")
PATH_POINTS = 31
PATH_KERNELS = ("triangular", "exponential")


@dataclass(frozen=True, eq=False)
class Analysis:
    """The risk of several methods on one log."""

    facts: LogFacts
    risk: pd.DataFrame | None  # `kaestat.value_risk`, lowest first; None for a log with one completion per visit
    differences: pd.DataFrame  # `kaestat.risk_differences` to the default and to ``grpo``, lowest first within each
    paths: Mapping[str, BandwidthSelection]  # Risk of KAE against its bandwidth, by kernel; empty unless requested
    notes: tuple[str, ...]  # Notes needed to interpret the tables
    recommendation: Recommendation  # The method for the next run
    tuned: tuple[Tuned, ...]  # `TUNED_METHODS` at the best bandwidth, or none if methods were named or prompts are few
    min_visits: int  # Scored visits have at least this many earlier ones: 0 where every prompt occurs once
    gradient: GradientAnalysis | None  # The noise of the gradient; None for a log without weights and lengths
    sampling: SamplingAnalysis | None = None  # Worth of sampling prompts by predicted values; None unless requested
    unscored: tuple[str, ...] = ()  # Methods of `default_methods` left out because reports do not recommend them

    @property
    def law(self) -> LawAnalysis | None:
        """The predictions of the law of the baseline; None if it does not apply."""
        return None if self.gradient is None else self.gradient.law

    @property
    def unit(self) -> Unit:
        """The unit of all risks."""
        return Unit.of(self.differences["difference"] if self.risk is None else self.risk["mse"])

    def path_table(self) -> pd.DataFrame:
        """All of ``paths`` in one table: ``kernel, bandwidth, risk, se, difference_se``."""
        tables = [selection.path.assign(kernel=kernel) for kernel, selection in self.paths.items()]
        return pd.concat(tables, ignore_index=True)[["kernel", *PATH_COLUMNS]]


def default_methods() -> tuple[str, ...]:
    """Methods that need only rewards, without those made from abstracts; ``kae`` also at 5, 10 and 20 steps."""
    ready = [name for name, method in METHODS.items() if method.needs is None]
    return (*ready, "kae:bandwidth=5", "kae:bandwidth=10", "kae:bandwidth=20")


def offered_methods() -> tuple[str, ...]:
    """Those of `default_methods` that a report may recommend (`Method.simplicity`)."""
    return tuple(method for method in default_methods() if METHODS[parse_method(method)[0]].simplicity is not None)


def analyze(
    log: RewardLog,
    methods: Sequence[str | Baseline] | None = None,
    *,
    every: bool = True,
    bandwidth_paths: bool = False,
    sampling: bool = False,
    n_boot: int = 1000,
    seed: int = 0,
    min_visits: int = 1,
) -> Analysis:
    """Compare methods on a log, and recommend one; errors are those of `kaestat.value_risk`.

    Parameters
    ----------
    log : RewardLog
        A log with one completion per visit gives differences only.
    methods : sequence of str or Baseline, optional
        None means `default_methods`, and `TUNED_METHODS` at bandwidths chosen on the log. Only `offered_methods` are
        recommended.
    every : bool
        If False, only `offered_methods` of the default methods are scored.
    bandwidth_paths, sampling : bool
        Also follow the risk of KAE along a grid of bandwidths; also run `kaestat.sampling_risk`.
    n_boot, seed, min_visits
        As for `kaestat.value_risk`. If every prompt occurs once, ``min_visits`` 1 becomes 0.
    """
    if methods is not None and not methods:
        raise ValueError("methods is empty: name at least one, for example 'kae', or None for all.")
    returns = bool((log.prompt_units.earlier > 0).any())
    ready = default_methods() if returns else tuple(name for name in default_methods() if name in METHODS)
    offered = set(offered_methods())
    unscored = () if every or methods is not None else tuple(name for name in ready if name not in offered)
    given = tuple(name for name in ready if name not in unscored) if methods is None else tuple(methods)
    if not returns and min_visits == 1:
        min_visits = 0
    scorer = partial(prompt_risks, min_visits=min_visits, differences_only=True, seed=seed)
    scored = scorer(log, [*given, *REFERENCES, RIVAL_OF_SINGLES], again=draws_of(n_boot) > 0)
    reference = {name: len(given) + k for k, name in enumerate((*REFERENCES, RIVAL_OF_SINGLES))}
    rows = [k for k in range(len(given)) if np.isfinite(scored.per_prompt[:, k]).all()]
    if not rows:
        raise ValueError(
            "the log has one completion per visit (G = 1), and all methods given contain the completion's own reward: "
            "nothing is identified. Add one that does not, for example 'kae'."
        )
    tuned: tuple[Tuned, ...] = ()
    if methods is None and returns and len(scored.per_prompt) >= MIN_PROMPTS:
        tried = [candidates(method, wide_grid(log)) for method in TUNED_METHODS]
        on = sample(log, min_visits=min_visits, absolute=scored.absolute, seed=seed)
        rows += range(len(scored.methods), len(scored.methods) + len(tried))
        scored, tuned = with_tuned(scored, tried, scorer, log, on, seed=seed)
    draw: dict[str, Any] = {"n_boot": n_boot, "seed": seed}
    risk = None
    if scored.absolute:
        risk = _lowest_first(scored.take([*rows, reference["grpo"]]).risk_table(**draw), "mse")
    differences = [
        _lowest_first(scored.take([*rows, reference[name]]).difference_table(**draw), "difference")
        for name in REFERENCES
    ]
    paths = {}
    if bandwidth_paths and scored.absolute and returns:
        grid = wide_grid(log, PATH_POINTS)
        paths = {kernel: select_bandwidth(log, "loo_cv", kernel, grid, **draw) for kernel in PATH_KERNELS}
    rival = reference["grpo" if scored.absolute else RIVAL_OF_SINGLES]
    may = rows if methods is not None else [k for k in rows if k >= len(given) or given[k] in offered]
    recommendation = recommend(log, scored.take([*may, rival]), min_visits=min_visits, **draw)
    gradient = None
    if log.weightings:
        gradient = analyze_gradient(log, methods, recommendation.row, min_visits=min_visits, **draw)
    remarks = notes(log, scored, gradient, given, tuned, min_visits)
    return Analysis(
        facts=LogFacts.of(log),
        risk=risk,
        differences=pd.concat(differences, ignore_index=True),
        paths=paths,
        notes=(*remarks, NO_RETURNS) if sampling and not returns else tuple(remarks),
        recommendation=recommendation,
        tuned=tuned,
        min_visits=min_visits,
        gradient=gradient,
        sampling=SamplingAnalysis.of(log, **draw) if sampling and returns else None,
        unscored=unscored,
    )


def _lowest_first(table: pd.DataFrame, by: str) -> pd.DataFrame:
    return table.sort_values(by, kind="stable", ignore_index=True)
