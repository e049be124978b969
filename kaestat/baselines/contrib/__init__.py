"""Baselines made from abstracts or summaries of papers: not the authors' formulas, and not in the default lists."""

from kaestat.baselines.contrib.cluster_blend import ClusterBlend
from kaestat.baselines.contrib.logit_shift import LogitShift

__all__ = ["ClusterBlend", "LogitShift"]
