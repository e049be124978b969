"""Kernels, and selectors of their bandwidths."""
