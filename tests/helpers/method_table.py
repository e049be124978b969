"""Every method beside its slow reference, and which invariances it claims; the ways from a run to its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from kaestat import Groups, make_baseline
from tests.helpers import references as ref
from tests.helpers.strategies import Step, case_at, groups_of, visits_of

FEATURES = {f"p{k}": [0.5 * k, (-1.0) ** k] for k in range(4)}
CLUSTERS = {f"p{k}": k % 2 for k in range(4)}
TRUTH = {f"p{k}": 0.2 * k for k in range(4)}


@dataclass(frozen=True)
class Method:
    """A method with its slow reference, and which of the invariances it claims."""

    name: str
    reference: Callable
    params: dict = field(default_factory=dict)
    weighted: bool = False  # takes weights, and so does its reference
    averages: bool = False  # a weighted mean of rewards, weights summing to one
    sees_own: bool = False
    by_rank: bool = False  # a reward of the group in place of a mean
    ordered: bool = False  # depends on the order of completions in a group
    carries: bool = False

    @property
    def id(self) -> str:
        return self.name + "".join(
            f",{key}={value}"
            for key, value in self.params.items()
            if key not in ("features", "value", "greedy", "outside", "clusters")
        )

    def baseline(self):
        return make_baseline(self.name, **self.params)

    @property
    def needs_weights(self) -> bool:
        return self.baseline().needs_weights

    def expected(self, case: ref.Case) -> list[list[float]]:
        return self.reference(case, **self.params)


def _rate(c):
    """Corollary 1: i c N^(-1/3) steps, N all completions of the prompt but the one left out."""

    def bandwidth(case, p):
        n = sum(len(visit.rewards) for visit in case.past[p]) + len(case.rewards[p]) - 1
        return max(case.step, 1) * c * max(n, 1) ** (-1 / 3)

    return bandwidth


def _kae_with(bandwidth):
    return lambda case, **params: ref.kae(case, **{**params, "bandwidth": bandwidth})


METHODS = [
    Method("none", lambda case: ref.zero(case), weighted=True),
    Method(
        "reinforce++", lambda case: ref.batch_mean(case, without_own=False), weighted=True, averages=True, sees_own=True
    ),
    Method("grpo", lambda case: ref.group_mean(case, without_own=False), weighted=True, averages=True, sees_own=True),
    Method("maxrl", lambda case: ref.group_mean(case, without_own=False), weighted=True, averages=True, sees_own=True),
    Method("bnpo", lambda case: ref.group_mean(case, without_own=False), weighted=True, averages=True, sees_own=True),
    Method("opo", lambda case: ref.opo(case), weighted=True, averages=True, sees_own=True),
    Method("mc_grpo", ref.mc_grpo, sees_own=True, by_rank=True),
    Method("qae", ref.qae, sees_own=True, by_rank=True),
    Method("qae", ref.qae, {"quantile": 0.75}, sees_own=True, by_rank=True),
    Method("grpo_passk", ref.grpo_passk, sees_own=True, by_rank=True),
    Method("rloo", lambda case: ref.group_mean(case, without_own=True), weighted=True),
    Method("pooled", lambda case: ref.group_mean(case, without_own=True), weighted=True),
    Method("james_stein", ref.james_stein, weighted=True),
    Method("james_stein", ref.james_stein, {"paper_factor": True, "eps": 1e-3}),
    Method("ebpo", ref.ebpo, sees_own=True, carries=True),
    Method("krpo", ref.krpo, sees_own=True, ordered=True),
    Method("kalman", ref.kalman),
    Method(
        "kalman",
        lambda case, **params: ref.kalman(case, drift=0.01, mean=0.3, variance=0.2, reward_variance=0.1),
        {"drift_variance": 0.01, "initial_mean": 0.3, "initial_variance": 0.2, "reward_variance": 0.1},
    ),
    Method("spo", ref.spo),
    Method("spo", ref.spo, {"rho": 0.5, "prior_mean": 0.9, "prior_count": 3.0}),
    Method("logit_shift", ref.logit_shift),
    Method("critic", ref.critic, {"features": FEATURES, "forgetting": 0.8}, carries=True),
    Method("cluster_blend", ref.cluster_blend, {"clusters": CLUSTERS}, carries=True),
    Method("cluster_blend", ref.cluster_blend, {"clusters": CLUSTERS, "forgetting": 0.5}, carries=True),
    Method("oracle", ref.oracle, {"value": TRUTH}),
    Method("remax", ref.remax, {"greedy": TRUTH}),
    *(
        Method("kae", ref.kae, {"kernel": kernel, "bandwidth": bandwidth}, weighted=True, averages=True)
        for kernel, bandwidth in zip(ref.KERNELS, (10.0, 4, 3.5, 8.0, 6.0), strict=True)
    ),
    Method("kae", ref.kae, {"bandwidth": math.inf}, weighted=True, averages=True),
    Method("kae", ref.kae, {"bandwidth": 1e-6, "cold_start": 0.25}, weighted=True),
    Method("kae", ref.kae, {"normalization": "algorithm1", "bandwidth": 4}, weighted=True),
    Method(
        "kae",
        _kae_with(lambda case, p: max(case.step, 1) * 0.5),
        {"bandwidth": make_baseline("kae", bandwidth="fraction").bandwidth.__class__(0.5)},
        weighted=True,
        averages=True,
    ),
    Method(
        "kae",
        _kae_with(_rate(1.5)),
        {"bandwidth": make_baseline("kae", bandwidth="rate").bandwidth.__class__(1.5)},
        averages=True,
    ),
    Method("kae_eb", ref.kae_eb, {"bandwidth": 20.0}, weighted=True, averages=True),
    Method("kae_eb", ref.kae_eb, {"kernel": "exponential", "bandwidth": 5.0, "cold_start": 0.5}, weighted=True),
    Method("outside_value", ref.outside_value, {"outside": TRUTH, "bandwidth": 20.0}),
    Method(
        "outside_value",
        ref.outside_value,
        {"outside": TRUTH, "kernel": "exponential", "bandwidth": 5.0, "cold_start": 0.1},
    ),
    Method("kae_stream", ref.kae_stream, {"bandwidth": 7.0}, weighted=True, averages=True),
    Method("kae_stream", ref.kae_stream, {"kernel": "exponential", "cold_start": 0.5}, weighted=True),
    Method(
        "local_linear",
        lambda case, **p: ref.local_polynomial(case, degree=1, **p),
        {"bandwidth": 12},
        weighted=True,
        averages=True,
    ),
    Method(
        "local_polynomial",
        ref.local_polynomial,
        {"degree": 2, "bandwidth": 25.0, "kernel": "half-normal"},
        weighted=True,
        averages=True,
    ),
    Method("sieve", ref.sieve, weighted=True, averages=True),
    Method("sieve", ref.sieve, {"n_basis": 1, "degree": 0}, weighted=True, averages=True),
    Method("sieve", ref.sieve, {"n_basis": 4, "degree": 2}, averages=True),
    Method("sieve", ref.sieve, {"n_basis": 3, "basis": "polynomial"}, weighted=True, averages=True),
]
every_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.id)


def only(condition):
    chosen = [method for method in METHODS if condition(method)]
    return pytest.mark.parametrize("method", chosen, ids=lambda method: method.id)


def carry_before(method: Method, baseline, run: list[Step]):
    """The carry after every step of ``run`` but the last."""
    carry = baseline.initial_carry()
    for index, step in enumerate(run[:-1]):
        case = case_at(run, index)
        carry = baseline.advance(carry, groups_of(case), visits_of(case), step=step.number)
    return carry


def values_of(method: Method, run: list[Step], *, weighted: bool = False, **layout) -> tuple[np.ndarray, Groups]:
    """Library values at the last step of a run."""
    baseline, case = method.baseline(), case_at(run, -1 % len(run))
    weighted = weighted or baseline.needs_weights
    groups = groups_of(case, weighted=weighted, padding=layout.get("padding", 0.0), spare=layout.get("spare", 0))
    visits = visits_of(case, weighted=weighted, scatter_padding=layout.get("scatter_padding", False))
    return baseline.values(groups, visits, step=case.step, carry=carry_before(method, baseline, run)), groups


def flat(rows) -> np.ndarray:
    return np.array([value for row in rows for value in row])


def present(values: np.ndarray, groups: Groups) -> np.ndarray:
    return values.reshape(-1) if groups.mask is None else values[groups.mask]
