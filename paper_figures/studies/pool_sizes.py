"""The two pool sizes that the paper does not tell, fitted by likelihood to its Tables 1 and 2, with cells held out.

Predictions are closed forms. The simulations give the standard deviations of one run, which the likelihood needs.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from paper_figures.shared import paper
from paper_figures.shared.agreement import Fit, fit, losses, p_value
from paper_figures.shared.comparison import CELL
from paper_figures.shared.tidy import by_measure
from simulations.bandits.calibration import INPUTS
from simulations.bandits.value_diagnostic import ValueDiagnostic
from simulations.studies.table2 import DIAGNOSTIC, PROMPTS, RIVALS, expected_reduction

SIZES = np.unique(np.rint(np.geomspace(8, 4096, 300)))
BANDWIDTHS = (5.0, 10.0)
RIVAL_SETS = {"grpo": ("grpo",), "reinforce++": ("reinforce++",), "both": RIVALS}
COLUMNS = ["fitted_to", "size", "low", "high", "chi2", "df", "p", "held_out_chi2", "held_out_df", "held_out_p"]
ORACLE_CAPTION = (
    "The oracle pool, fitted by likelihood to KAE's row with a 95 % interval; the cells held out are those of the "
    "other dataset. At bandwidth 5 four past steps would remain by truncation."
)
REFERENCE_CAPTION = (
    "The reference pool, fitted by likelihood to the percentage rows with a 95 % interval; the cells held out are "
    "those of the other dataset. Prompts: whether Tables 1 and 2 share theirs; the paper is silent."
)


def oracle_pool(summary: pd.DataFrame) -> pd.DataFrame:
    """N_oracle from KAE's row of Table 1.

    The other two rows give each cell's reward variance and value variance, and KAE's reduction against GRPO is the one
    number left; it depends on N_oracle alone. Bandwidth 5 is here because the paper says that four past steps remain
    "due to truncation", which is where the triangular kernel of that bandwidth ends.

    summary: Of the study ``table1``.
    Returns: ``bandwidth``, then `COLUMNS`: ``fitted_to`` is "all", "math" or "gsm8k", and the cells held out are the
        others.
    """
    loss = {bandwidth: _oracle_loss(summary, bandwidth) for bandwidth in BANDWIDTHS}
    return pd.concat([_table(part, 1).assign(bandwidth=h) for h, part in loss.items()])[["bandwidth", *COLUMNS]]


def oracle_fit(summary: pd.DataFrame) -> Fit:
    """N_oracle from all cells, at the paper's bandwidth."""
    return fit(_oracle_loss(summary, ValueDiagnostic().bandwidth).sum(axis=1), SIZES, len(INPUTS))


def reference_pool(summary: pd.DataFrame) -> pd.DataFrame:
    """N_ref from the percentage rows of Table 2.

    summary: Of the study ``table2``.
    Returns: ``prompts``, whether Table 1's are "separate" or "shared"; ``versus``, "grpo", "reinforce++" or "both";
        then `COLUMNS`.
    """
    parts = [
        _table(_reference_loss(summary, names, prompts), len(names)).assign(prompts=prompts, versus=versus)
        for prompts in PROMPTS
        for versus, names in RIVAL_SETS.items()
    ]
    return pd.concat(parts)[["prompts", "versus", *COLUMNS]]


def reference_fit(summary: pd.DataFrame, versus: str = "both", prompts: str = "separate") -> Fit:
    """N_ref from all cells: from one percentage row, or from both rows together."""
    names = RIVAL_SETS[versus]
    return fit(_reference_loss(summary, names, prompts).sum(axis=1), SIZES, len(INPUTS) * len(names))


def _oracle_loss(summary: pd.DataFrame, bandwidth: float) -> np.ndarray:
    """Shape (sizes, cells)."""
    ours = by_measure(summary, [*CELL, "method"], ("reduction_mse",)).query("method == 'grpo'")
    ours = ours.set_index(CELL).loc[list(INPUTS)]
    stated = paper.reductions(1).query("versus == 'grpo'").set_index(CELL)["reduction_pct"].loc[list(INPUTS)]
    predicted = []  # the same for every population
    for n in SIZES:
        diagnostic = replace(ValueDiagnostic(), n_oracle=int(n), bandwidth=bandwidth)
        mse = {name: diagnostic.expected_mse(weight, 1.0, 0.0) for name, weight in diagnostic.weights().items()}
        predicted.append(100 * (1 - mse["kae"] / mse["grpo"]))
    residual = stated.to_numpy() - np.array(predicted)[:, None]
    variance = (ours["reduction_mse_mcse"] ** 2 * ours["n"]).to_numpy()
    return losses(residual[..., None], variance[:, None, None])


def _reference_loss(summary: pd.DataFrame, versus: tuple[str, ...], prompts: str) -> np.ndarray:
    """Shape (sizes, cells)."""
    key = [*CELL, "method"]
    sd, correlation = (
        by_measure(summary, key, (measure,)).set_index(key)[measure]
        for measure in (f"residual_sd_{prompts}", f"residual_correlation_{prompts}")
    )
    correlation = correlation.droplevel("method").fillna(0.0)
    stated = paper.reductions(2).set_index([*CELL, "versus"])["reduction_pct"]
    sized = [replace(DIAGNOSTIC, n_reference=int(n)) for n in SIZES]
    residual = np.array([[[stated[(*cell, v)] for v in versus] for cell in INPUTS]]) - np.array(
        [[[expected_reduction(each, *INPUTS[cell], v) for v in versus] for cell in INPUTS] for each in sized]
    )
    covariance = np.empty((len(INPUTS), len(versus), len(versus)))
    for k, cell in enumerate(INPUTS):
        spread = np.array([sd[(*cell, v)] for v in versus])
        together = np.where(np.eye(len(versus), dtype=bool), 1.0, correlation[cell])
        covariance[k] = together * np.outer(spread, spread)
    return losses(residual, covariance)


def _table(loss: np.ndarray, numbers: int) -> pd.DataFrame:
    """Fits to all cells and to each dataset's; ``numbers`` is how many each cell has.

    The other cells are judged at the size fitted to a part, whose own error counts as well: chi-squares subtract.
    """
    dataset = np.array([cell[0] for cell in INPUTS])
    whole = fit(loss.sum(axis=1), SIZES, numbers * len(dataset))
    rows = []
    for name in ("all", *paper.DATASETS):
        chosen = (dataset == name) | (name == "all")
        part = fit(loss[:, chosen].sum(axis=1), SIZES, numbers * int(chosen.sum()))
        chi2, df = whole.chi2 - part.chi2, whole.df - part.df
        rest = (np.nan, np.nan, np.nan) if name == "all" else (chi2, df, p_value(chi2, df))
        rows.append((name, part.size, part.low, part.high, part.chi2, part.df, part.p, *rest))
    return pd.DataFrame(rows, columns=COLUMNS)
