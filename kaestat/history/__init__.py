"""The record of past visits, in step order or not, with priors and deltas between workers."""
