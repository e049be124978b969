"""Bandwidth selectors."""

from typing import Any

from kaestat.core.spelling import check_parameters, nearest
from kaestat.smoothing.selectors.auto import Auto as Auto
from kaestat.smoothing.selectors.base import BandwidthSelection as BandwidthSelection
from kaestat.smoothing.selectors.base import Selector as Selector
from kaestat.smoothing.selectors.cross_validation import ForwardCv as ForwardCv
from kaestat.smoothing.selectors.cross_validation import LooCv as LooCv
from kaestat.smoothing.selectors.formulas import Fixed as Fixed
from kaestat.smoothing.selectors.formulas import Fraction as Fraction
from kaestat.smoothing.selectors.formulas import Rate as Rate

SELECTORS: dict[str, type[Selector]] = {
    selector.name: selector for selector in (Fixed, Fraction, Rate, ForwardCv, LooCv, Auto)
}


def make_selector(name: str, **params: Any) -> Selector:
    """The selector with that name.

    Parameters
    ----------
    name : str
        One of ``SELECTORS``.
    **params
        The selector's own parameters.

    Raises
    ------
    ValueError
        If the name or a parameter is unknown.
    TypeError
        If the name is not a string.
    """
    if not isinstance(name, str):
        raise TypeError(f"selector must be a name, got {type(name).__name__}.")
    if name not in SELECTORS:
        near = nearest(name, SELECTORS)
        raise ValueError(f"selector: unknown name {name!r}{near}; choose one of {', '.join(SELECTORS)}, or give steps.")
    check_parameters(f"selector {name!r}", SELECTORS[name], params)
    return SELECTORS[name](**params)


def as_selector(bandwidth: float | str | Selector) -> Selector:
    """The selector that a number of steps, a name or a selector stands for.

    Raises
    ------
    ValueError
        If a number is not positive or a name unknown.
    TypeError
        If it has another type.
    """
    if isinstance(bandwidth, Selector):
        return bandwidth
    if isinstance(bandwidth, str):
        return make_selector(bandwidth)
    return Fixed(bandwidth)
