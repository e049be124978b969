"""What the law predicts for measured policies: each design's noise at equal completions, and the order that follows."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from kaestat.theory.baseline_law import PromptMoments, predict_completions, predict_noise
from llm_experiments.seeding import seed_of

REFERENCE = "grpo_8"
UNKNOWN = ("value", "best", "weighted_constant")  # designs that no run has: what they need is not known to it
DRAWS = 200  # of prompts
SIZES = {"completions": 32, "history": 8}  # of a step, and of the past of each prompt that counts: those of the studies
PREDICTION_COLUMNS = ["cell", "step", "metric", "design", "noise", "ratio", "low", "high", "completions", "rank"]
"""``noise`` of one completion's contribution, at the length of the true gradient; ``ratio`` to that of `REFERENCE`,
``low`` and ``high`` with 95 % of the bootstrap over prompts; ``completions`` that the design needs over those of the
reference, at the step's size; ``rank`` among the designs that can be run, 1 for the least noise."""


def moments_of(own: pd.DataFrame, products: np.ndarray, draw: np.ndarray | None = None) -> PromptMoments:
    """The law's moments from the table of prompts.

    own: `summary.PROMPT_COLUMNS` of one cell, step and metric.
    products (ndarray, shape (P, P)): Inner products of the prompts' mean gradients.
    draw: Prompts to take, with repeats; None takes each once.
    """
    rows = np.arange(len(own)) if draw is None else draw
    column = {name: own[name].to_numpy(float) for name in ("value", "right", "wrong", "right_square", "wrong_square")}
    for name in ("right", "wrong", "right_square", "wrong_square"):
        # A prompt without such an answer counts with any weight of it; that of the others keeps the numbers in range.
        known = np.isfinite(column[name])
        column[name] = np.where(known, column[name], column[name][known].mean() if known.any() else 1.0)
    apart = rows[:, None] != rows  # a prompt that is drawn twice does not meet itself
    common = float(products[np.ix_(rows, rows)][apart].mean())
    return PromptMoments(
        **{name: each[rows] for name, each in column.items()}, signal=own["signal"].to_numpy(float)[rows], common=common
    )


def predictions(cell: str, prompts: pd.DataFrame, means: Mapping[tuple[int, str], np.ndarray]) -> pd.DataFrame:
    """Predicted noise of all designs at each step of a cell, in each metric that has inner products.

    prompts: The cell's rows, columns `summary.PROMPT_COLUMNS`.
    means: mapping of (step, metric) to ndarray, shape (P, P).
    Returns: Columns `PREDICTION_COLUMNS`, by rising noise within each step and metric. Empty where all answers are
        right or all are wrong: then there is nothing to predict.
    """
    frames = []
    for (step, metric), own in prompts.groupby(["step", "metric"], sort=False):
        products = means.get((int(step), str(metric)))
        if products is None or not 0 < own["value"].mean() < 1:
            continue
        found = predict_noise(moments_of(own, products), **SIZES)
        by_name = {each.design: each for each in found}
        reference = by_name[REFERENCE]
        rng = np.random.default_rng(seed_of(0, "law prediction", cell, int(step), str(metric)))
        drawn = [_ratios(own, products, rng.integers(len(own), size=len(own))) for _ in range(DRAWS)]
        spread = pd.DataFrame([each for each in drawn if each]).quantile([0.025, 0.975])
        rank = 0
        for each in found:
            possible = each.design not in UNKNOWN and np.isfinite(each.relative_noise)
            rank += possible
            frames.append(
                (
                    cell,
                    step,
                    metric,
                    each.design,
                    each.relative_noise,
                    each.relative_noise / reference.relative_noise,
                    spread.loc[0.025, each.design],
                    spread.loc[0.975, each.design],
                    predict_completions(each, reference, completions=SIZES["completions"])
                    if reference.gain > 0
                    else np.nan,
                    rank if possible else np.nan,
                )
            )
    return pd.DataFrame(frames, columns=PREDICTION_COLUMNS)


def _ratios(own: pd.DataFrame, products: np.ndarray, draw: np.ndarray) -> dict[str, float]:
    if len(set(draw.tolist())) < 2 or not 0 < own["value"].to_numpy()[draw].mean() < 1:
        return {}  # nothing to predict
    moments = moments_of(own, products, draw)
    found = {each.design: each.relative_noise for each in predict_noise(moments, **SIZES)}
    return {name: noise / found[REFERENCE] for name, noise in found.items()}
