"""All that is known about a named method, in one place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from kaestat.baselines.base import Baseline


@dataclass(frozen=True)
class Method:
    """A named method, with all that tables, reports, studies and tests need to know about it."""

    name: str  # The name in `make_baseline`, `AdvantageEstimator` and on the command line
    baseline: type[Baseline]  # Class of the baseline
    summary: str  # One line: value, scaling, source
    use: str  # One sentence: when to use it
    # Scaling of the published method: a name in `kaestat.estimator.scaling.SCALINGS`, or "deviation", division by the
    # baseline's own `Baseline.deviation`
    scale: str = "none"
    divisor: str = ""  # With the scale "deviation", the divisor of the advantage, in words
    # Parameters of the class fixed by the name
    preset: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    # Another method with the same value if the own reward is left out and each prompt has one group; empty if there is
    # none
    same_value_as: str = ""
    # Place in the order of simplicity, 0 for the simplest. Of two methods whose errors do not differ significantly,
    # reports recommend the simpler one; those with None come last, and only if they were named
    simplicity: int | None = None

    @cached_property
    def default(self) -> Baseline:
        """The baseline at its default parameters."""
        return self.baseline(**self.preset)

    @property
    def needs(self) -> str | None:
        """The input that it needs in addition to rewards, in words; None if nothing."""
        return "weights of completions" if self.default.needs_weights else self.default.missing_input

    @property
    def page(self) -> str:
        """Name of its documentation page, without the suffix."""
        return self.name.replace("++", "_plus_plus")

    @property
    def order(self) -> str:
        """The order of steps that it accepts at the default parameters, "any" or "strict"."""
        return "strict" if self.default.in_order_only else "any"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know before you use it, in words: what it needs, and why reports may not recommend it."""
        told = {
            f"needs {self.needs}": self.needs is not None,
            "takes one reward of the group for its mean": not self.default.estimates_mean,
            "its value contains the completion's own reward": self.default.includes_own,
        }
        return tuple(remark for remark, holds in told.items() if holds)
