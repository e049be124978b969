"""Tables of the law's inputs: one row for each prompt and metric, and a summary with errors over prompts."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from llm_experiments.seeding import seed_of

from .moments import noise_at_value, squared_gradient

METRICS = ("plain", "adam", "logits")
PROMPT_COLUMNS = [
    "cell",
    "step",
    "metric",
    "prompt",
    "n",
    "value",
    "right",
    "wrong",
    "right_square",
    "wrong_square",
    "noise",
    "signal",
]
"""Of each prompt: completions, mean reward, mean and mean square of the squared norm of right and of wrong completions,
``E[W (R - V)^2]`` and ``||g_x||^2`` without bias (the latter is empty on the logits, where prompts' scores do not
meet)."""
SUMMARY_COLUMNS = ["cell", "step", "metric", "quantity", "value", "se", "low", "high", "n_prompts"]
QUANTITIES = {
    "p": "mean reward",
    "length": "mean tokens",
    "rho": "weight of wrong over right answers within prompts: sum of p (1 - p) E[W | wrong] over that of right ones",
    "rho_pooled": "mean weight of all wrong answers over that of all right ones",
    "within": "E[W (R - V)^2] - E ||g_x||^2",
    "prompt_signal": "E ||g_x||^2",
    "total_signal": "||g||^2",
    "between": "E ||g_x||^2 - ||g||^2",
    "between_within": "between over within",
    "noise_scale": "completions at which a step's noise is its signal: (within + between) over ||g||^2",
}
LEVEL = 0.95


def prompt_table(completions: pd.DataFrame, products: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """One row for each metric and prompt, columns `PROMPT_COLUMNS`.

    completions: Of one cell and step, columns `measurement.COMPLETION_COLUMNS`.
    products (mapping of str to ndarray, shape (P, 3)): Of the metrics in which there are any; see
        `prompt_scores.MetricScores`.
    """
    rows = []
    for metric in METRICS:
        for place, (prompt, own) in enumerate(completions.groupby("prompt", sort=False)):
            rewards, norms = own["reward"].to_numpy(float), own[metric].to_numpy(float)
            right = own["reward"].to_numpy() == 1
            signal = squared_gradient(rewards, norms, products[metric][place]) if metric in products else np.nan
            rows.append(
                {
                    "cell": own["cell"].iloc[0],
                    "step": own["step"].iloc[0],
                    "metric": metric,
                    "prompt": prompt,
                    "n": len(own),
                    "value": rewards.mean(),
                    "right": _mean(norms[right]),
                    "wrong": _mean(norms[~right]),
                    "right_square": _mean(norms[right] ** 2),
                    "wrong_square": _mean(norms[~right] ** 2),
                    "noise": noise_at_value(rewards, norms),
                    "signal": signal,
                }
            )
    return pd.DataFrame(rows, columns=PROMPT_COLUMNS)


def summary_table(
    cell: str,
    completions: pd.DataFrame,
    prompts: pd.DataFrame,
    means: Mapping[tuple[int, str], np.ndarray],
    *,
    n_boot: int,
) -> pd.DataFrame:
    """All of `QUANTITIES` at each step in each metric, with errors by the bootstrap over prompts.

    completions, prompts: The cell's tables.
    means (mapping of (step, metric) to ndarray, shape (P, P)): Inner products of the prompts' unbiased mean gradients;
        those of a prompt with itself are not used.
    Returns: Columns `SUMMARY_COLUMNS`: ``low`` and ``high`` hold 95 % of the draws.
    """
    frames = []
    for (step, metric), own in prompts.groupby(["step", "metric"], sort=False):
        of_step = completions[completions["step"] == step]
        lengths = of_step.groupby("prompt", sort=False)["length"].mean().to_numpy()
        frames.append(_summary(cell, int(step), str(metric), own, lengths, means.get((int(step), str(metric))), n_boot))
    return pd.concat(frames, ignore_index=True)


def _summary(
    cell: str, step: int, metric: str, own: pd.DataFrame, lengths: np.ndarray, products: np.ndarray | None, n_boot: int
) -> pd.DataFrame:
    n = len(own)
    of = _quantities(own, lengths, products)
    rng = np.random.default_rng(seed_of(0, "law", cell, step, metric))
    draws = rng.multinomial(n, np.full(n, 1 / n), size=n_boot).astype(float)
    rows = []
    for quantity in QUANTITIES:
        if quantity not in of:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            value = float(of[quantity](np.ones((1, n)))[0])
            drawn = of[quantity](draws)
        drawn = drawn[np.isfinite(drawn)]
        found = len(drawn) > 1
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if found else (np.nan, np.nan)
        rows.append((cell, step, metric, quantity, value, drawn.std(ddof=1) if found else np.nan, low, high, n))
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


def _quantities(
    own: pd.DataFrame, lengths: np.ndarray, products: np.ndarray | None
) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Each quantity as a function of how often each prompt counts, shape (draws, P), giving shape (draws,)."""
    column = {name: own[name].to_numpy(float) for name in PROMPT_COLUMNS[4:]}
    n, p = column["n"], column["value"]
    k = np.round(n * p)
    m = n - k
    right, wrong = np.nan_to_num(column["right"]), np.nan_to_num(column["wrong"])
    mass = np.where((k > 0) & (m > 0), k * m / (n * (n - 1)), 0.0)  # unbiased for p (1 - p)

    def ratio(top: np.ndarray, bottom: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return lambda w: (w @ top) / (w @ bottom)

    found = {
        "p": ratio(p, np.ones_like(p)),
        "length": ratio(lengths, np.ones_like(p)),
        "rho": ratio(mass * wrong, mass * right),
        "rho_pooled": lambda w: (w @ (m * wrong)) / (w @ m) / ((w @ (k * right)) / (w @ k)),
    }
    if products is not None:
        noise, signal = column["noise"], column["signal"]
        others = products - np.diag(np.diag(products))

        def mean_of(each: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
            return lambda w: (w @ each) / w.sum(1)

        def total(w: np.ndarray) -> np.ndarray:  # a prompt that is drawn twice does not meet itself
            return ((w @ others) * w).sum(1) / (w.sum(1) ** 2 - (w**2).sum(1))

        def between(w: np.ndarray) -> np.ndarray:
            return mean_of(signal)(w) - total(w)

        within = mean_of(noise - signal)
        found |= {
            "within": within,
            "prompt_signal": mean_of(signal),
            "total_signal": total,
            "between": between,
            "between_within": lambda w: between(w) / within(w),
            "noise_scale": lambda w: (within(w) + between(w)) / total(w),
        }
    return found


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")
