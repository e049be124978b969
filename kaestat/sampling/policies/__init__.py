"""Sampling policies by name, one per file."""

from typing import Any

from kaestat.baselines.specification import parse_specification
from kaestat.core.spelling import check_parameters
from kaestat.sampling.policies.base import Ask, Policy
from kaestat.sampling.policies.dapo import Dapo
from kaestat.sampling.policies.greso import Greso
from kaestat.sampling.policies.knapsack import Knapsack
from kaestat.sampling.policies.mopps import Mopps
from kaestat.sampling.policies.near_half import NearHalf
from kaestat.sampling.policies.neyman import Neyman
from kaestat.sampling.policies.pools import Pools
from kaestat.sampling.policies.spo import SpoWeights
from kaestat.sampling.policies.uniform import Uniform

POLICIES: dict[str, type[Policy]] = {
    "uniform": Uniform,
    "neyman": Neyman,
    "knapsack": Knapsack,
    "greso": Greso,
    "mopps": Mopps,
    "spo": SpoWeights,
    "near_half": NearHalf,
    "pools": Pools,
    "dapo": Dapo,
}


def make_policy(policy: str | Policy, **params: Any) -> Policy:
    """The policy with a name or specification, such as ``"near_half:target=0.4"``; a policy unchanged.

    Raises
    ------
    ValueError
        If the name or a parameter is unknown, or out of range.
    """
    if isinstance(policy, Policy):
        if params:
            raise ValueError(f"{', '.join(params)}: a Policy has its parameters already; leave them out.")
        return policy
    if not isinstance(policy, str):
        raise TypeError(f"policy must be a name or a Policy, got {type(policy).__name__}.")
    name, specified = parse_specification(policy) if ":" in policy else (policy, {})
    if name not in POLICIES:
        raise ValueError(f"policy: unknown {name!r}; choose one of {', '.join(POLICIES)}.")
    check_parameters(f"policy {name!r}", POLICIES[name], specified | params)
    return POLICIES[name](**specified, **params)


__all__ = [
    "POLICIES",
    "Ask",
    "Dapo",
    "Greso",
    "Knapsack",
    "Mopps",
    "NearHalf",
    "Neyman",
    "Policy",
    "Pools",
    "SpoWeights",
    "Uniform",
    "make_policy",
]
