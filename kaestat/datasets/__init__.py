"""Reward logs to experiment with: a simulated run with known true values."""

from kaestat.datasets.simulated import SimulatedRun, simulated_run

__all__ = ["SimulatedRun", "simulated_run"]
