"""A method beside its slow reference, and what else it claims; the test of each baseline lists its cases."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kaestat import make_baseline
from tests.helpers.references import Case

TRUTH = {f"p{k}": 0.2 * k for k in range(4)}


@dataclass(frozen=True)
class MethodCase:
    """A method with its slow reference, and what else it claims."""

    name: str
    reference: Callable
    params: dict = field(default_factory=dict)
    weighted: bool = False  # takes weights, and so does its reference

    @property
    def id(self) -> str:
        return self.name + "".join(
            f",{key}={value}" for key, value in self.params.items() if not isinstance(value, dict)
        )

    def baseline(self):
        return make_baseline(self.name, **self.params)

    @property
    def needs_weights(self) -> bool:
        return self.baseline().needs_weights

    def expected(self, case: Case) -> list[list[float]]:
        return self.reference(case, **self.params)
