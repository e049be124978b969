"""Standard errors and confidence intervals: of a prompt's value at one step, and of means over prompts."""

from kaestat.inference.bootstrap import cluster_bootstrap, mean_with_interval
from kaestat.inference.honest import honest_critical_value
from kaestat.inference.interval import KINDS, ValueInterval, value_interval
from kaestat.inference.jackknife import jackknife_groups, jackknife_interval
from kaestat.inference.linear_fit import LinearFit, effective_sample_size

__all__ = [
    "KINDS",
    "LinearFit",
    "ValueInterval",
    "cluster_bootstrap",
    "effective_sample_size",
    "honest_critical_value",
    "jackknife_groups",
    "jackknife_interval",
    "mean_with_interval",
    "value_interval",
]
