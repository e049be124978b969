"""Accuracy of a model on sets of problems, with errors that respect problems as clusters."""
