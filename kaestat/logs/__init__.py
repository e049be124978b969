"""Reward logs of whole runs: reading, replay, and the risk of every baseline."""
