"""The numbers of "What stand-ins keep": how a completion's stand-in weight goes with its norm in Adam's units.

``PYTHONPATH=. python docs/figures/stand_in_numbers.py``, in a checkout, writes ``stand_ins.csv`` beside this file in
seconds, from ``results/law/*/completions.csv.gz`` and the two tables of ``stand_in_norms.py``. tests/docs checks that
the file is what it writes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from kaestat.core.storage import write_atomically

FOLDER = Path(__file__).parent
LAW = FOLDER.parents[1] / "results/law"
KEYS = ["cell", "step", "prompt", "completion"]
N_BOOT, SEED = 2000, 0


def computed() -> pd.DataFrame:
    """``cell, step, stand_in, completions, prompts, effective``, and ``rank, within, between, noise`` with intervals.

    ``effective`` is ``(sum w)^2 / sum w^2``: as many equal weights are as even as these. ``rank`` is the rank
    correlation with the norm in Adam's units over completions, ``within`` the same of ranks among a prompt's
    completions, ``between`` of prompts' means. ``noise`` is ``sum W (R - b)^2`` with b the mean of the prompt's other
    completions, weighted by the stand-in, over that of their unweighted mean; W is the norm in Adam's units.
    Intervals, ``_low`` to ``_high``, are 95 % ones, from resampled prompts with the ranks kept.
    """
    measured = [pd.read_csv(FOLDER / f"{name}.csv") for name in ("output_layer_norms", "floor_norms")]
    rows = []
    for folder in ("smollm2", "workings", "length"):
        table = pd.read_csv(LAW / folder / "completions.csv.gz")
        for (cell, step), own in table.groupby(["cell", "step"], sort=False):
            for name in ("adam", "plain", "logits", "length"):
                rows.append({"cell": cell, "step": step, "stand_in": name} | described(own, name))
            for norms in measured:
                both = own.merge(norms, on=KEYS)
                for name in norms.columns.drop(KEYS) if len(both) else ():
                    rows.append({"cell": cell, "step": step, "stand_in": name} | described(both, name))
    return pd.DataFrame(rows)


def described(own: pd.DataFrame, name: str) -> dict[str, float]:
    """The measures of one stand-in over one set of completions."""
    prompts = [rows for _, rows in own.groupby("prompt", sort=False)]
    ranks = own[[name, "adam"]].rank()
    among = own.groupby("prompt")[[name, "adam"]].rank()
    among -= among.groupby(own["prompt"]).transform("mean")
    means = own.groupby("prompt", sort=False)[[name, "adam"]].mean().rank()
    of_prompt = own["prompt"].to_numpy()
    noise = np.array([[noise_of(rows, rows[name]), noise_of(rows, np.ones(len(rows)))] for rows in prompts])
    rng = np.random.default_rng(SEED)
    drawn = rng.multinomial(len(prompts), np.full(len(prompts), 1 / len(prompts)), size=N_BOOT)
    times = np.vstack([np.ones(len(prompts), dtype=int), drawn])
    with np.errstate(invalid="ignore"):  # prompts may be drawn whose completions all have one reward
        ratios = np.divide(*(times @ noise).T)
    found = {
        "rank": correlations(ranks.to_numpy(), of_prompt, times),
        "within": correlations(among.to_numpy(), of_prompt, times),
        "between": correlations(means.to_numpy(), means.index.to_numpy(), times),
        "noise": ratios,
    }
    effective = own[name].sum() ** 2 / (own[name].astype(float) ** 2).sum()
    result: dict[str, float] = {"completions": len(own), "prompts": len(prompts), "effective": effective}
    for label, values in found.items():
        low, high = np.nanquantile(values[1:], [0.025, 0.975]) if np.isfinite(values[0]) else (np.nan, np.nan)
        result |= {label: values[0], f"{label}_low": low, f"{label}_high": high}
    return result


def correlations(pairs: np.ndarray, of_prompt: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Pearson's correlation of the pairs, with each prompt's rows as often as each row of ``times`` says."""
    x, y = pairs.T
    columns = pd.DataFrame({"n": np.ones(len(x)), "x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y})
    sums = times @ columns.groupby(of_prompt, sort=False).sum().to_numpy()
    n, sx, sy, sxx, syy, sxy = sums.T
    spread = (sxx / n - (sx / n) ** 2) * (syy / n - (sy / n) ** 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 1e-9, (sxy / n - sx * sy / n**2) / np.sqrt(np.maximum(spread, 0)), np.nan)


def noise_of(rows: pd.DataFrame, weights: pd.Series | np.ndarray) -> float:
    """``sum W (R - b)^2`` over a prompt's completions, b the weighted mean of the others' rewards."""
    reward, own = rows["reward"].to_numpy(float), np.asarray(weights, dtype=float)
    value = ((own * reward).sum() - own * reward) / (own.sum() - own)
    return float((rows["adam"] * (reward - value) ** 2).sum())


if __name__ == "__main__":
    text = computed().to_csv(index=False, float_format="%.5g", lineterminator="\n")
    write_atomically(FOLDER / "stand_ins.csv", text)
