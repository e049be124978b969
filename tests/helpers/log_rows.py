"""A Hypothesis strategy for the columns of a reward log."""

import numpy as np
from hypothesis import strategies as st

PROMPTS = ["a", "b", ("c", 1), 7, "e"]


@st.composite
def rows(draw) -> tuple[list, list, list, list | None]:
    """Prompts, steps, rewards and groups (or None) of up to 60 completions in any order.

    Steps are irregular with gaps, prompts come and go, and groups have any size. Rewards are 0, 1/4 or 1.
    """
    size, n_steps, n_prompts = draw(st.integers(1, 60)), draw(st.integers(1, 9)), draw(st.integers(1, len(PROMPTS)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = rng.choice(60, size=n_steps, replace=False)
    groups = rng.integers(3, size=size).tolist() if draw(st.booleans()) else None
    return (
        [PROMPTS[code] for code in rng.integers(n_prompts, size=size)],
        rng.choice(steps, size=size).tolist(),
        rng.choice([0.0, 1.0, 0.25], size=size).tolist(),
        groups,
    )
