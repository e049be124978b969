"""Seeds by content: the seed of a computation depends on what it is, never on what ran before it."""

import hashlib
import json


def seed_of(seed: int, *content: str | int) -> int:
    """A 63-bit seed for one computation of a run.

    seed: Seed of the run.
    *content: What tells this computation from all others, such as ``"pool", step, problem_id``.
    """
    text = json.dumps([seed, *content])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
