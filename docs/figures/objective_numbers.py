"""The numbers of "Maximise something else": gradients of objectives with rates of the past, and as published.

``PYTHONPATH=. python docs/figures/objective_numbers.py``, in a checkout, writes ``objective_gradients.csv`` beside this
file within a minute. tests/docs checks that the file is what it writes.

Prompts as in ``choice_numbers.py``: success rates start as in a real run, and their logits walk. Each prompt has one
logit, the parameter, in which a success has score 1 - p and a failure -p; so the gradient of ``f(p)`` is
``f'(p) p (1 - p)``, and an update of G completions is the mean of advantage times score.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from choice_numbers import DRIFT, N_PROMPTS, N_REPLICATES, PAST, simulate

from kaestat import AdvantageEstimator
from kaestat.core.storage import write_atomically

FOLDER = Path(__file__).parent
GROUP_SIZES = (2, 8)
OURS = "kae_eb:bandwidth=20"
Gradient = Callable[[np.ndarray], np.ndarray]


def forms(group_size: int) -> list[tuple[str, Gradient, str, dict[str, str], float]]:
    """Objective, its exact gradient, method and options, and what its update must be multiplied by."""
    k = group_size
    log: Gradient = lambda p: 1 - p  # noqa: E731
    tries: Gradient = lambda p: k * p * (1 - p) ** k  # noqa: E731
    arcsin: Gradient = lambda p: np.sqrt(p * (1 - p))  # noqa: E731
    return [
        ("log", log, "maxrl", {}, 1.0),
        ("log", log, OURS, {"objective": "log"}, 1.0),
        ("pass@G", tries, "grpo_passk", {"scale": "none"}, float(k)),  # summed over the group it is unbiased
        ("pass@G", tries, OURS, {"objective": f"pass@{k}"}, 1.0),
        ("arcsin", arcsin, "grpo", {}, 1.0),
        ("arcsin", arcsin, OURS, {"objective": "arcsin"}, 1.0),
    ]


def updates(method: str, options: dict[str, str], times: float, gradient: Gradient, group_size: int) -> np.ndarray:
    """Update and exact gradient of every prompt at the last step, shape (2, R, P)."""
    value, reward = simulate(DRIFT, PAST, group_size)
    prompts = np.repeat(np.arange(N_PROMPTS), group_size)
    found = []
    for p, run in zip(value, reward, strict=True):
        estimator = AdvantageEstimator(method, **options)
        for step, now in enumerate(run):
            advantages = estimator.step(prompts, now.ravel(), step)
        found.append((times * (advantages.reshape(now.shape) * (now - p[:, None])).mean(axis=1), gradient(p)))
    return np.moveaxis(np.array(found), 1, 0)


def gradients() -> pd.DataFrame:
    """``group_size, objective, method``; ``scale``, the mean update over the mean gradient; ``cosine`` of the angle
    between the update of the 64 prompts and the gradient; and their standard errors over replicates."""
    rows = []
    for size in GROUP_SIZES:
        for objective, gradient, method, options, times in forms(size):
            update, exact = updates(method, options, times, gradient, size)
            scale = update.mean(axis=1) / exact.mean()
            cosine = (update * exact).sum(axis=1) / np.sqrt((update**2).sum(axis=1) * (exact**2).sum(axis=1))
            means = [f(column) for column in (scale, cosine) for f in (np.mean, _error)]
            rows.append((size, objective, method, *means))
    return pd.DataFrame(rows, columns=["group_size", "objective", "method", "scale", "scale_se", "cosine", "cosine_se"])


def _error(column: np.ndarray) -> float:
    return column.std(ddof=1) / N_REPLICATES**0.5


if __name__ == "__main__":
    table = gradients().to_csv(index=False, float_format="%.6g", lineterminator="\n")
    write_atomically(FOLDER / "objective_gradients.csv", table)
