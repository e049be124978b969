"""The simulation laboratory: synthetic bandits with exact truth, and studies of the paper's claims on them.

Run from a checkout: ``python -m simulations list``.
"""
