"""Estimators for steps in any order: late completions, several policy versions, several workers."""
