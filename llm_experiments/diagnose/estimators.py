"""Which methods of the library the diagnostics compare, and the values that they assign to drawn groups.

Every method is a specification such as ``kae:bandwidth=20`` (`kaestat.baselines.registry.parse_method`). ``grpo`` and
``reinforce++`` are leave-one-out, as in the paper's Table 1; ``kae`` without a bandwidth is the paper's, at 10 steps,
and ``kae_eb`` at 20: at one step of a run there is nothing to learn a bandwidth from. The score-weighted form of an
averaging baseline is ``NAME@WEIGHTING``: it smooths ``sum W Z`` over ``sum W`` and so estimates the best baseline
``E[W Z] / E[W]`` (Greensmith et al., 2004) in place of the value.
"""

from dataclasses import dataclass

import numpy as np

from kaestat import make_baseline
from kaestat.baselines.base import Baseline
from kaestat.baselines.method import Method
from kaestat.baselines.registry import FIXED_PARAMETERS, METHODS, parse_method
from llm_experiments.diagnose.draws import DrawnGroups
from llm_experiments.diagnose.pool_rewards import PoolRewards

WEIGHTINGS = {
    "exact": "squared norm of the completion's score",
    "length": "number of tokens (OPO)",
    "logit_norm": "squared norm of the log-probability's gradient in the logits, summed over tokens",
}


def _why_excluded(method: Method) -> str | None:
    """Why a method has no place in the diagnostics, in plain words; None if it has one."""
    if method.needs is not None:
        return f"needs {method.needs}"
    if not method.default.estimates_mean:
        return "takes one reward of the group, which estimates no mean"
    return f"has the value of {method.same_value_as} here" if method.same_value_as else None


EXCLUDED = {name: why for name, method in METHODS.items() if (why := _why_excluded(method)) is not None}
PLAIN = tuple(name for name in METHODS if name not in EXCLUDED)
WEIGHTED = ("reinforce++", "grpo", "kae", "kae_eb")
REFERENCES = ("kae", "grpo")
WEIGHTED_KAE_EB = "kae_eb@exact"  # estimates the best baseline of all that read weights
GRADIENT_REFERENCES = (*REFERENCES, WEIGHTED_KAE_EB)


@dataclass(frozen=True)
class Estimator:
    """A baseline as the diagnostics use it.

    name: The specification it was made from.
    weighting: Which of `WEIGHTINGS` it smooths with; empty for the plain form.
    """

    name: str
    baseline: Baseline
    weighting: str = ""

    def values(self, drawn: DrawnGroups) -> np.ndarray:
        """Value assigned to each drawn completion of the current groups, shape (R, P, G).

        State beyond the visits (`Ebpo`) starts afresh at the oldest past step and is advanced through the drawn
        groups of each.
        """
        pool = drawn.pool
        carry = self.baseline.initial_carry()
        if carry is not None:
            for position in range(pool.n_history):
                carry = self.baseline.advance(
                    carry,
                    drawn.past_groups(position),
                    drawn.visits(before=position),
                    step=pool.step - pool.n_history + position,
                )
        weighting = self.weighting
        past = self.baseline.horizon > 0 or carry is not None  # enters its values
        visits = drawn.visits(weighting if past else "")
        return self.baseline.values(drawn.groups(weighting), visits, step=pool.step, carry=carry)


def make_estimator(specification: str) -> Estimator:
    """The estimator of a specification.

    Raises ValueError if it cannot be read, names an unknown or excluded method or weighting, or weighs a baseline that
        takes no weights.
    """
    method, at, weighting = specification.partition("@")
    name, params = parse_method(method)
    if name in EXCLUDED:
        raise ValueError(f"method {name!r} has no place in the diagnostics: {EXCLUDED[name]}.")
    baseline = make_baseline(name, **(FIXED_PARAMETERS.get(name, {}) | params)).leave_one_out()
    if at and weighting not in WEIGHTINGS:
        raise ValueError(f"method {specification!r}: unknown weighting; choose one of {', '.join(WEIGHTINGS)}.")
    if at and not baseline.takes_weights:
        raise ValueError(f"method {specification!r}: {name} takes no weights; leave out {at + weighting!r}.")
    return Estimator(specification, baseline, weighting)


def plain_estimators() -> list[Estimator]:
    """Every method of the library that applies, in the library's order."""
    return [make_estimator(name) for name in PLAIN]


def weighted_estimators(pool: PoolRewards) -> list[Estimator]:
    """The score-weighted forms of `WEIGHTED` that this pool has the weights for."""
    return [make_estimator(f"{name}@{weighting}") for weighting in pool.target_weight for name in WEIGHTED]
