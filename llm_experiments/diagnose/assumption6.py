"""Assumption 6 on a real model: are squared score norms W unrelated to the reward Z?

If they are, the value V is the best baseline of a prompt. In general it is ``b* = E[W Z] / E[W]``, and the part of the
gradient's variance that a baseline b governs is ``E[W (Z - b)^2]``.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

RIGHT = 0.5  # rewards above count as right


def score_norm_table(
    step: int, weight: np.ndarray, reward: np.ndarray, prompts: Sequence[str] | None = None
) -> pd.DataFrame:
    """What score norms and rewards of a pool say, for each prompt.

    weight (ndarray, shape (P, N)): W, squared norm of each completion's score: the Gram's diagonal.
    reward: ndarray, shape (P, N).
    prompts: Ids; None numbers the prompts.
    Returns: ``step, prompt, n, value, norm2, norm2_right, norm2_wrong, correlation, best_baseline, noise_ratio``: mean
        W of all, right (reward above one half) and wrong completions; correlation of W and Z; ``sum W Z / sum W``;
        ``sum W (Z - b*)^2 / sum W (Z - V)^2``, at most 1, and biased downwards by order 1/N as b* is fitted. NaN where
        a prompt has no such completions, or no variation.
    """
    value, mass = reward.mean(axis=1), weight.sum(axis=1)
    right = reward > RIGHT
    best = _quotient((weight * reward).sum(axis=1), mass)
    centred, spread = weight - weight.mean(axis=1, keepdims=True), reward - value[:, None]
    scale = np.sqrt((centred**2).sum(axis=1) * (spread**2).sum(axis=1))
    # What rounding leaves of a constant column is no variation.
    scale = np.where(np.ptp(reward, axis=1) * np.ptp(weight, axis=1) > 0, scale, 0.0)
    return pd.DataFrame(
        {
            "step": step,
            "prompt": [str(position) for position in range(len(reward))] if prompts is None else list(prompts),
            "n": reward.shape[1],
            "value": value,
            "norm2": weight.mean(axis=1),
            "norm2_right": _quotient((weight * right).sum(axis=1), right.sum(axis=1)),
            "norm2_wrong": _quotient((weight * ~right).sum(axis=1), (~right).sum(axis=1)),
            "correlation": _quotient((centred * spread).sum(axis=1), scale),
            "best_baseline": best,
            "noise_ratio": _quotient(
                (weight * (reward - best[:, None]) ** 2).sum(axis=1), (weight * spread**2).sum(axis=1)
            ),
        }
    )


def score_norm_summary(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the prompts of each step, with standard errors.

    table: Of one step or more, from `score_norm_table`.
    Returns: ``step, quantity, mean, se, n_prompts``. Quantities: ``value``; ``correlation``; ``log_wrong_over_right``,
        the logarithm of the ratio of mean norms; ``shift``, b* less V; ``noise_ratio``. Each over the prompts that have
        it.
    """
    quantities = {
        "value": table["value"],
        "correlation": table["correlation"],
        "log_wrong_over_right": np.log(_quotient(table["norm2_wrong"].to_numpy(), table["norm2_right"].to_numpy())),
        "shift": table["best_baseline"] - table["value"],
        "noise_ratio": table["noise_ratio"],
    }
    long = pd.concat(
        [pd.DataFrame({"step": table["step"], "quantity": name, "x": x}) for name, x in quantities.items()]
    )
    long = long[np.isfinite(long["x"])]
    grouped = long.groupby(["step", "quantity"], sort=False)["x"]
    frame = grouped.agg(mean="mean", se="sem", n_prompts="count").reset_index()
    return frame.sort_values("step", kind="stable", ignore_index=True)


def _quotient(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """NaN where the denominator is not positive."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), np.nan)
