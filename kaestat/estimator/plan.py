"""The arguments of an estimator, and their form in files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from kaestat.baselines import specification
from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import get_method, make_baseline, with_specified
from kaestat.baselines.reward_range import RangedBaseline
from kaestat.estimator.objective import check_objective
from kaestat.estimator.scaling import check_scale


@dataclass(frozen=True, eq=False)
class Plan:
    """The checked arguments of an estimator."""

    method: str  # Its name, or that of a baseline object's class
    baseline: Baseline
    scale: str  # As `make_scaling` takes it, or "deviation"
    objective: str  # As `objective_slope` takes it
    named: bool  # Whether the method was given by name
    params: dict[str, Any]  # Parameters of the baseline, as the user gave them
    given_scale: str | None  # As the user gave it

    @cached_property
    def horizon(self) -> float:
        """The baseline's; 0 without a history."""
        return self.baseline.horizon

    @cached_property
    def watches_rewards(self) -> bool:
        """Whether the range of rewards matters: prompts share what is learned from them, or the method has one."""
        return self.baseline.pools_prompts or isinstance(self.baseline, RangedBaseline)

    @cached_property
    def bounds_rewards(self) -> bool:
        """Whether a reward far outside those before it is bounded."""
        return self.baseline.bounds_rewards

    @classmethod
    def of(cls, method: str | Baseline, params: dict[str, Any], scale: str | None, objective: str) -> Self:
        """The checked arguments of `kaestat.AdvantageEstimator`; errors as there."""
        named = not isinstance(method, Baseline)
        if isinstance(method, Baseline):
            if params:
                raise ValueError(f"{', '.join(params)}: a Baseline object has its parameters already; leave them out.")
            name, baseline, own_scale = type(method).__name__, method, "none"
        else:
            name, params = with_specified(method, params)
            baseline, own_scale = make_baseline(name, **params), get_method(name).scale
        if scale is not None:
            check_scale(scale, name, baseline)
        if baseline.missing_input is not None:
            raise ValueError(f"method {name!r} needs {baseline.missing_input}.")
        check_objective(objective, name, baseline)
        return cls(name, baseline, own_scale if scale is None else scale, objective, named, params, scale)

    def __str__(self) -> str:
        """The arguments that were given."""
        given = [repr(self.method if self.named else self.baseline)]
        given += [f"{name}={value!r}" for name, value in self.params.items()]
        given += [] if self.given_scale is None else [f"scale={self.given_scale!r}"]
        given += [] if self.objective == "mean" else [f"objective={self.objective!r}"]
        return ", ".join(given)

    def plain(self) -> dict[str, Any]:
        """The plan as plain data; a TypeError if a parameter (a kernel function of your own) cannot be stored."""
        return {
            "method": self.method if self.named else specification.dump(self.baseline),
            "scale": self.given_scale,
            "objective": self.objective,
            "params": {name: specification.dump(value) for name, value in self.params.items()},
        }


def arguments(plain: dict[str, Any]) -> tuple[str | Baseline, dict[str, Any]]:
    """Method and other arguments of an estimator, from the result of `Plan.plain`."""
    params = {name: specification.load(value) for name, value in plain["params"].items()}
    options = {name: value for name, value in plain.items() if name not in ("method", "params")}
    return specification.load(plain["method"]), options | params
