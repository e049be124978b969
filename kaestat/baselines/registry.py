"""The methods by name, one row each. All lists and tables of methods come from these rows."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kaestat import baselines as b
from kaestat.baselines.base import Baseline
from kaestat.baselines.method import Method
from kaestat.baselines.specification import parse_specification
from kaestat.core.spelling import check_parameters, nearest

# Fixed bandwidths for studies of methods that otherwise learn one: the paper's for kae, twice that for kae_eb, whose
# shrinkage takes over part of the smoothing.
FIXED_PARAMETERS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {"kae": {"bandwidth": 10.0}, "kae_eb": {"bandwidth": 20.0}}
)


DEFAULT_METHOD = "kae_eb"  # of estimators, adapters and the command line: it takes weights, and steps in any order


_KEEPS_OWN: Mapping[str, Any] = MappingProxyType({"without_own": False})

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "none",
            b.Zero,
            "0: plain REINFORCE (Williams, 1992)",
            "Never for its error; late in training with heavy wrong answers it is hard to beat without weights.",
        ),
        Method(
            "reinforce++",
            b.BatchMean,
            "batch mean, advantages whitened over the batch (Hu et al., 2025)",
            "One completion a prompt, no stable ids, nothing known before.",
            scale="batch_std",
            preset=_KEEPS_OWN,
            simplicity=3,
        ),
        Method(
            "grpo",
            b.GroupMean,
            "group mean, divided by the group's std (Shao et al., 2024)",
            "The common baseline to compare with; large groups, and division by the deviation is wanted.",
            scale="group_std",
            preset=_KEEPS_OWN,
            simplicity=1,
        ),
        Method(
            "rloo",
            b.GroupMean,
            "leave-one-out group mean (Kool et al., 2019)",
            "No stable prompt ids, and groups of eight or more.",
            preset=MappingProxyType({"without_own": True}),
            same_value_as="grpo",
            simplicity=0,
        ),
        Method(
            "dr_grpo",
            b.GroupMean,
            "group mean, no std (Liu et al., 2025)",
            "As `rloo`, where a framework has it: the same gradient, shorter by (G - 1) / G.",
            preset=_KEEPS_OWN,
            same_value_as="grpo",
        ),
        Method(
            "gpg",
            b.GroupMean,
            "group mean, times B/(B-M) for M samples in all-equal groups (Chu et al., 2025)",
            "As `dr_grpo`, where the size of the step should not fall with the share of mixed groups.",
            scale="informative",
            preset=_KEEPS_OWN,
            same_value_as="grpo",
        ),
        Method(
            "opo",
            b.Opo,
            "group mean weighted by the completions' lengths (Hao et al., 2025)",
            "Lengths stand in for score norms, and there is no history; measure first whether they do.",
            preset=_KEEPS_OWN,
        ),
        Method(
            "mc_grpo",
            b.McGrpo,
            "group median, over the median absolute deviation, of G + 1 completions (Kim, 2026)",
            "To reproduce its paper: groups of three to five, where one lucky completion should not move the rest.",
            scale="deviation",
            divisor="the group's median absolute deviation",
            preset=_KEEPS_OWN,
        ),
        Method(
            "qae",
            b.Qae,
            "group quantile in the mean's place, divided by the group's std (Wu et al., 2025)",
            "To reproduce its paper: only rare successes, or only rare failures, are to count.",
            scale="group_std",
            preset=_KEEPS_OWN,
        ),
        Method(
            "remax",
            b.Remax,
            "reward of the prompt's greedy completion, given (Li et al., 2023)",
            "Greedy completions are at hand anyway.",
        ),
        Method(
            "maxrl",
            b.MaxRl,
            "group mean, divided by it: gradient of log p (Tajwar et al., 2026)",
            "The aim is log p, hard prompts before easy ones, with groups of eight or more.",
            scale="deviation",
            divisor="the group's mean",
            preset=_KEEPS_OWN,
            same_value_as="grpo",
        ),
        Method(
            "bnpo",
            b.Bnpo,
            "group mean, divided by a Beta density fitted to the batch (Xiao et al., 2025)",
            "To reproduce its paper: success rates that are rare in the batch are to count more.",
            scale="deviation",
            divisor="the Beta density at the group's mean",
            preset=_KEEPS_OWN,
            same_value_as="grpo",
        ),
        Method(
            "grpo_passk",
            b.GrpoPassk,
            "best over second best of the group, divided by its std (Tang et al., 2025)",
            "The aim is pass@G and there is no history; with one take `objective=`.",
            scale="group_std",
            preset=_KEEPS_OWN,
        ),
        Method(
            "james_stein",
            b.JamesStein,
            "leave-one-out mean shrunk towards the other prompts (Zeng et al., 2025)",
            "No history, and groups of two or more; the fewer completions, the more it helps.",
            simplicity=4,
        ),
        Method(
            "ebpo",
            b.Ebpo,
            "group mean shrunk towards a running global mean (Han et al., 2026)",
            "To reproduce its paper: no history of prompts, a running mean instead.",
        ),
        Method(
            "krpo",
            b.Krpo,
            "Kalman filter over the group's completions, over its std (Wang et al., 2025)",
            "To reproduce its paper.",
            scale="deviation",
            divisor="the filter's standard deviation",
        ),
        Method(
            "kalman",
            b.Kalman,
            "local-level Kalman filter across steps, binomial noise",
            "One number of how fast values move is known; uncertainty is wanted in closed form.",
            simplicity=9,
        ),
        Method(
            "spo",
            b.Spo,
            "Beta-Bernoulli with forgetting, advantages whitened (Xu and Ding, 2025)",
            "To reproduce its paper, or where divergences between visits are at hand.",
            scale="batch_std",
            simplicity=8,
        ),
        Method(
            "bayes_filter",
            b.BayesFilter,
            "a filter that learns how values move and jump (ours)",
            "Values that jump: a new reward, a format learned at once.",
            simplicity=6,
        ),
        Method("oracle", b.Oracle, "the true value, given", "Tests: the least that a value can leave."),
        Method(
            "pooled",
            b.Pooled,
            "leave-one-out mean over all groups of the prompt at this step",
            "A prompt has several groups in one step.",
            same_value_as="grpo",
            simplicity=2,
        ),
        Method(
            "kae",
            b.Kae,
            "kernel mean of the prompt's past rewards and the rest of its group (the paper)",
            "A history that is simple to explain: one bandwidth, no other prompts.",
            simplicity=5,
        ),
        Method(
            "kae_stream",
            b.KaeStream,
            "the paper's one-shot variant: group means, one stream per copy",
            "One-shot training, copies of a prompt in a batch, as in the paper.",
            simplicity=7,
        ),
        Method(
            "kae_eb",
            b.KaeEb,
            "the default: kae, with the prompts' common drift and shrinkage by empirical Bayes (ours)",
            "Any reward, any order, few completions, early visits, weights.",
            simplicity=10,
        ),
        Method(
            "outside_value",
            b.OutsideValue,
            "kae_eb, shrunk towards a value from outside, given (after summaries of V0.5)",
            "A value model, or another guess at each value, is at hand at every step.",
        ),
        Method(
            "local_linear",
            b.LocalLinear,
            "one-sided local linear fit",
            "Values move along a line, far against their noise; else the lag of `kae` costs less.",
        ),
        Method(
            "local_polynomial",
            b.LocalPolynomial,
            "one-sided local polynomial fit of degree d",
            "To study smoothers; too noisy for training.",
        ),
        Method(
            "sieve",
            b.Sieve,
            "B-spline least squares in the step",
            "To study smoothers: the whole past of one prompt, smooth, with many visits.",
        ),
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
    """The `Method` with that name; a ValueError if the name is unknown, and a TypeError if it is not a string."""
    if not isinstance(name, str):
        raise TypeError(f"method must be a name or a Baseline, got {type(name).__name__}.")
    if name not in METHODS:
        raise ValueError(f"method: unknown name {name!r}{nearest(name, METHODS)}; choose one of {', '.join(METHODS)}.")
    return METHODS[name]


def make_baseline(name: str, **params: Any) -> Baseline:
    """The baseline of a named method.

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
    """The method's name and parameters in a text such as ``"kae:bandwidth=10,kernel=exponential"``.

    Values are numbers, ``true``, ``false``, ``none``, names, or a selector with parameters such as
    ``bandwidth=rate(c=2)``. Raises a ValueError if the text cannot be read, or the method is unknown.
    """
    name, params = parse_specification(specification)
    get_method(name)
    return name, params


def with_specified(method: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A method's name, and its parameters from a specification and from keywords together.

    Raises a ValueError if the specification cannot be read, or a parameter is given in both.
    """
    if not isinstance(method, str) or ":" not in method:
        return method, params
    name, specified = parse_method(method)
    twice = [key for key in specified if key in params]
    if twice:
        raise ValueError(f"parameter {twice[0]!r} is given twice: in {method!r}, and as {twice[0]}=; leave one out.")
    return name, specified | params
