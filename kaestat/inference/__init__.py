"""Confidence intervals of a prompt's value at one step."""

from kaestat.inference.interval import KINDS, ValueInterval, value_interval
from kaestat.inference.linear_fit import LinearFit

__all__ = ["KINDS", "LinearFit", "ValueInterval", "value_interval"]
