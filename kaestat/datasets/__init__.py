"""Reward logs to try things on: a simulated run, whose true values are known."""

from kaestat.datasets.simulated import SimulatedRun, simulated_run

__all__ = ["SimulatedRun", "simulated_run"]
