"""Kernels, and selectors of their bandwidth."""
