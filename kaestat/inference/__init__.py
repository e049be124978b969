"""Standard errors and confidence intervals of a prompt's value at one step."""

from kaestat.inference.honest import honest_critical_value
from kaestat.inference.interval import KINDS, ValueInterval, value_interval
from kaestat.inference.linear_fit import LinearFit, effective_sample_size

__all__ = [
    "KINDS",
    "LinearFit",
    "ValueInterval",
    "effective_sample_size",
    "honest_critical_value",
    "value_interval",
]
