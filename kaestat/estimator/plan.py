"""The arguments of an estimator, and their form in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from kaestat.baselines import specification
from kaestat.baselines.base import Baseline
from kaestat.baselines.registry import changed_parameters, get_method, make_baseline, with_specified
from kaestat.estimator.objective import check_objective
from kaestat.estimator.scaling import divides_by_group
from kaestat.estimator.steps.any_order import AnyOrder
from kaestat.estimator.steps.call import Order, Serving
from kaestat.estimator.steps.strict_order import StrictOrder

ORDERS: dict[str, type[StrictOrder] | type[AnyOrder]] = {each.name: each for each in (StrictOrder, AnyOrder)}


@dataclass(frozen=True, eq=False)
class Plan:
    """The checked arguments of an estimator; the last three are as the user gave them."""

    serving: Serving
    order: Order
    keep_deltas: bool
    named: bool  # Whether the method was given by name
    params: dict[str, Any]
    scale: str | None
    late: int | None

    @classmethod
    def of(
        cls,
        method: str | Baseline,
        params: dict[str, Any],
        scale: str | None,
        objective: str,
        order: str,
        late: int | None,
        keep_deltas: bool,
    ) -> Self:
        """The checked arguments of `kaestat.AdvantageEstimator`; errors as there."""
        if isinstance(method, Baseline):
            if params:
                raise ValueError(f"{', '.join(params)}: a Baseline object has its parameters already; leave them out.")
            name, baseline, own_scale = type(method).__name__, method, "none"
        else:
            name, params = with_specified(method, params)
            baseline, own_scale = make_baseline(name, **params), get_method(name).scale
        if scale is not None and divides_by_group(str(scale)) and not baseline.within_group:
            raise ValueError(
                f"scale: {scale!r} divides by the deviation of a group's rewards, which suits only values from that "
                f"group alone, and method {name!r} has others: advantages would explode where the deviation is near 0. "
                "Take 'batch_std' or 'none'."
            )
        if baseline.missing_input is not None:
            raise ValueError(f"method {name!r} needs {baseline.missing_input}.")
        check_objective(objective, name, baseline)
        if not isinstance(order, str) or order not in ORDERS:
            raise ValueError(f"order: unknown {order!r}; choose one of {', '.join(ORDERS)}.")
        serving = Serving(name, baseline, own_scale if scale is None else scale, objective)
        of_order = ORDERS[order].of(serving, late, keep_deltas)
        named = not isinstance(method, Baseline)
        return cls(serving, of_order, keep_deltas, named, params, scale, late)

    def __str__(self) -> str:
        """The arguments, as far as they are not the defaults."""
        serving, order = self.serving, self.order.name
        given = [repr(serving.method if self.named else serving.baseline)]
        given += [f"{name}={value!r}" for name, value in changed_parameters(serving.baseline, self.params).items()]
        given += [] if self.scale is None else [f"scale={self.scale!r}"]
        given += [] if serving.objective == "mean" else [f"objective={serving.objective!r}"]
        given += [] if order == StrictOrder.name else [f"order={order!r}"]
        given += [] if self.late is None else [f"late={self.late}"]
        return ", ".join(given)

    def plain(self) -> dict[str, Any]:
        """The plan as plain data; a TypeError if a parameter (a kernel function of your own) cannot be stored."""
        serving, params, late = self.serving, self.params, self.order.late
        return {
            "method": serving.method if self.named else specification.dump(serving.baseline),
            "scale": self.scale,
            "objective": serving.objective,
            "order": self.order.name,
            "keep_deltas": self.keep_deltas,
            "params": {name: specification.dump(value) for name, value in params.items()},
        } | ({} if late is None else {"late": late})


def arguments(plain: dict[str, Any]) -> tuple[str | Baseline, dict[str, Any]]:
    """Method and other arguments of an estimator, from the result of `Plan.plain`."""
    params = {name: specification.load(value) for name, value in plain["params"].items()}
    method = specification.load(plain["method"])
    chosen = {name: plain[name] for name in ("objective", "order", "late", "keep_deltas") if name in plain}
    return method, {"scale": plain["scale"]} | chosen | params
