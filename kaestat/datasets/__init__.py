"""Reward logs to try things on: a simulated run, whose true values are known, and public logs of real ones."""

from kaestat.datasets.public import fetch
from kaestat.datasets.simulated import SimulatedRun, simulated_run

__all__ = ["SimulatedRun", "fetch", "simulated_run"]
