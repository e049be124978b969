"""Reward logs of whole runs: reading, replaying, and the risk of every baseline."""
