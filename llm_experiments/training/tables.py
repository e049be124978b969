"""Tables of a run: its training curve, its tests, and the risk of its baseline from its own rewards."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from kaestat.integrations.shared.checked_rows import copies
from llm_experiments.training.identity import IDENTITY
from llm_experiments.training.trl.testing import summarise

LOG, MODEL, PROVENANCE = "log_history.json", "model", "provenance.json"
CURVE, TEST = "curve.csv", "test.csv"

# Our metric, taken when a step's completions were scored -> column of the curve.
SCORED = {
    "completions/mean_length": "mean_length",
    "baseline/error": "value_error",
    "baseline/squared_error": "squared_error",
    "baseline/nonzero_advantages": "nonzero_advantages",
    "baseline/effective_history": "effective_history",
}
MEASURED = ("score_norm", "completion_length")  # keys of a record that become columns of the rewards
# TRL's metric of an optimizer update -> column, averaged over the updates of a step.
UPDATED = {"entropy": "entropy", "grad_norm": "gradient_norm"}


def run_tables(folder: Path, updates_per_step: int) -> dict[str, pd.DataFrame]:
    """``curve``, ``rewards`` and ``test`` of a finished run's folder.

    updates_per_step: Optimizer updates in each training step.
    Returns: ``curve``: ``step, mean_reward, se`` (over prompts), ``ungraded`` (completions without a verdict; the mean
        leaves them out), ``advantage_std, seconds`` and what `SCORED` and `UPDATED` name, where it was logged: a run on
        verl has the first four. ``rewards``: see `reward_frame`; ``kaestat analyze`` reads it. ``test``: ``step`` and
        the columns of `trl.testing.summarise`; absent without tests.
    """
    records = [json.loads(path.read_text()) for path in sorted((folder / "records").glob("*.json"))]
    curve = pd.DataFrame([_point(record) for record in records])
    frames = {"curve": _with_updates(curve, folder / LOG, updates_per_step)}
    frames["rewards"] = reward_frame(folder)
    tests = [json.loads(path.read_text()) for path in sorted((folder / "tests").glob("*.json"))]
    if tests:
        frames["test"] = pd.DataFrame([{"step": each["step"], **summarise(each)} for each in tests])
    return frames


def reward_frame(folder: Path) -> pd.DataFrame:
    """``prompt, step, reward, group`` of every graded completion, and those of `MEASURED` that all steps have."""
    records = [json.loads(path.read_text()) for path in sorted((folder / "records").glob("*.json"))]
    group_size = json.loads((folder / IDENTITY).read_text())["updates"]["group_size"]
    measured = [column for column in MEASURED if all(column in record for record in records)]
    parts = []
    for record in records:
        n = len(record["ids"])
        columns = {"prompt": record["ids"], "step": record["step"], "reward": np.array(record["rewards"], dtype=float)}
        columns["group"] = copies(record["ids"], [row // group_size for row in range(n)], [True] * n)
        parts.append(pd.DataFrame(columns | {column: record[column] for column in measured}))
    return pd.concat(parts, ignore_index=True).dropna(subset="reward", ignore_index=True)


def _with_updates(curve: pd.DataFrame, path: Path, updates_per_step: int) -> pd.DataFrame:
    """The curve with what TRL logged of each step's updates; as it is, where there is no such log."""
    if not path.exists():
        return curve
    log = pd.DataFrame([line for line in json.loads(path.read_text()) if "loss" in line])
    named = [name for name in UPDATED if name in log]
    by_step = log.groupby((log["step"] - 1) // updates_per_step)[named].mean().rename(columns=UPDATED)
    return curve.merge(by_step.rename_axis("step").reset_index(), on="step", how="left")


def _point(record: dict) -> dict[str, float]:
    given = pd.Series(record["rewards"], dtype=float)
    rewards = given.groupby(record["ids"]).mean().dropna()
    metrics = record.get("metrics", {})
    named = {column: metrics[name] for name, column in SCORED.items() if name in metrics}
    return {
        "step": record["step"],
        "mean_reward": float(given.mean()),
        "se": float(rewards.sem()),
        "ungraded": int(given.isna().sum()),
        **{name: record[name] for name in ("advantage_std",) if name in record},
        **named,
        **{name: record[name] for name in ("seconds",) if name in record},
    }
