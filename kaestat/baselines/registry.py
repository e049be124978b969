"""The methods by name: a baseline, the scaling that goes with it, and where both come from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kaestat import baselines as b
from kaestat.baselines.base import Baseline
from kaestat.baselines.specification import parse_specification
from kaestat.core.checks import check_parameters

# What is taken where no method is named, and what takes its place where completions have weights or come in any order.
DEFAULT_METHOD, SECOND_METHOD = "bayes_filter", "kae_eb"

# Fixed bandwidths of the methods that otherwise learn one: the paper's for kae, twice that for kae_eb. They were the
# defaults once: a state file that names no bandwidth was written then.
FIXED_PARAMETERS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {"kae": {"bandwidth": 10.0}, "kae_eb": {"bandwidth": 20.0}}
)


@dataclass(frozen=True)
class Method:
    """A named method.

    Attributes
    ----------
    name : str
        The name in `make_baseline`, `AdvantageEstimator` and on the command line.
    baseline : type
        Class of the baseline.
    summary : str
        One line: value, scaling, source.
    scale : str
        Scaling of the published method: a name in `kaestat.estimator.scaling.SCALINGS`, or "deviation", division by the
        baseline's own `Baseline.deviation`.
    preset : mapping
        Parameters of the class that the name fixes.
    """

    name: str
    baseline: type[Baseline]
    summary: str
    scale: str = "none"
    preset: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("none", b.Zero, "0: plain REINFORCE (Williams, 1992)"),
        Method(
            "reinforce++",
            b.BatchMean,
            "batch mean, advantages whitened over the batch (Hu et al., 2025)",
            scale="batch_std",
            preset={"without_own": False},
        ),
        Method(
            "grpo",
            b.GroupMean,
            "group mean, divided by the group's std (Shao et al., 2024)",
            scale="group_std",
            preset={"without_own": False},
        ),
        Method("rloo", b.GroupMean, "leave-one-out group mean (Kool et al., 2019)", preset={"without_own": True}),
        Method("dr_grpo", b.GroupMean, "group mean, no std (Liu et al., 2025)", preset={"without_own": False}),
        Method(
            "gpg",
            b.GroupMean,
            "group mean, times B/(B-M) for M samples in all-equal groups (Chu et al., 2025)",
            scale="informative",
            preset={"without_own": False},
        ),
        Method(
            "opo",
            b.Opo,
            "group mean weighted by the completions' lengths (Hao et al., 2025)",
            preset={"without_own": False},
        ),
        Method(
            "mc_grpo",
            b.McGrpo,
            "group median, over the median absolute deviation, of G + 1 completions (Kim, 2026)",
            "deviation",
            preset={"without_own": False},
        ),
        Method(
            "qae",
            b.Qae,
            "group quantile in the mean's place, divided by the group's std (Wu et al., 2025)",
            "group_std",
            {"without_own": False},
        ),
        Method("remax", b.Remax, "reward of the prompt's greedy completion, given (Li et al., 2023)"),
        Method(
            "maxrl",
            b.MaxRl,
            "group mean, divided by it: gradient of log p (Tajwar et al., 2026)",
            "deviation",
            preset={"without_own": False},
        ),
        Method(
            "bnpo",
            b.Bnpo,
            "group mean, divided by a Beta density fitted to the batch (Xiao et al., 2025)",
            "deviation",
            preset={"without_own": False},
        ),
        Method(
            "grpo_passk",
            b.GrpoPassk,
            "best over second best of the group, divided by its std (Tang et al., 2025)",
            "group_std",
            preset={"without_own": False},
        ),
        Method("james_stein", b.JamesStein, "leave-one-out mean shrunk towards the other prompts (Zeng et al., 2025)"),
        Method("ebpo", b.Ebpo, "group mean shrunk towards a running global mean (Han et al., 2026)"),
        Method(
            "krpo", b.Krpo, "Kalman filter over the group's completions, over its std (Wang et al., 2025)", "deviation"
        ),
        Method("kalman", b.Kalman, "local-level Kalman filter across steps, binomial noise"),
        Method("spo", b.Spo, "Beta-Bernoulli with forgetting, advantages whitened (Xu and Ding, 2025)", "batch_std"),
        Method(
            "logit_shift",
            b.LogitShift,
            "first visit's rates, shifted in logits as the other prompts say (after a summary of BASIS)",
        ),
        Method(
            "bayes_filter", b.BayesFilter, "the default: a filter that learns how values move and are spread (ours)"
        ),
        Method(
            "cluster_blend",
            b.ClusterBlend,
            "rest of the group, blended with its cluster's running mean (after the abstract of BV-Blend)",
        ),
        Method("critic", b.Critic, "ridge regression on prompt features, learned along the run (A2C, PPO)"),
        Method("oracle", b.Oracle, "the true value, given"),
        Method("pooled", b.Pooled, "leave-one-out mean over all groups of the prompt at this step"),
        Method("kae", b.Kae, "kernel mean of the prompt's past rewards and the rest of its group (the paper)"),
        Method("kae_stream", b.KaeStream, "the paper's one-shot variant: group means, one stream per copy"),
        Method("kae_eb", b.KaeEb, "kae, with the prompts' common drift and shrinkage by empirical Bayes (ours)"),
        Method(
            "outside_value",
            b.OutsideValue,
            "kae_eb, shrunk towards a value from outside, given (after summaries of V0.5)",
        ),
        Method("local_linear", b.LocalLinear, "one-sided local linear fit"),
        Method("local_polynomial", b.LocalPolynomial, "one-sided local polynomial fit of degree d"),
        Method("sieve", b.Sieve, "B-spline or polynomial least squares in the step"),
    )
}


def methods() -> tuple[str, ...]:
    """Names of all methods, for `make_baseline` and `AdvantageEstimator`.

    Examples
    --------
    >>> import kaestat
    >>> "kae" in kaestat.methods()
    True
    """
    return tuple(METHODS)


def get_method(name: str) -> Method:
    """The method of that name.

    Raises
    ------
    ValueError
        If the name is unknown.
    TypeError
        If it is no string.
    """
    if not isinstance(name, str):
        raise TypeError(f"method must be a name or a Baseline, got {type(name).__name__}.")
    if name not in METHODS:
        raise ValueError(f"method: unknown name {name!r}; choose one of {', '.join(METHODS)}.")
    return METHODS[name]


def make_baseline(name: str, **params: Any) -> Baseline:
    """The baseline of a method.

    Parameters
    ----------
    name : str
        One of `methods()`.
    **params
        Parameters of the baseline, e.g. ``bandwidth=20`` for ``"kae"``.

    Returns
    -------
    Baseline
        A frozen object; ``.values(groups, visits, step=i)`` gives the values.

    Raises
    ------
    ValueError
        If the name or a parameter is unknown, or a parameter out of range.

    Examples
    --------
    >>> import kaestat
    >>> kaestat.make_baseline("kae", bandwidth=20, kernel="exponential").horizon
    inf
    """
    method = get_method(name)
    for key in params:
        if key in method.preset:
            raise ValueError(f"method {name!r} fixes {key}={method.preset[key]!r}; leave it out.")
    check_parameters(f"method {name!r}", method.baseline, params)
    return method.baseline(**method.preset, **params)


def parse_method(specification: str) -> tuple[str, dict[str, Any]]:
    """Split ``"kae:bandwidth=10,kernel=exponential"`` into the method's name and its parameters.

    Values are numbers, ``true``, ``false``, ``none``, names, or a selector with parameters such as
    ``bandwidth=rate(c=2)``.

    Raises
    ------
    ValueError
        If the text cannot be read, or the method is unknown.
    """
    name, params = parse_specification(specification)
    get_method(name)
    return name, params


def with_specified(method: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A method's name, and its parameters from a specification and from keywords together.

    Raises
    ------
    ValueError
        If the specification cannot be read, or a parameter is given in both.
    """
    if not isinstance(method, str) or ":" not in method:
        return method, params
    name, specified = parse_method(method)
    twice = [key for key in specified if key in params]
    if twice:
        raise ValueError(f"parameter {twice[0]!r} is given twice: in {method!r}, and as {twice[0]}=; leave one out.")
    return name, specified | params


def changed_parameters(baseline: Baseline, params: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``params`` that differ from the defaults of the baseline's class."""
    defaults = {field.name: field.default for field in dataclasses.fields(baseline)} if params else {}
    return {key: value for key, value in params.items() if not _equal(value, defaults.get(key, dataclasses.MISSING))}


def _equal(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except ValueError:  # arrays
        return False
