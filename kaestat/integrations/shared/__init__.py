"""The common part of the adapters of all trainers."""
