"""The paper's numbers, their audit, and one builder for each of its tables and figures.

Run from a checkout. ``shared/data/`` holds what the paper prints, as it prints it; nothing of ours lies there.
"""
