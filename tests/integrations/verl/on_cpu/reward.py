"""A reward that a random model gets half the time."""

import zlib


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    """1 for about every second text."""
    return float(zlib.crc32(solution_str.encode("utf-8", "replace")) % 2)
