"""How far `resources.estimate` is from what was measured.

``python -m llm_experiments.training.trl.compared`` fits the machine's three rates to the sizes of
``results/resources/steps.csv`` that are for it, holds the estimates against all, and writes ``compared.csv`` and the
table of the page beside that file.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd

from kaestat.core.storage import write_atomically
from llm_experiments.training.shapes import ModelShape
from llm_experiments.training.trl.resources import Accelerator, Estimate, estimate

PARTS = ("generation", "passes", "optimizer")
TILES = 6  # copies that TRL's output layer makes of a piece where it is not one kernel
SMALL_GIB = 0.5  # below it the libraries' own memory counts
RESULTS = Path(__file__).parents[3] / "results" / "resources"


def predicted(row: pd.Series, machine: Accelerator) -> Estimate:
    """The estimate of a measured size.

    Parameters
    ----------
    row : Series
        Of ``steps.csv``.
    machine : Accelerator
    """
    from llm_experiments.training.trl.measured_steps import Case

    case = Case(**{field.name: row[field.name] for field in fields(Case)})
    heads, key_value = case.heads
    width = case.hidden // heads
    shape = ModelShape(
        case.hidden, case.layers, case.feed_forward, heads, key_value, width, case.vocabulary, tied=True, biases=False
    )
    return estimate(
        case.run_config(Path("model")),
        shape,
        gpus=1,
        sharded=False,
        prompt_tokens=int(row["prompt_tokens"]),
        completion_tokens=case.new_tokens,
        accelerator=machine,
    )


def fitted(measured: pd.DataFrame) -> Accelerator:
    """The machine's rates, by least squares of log seconds over all parts of the sizes that are for fitting."""
    from scipy.optimize import minimize

    fit, peak = measured[measured["use"] == "fit"], float(measured["flops"].median())

    def machine(logs: np.ndarray) -> Accelerator:
        training, generation, bandwidth = np.exp(logs)
        return Accelerator(
            flops=peak,
            bandwidth=bandwidth,
            training_share=training,
            generation_share=generation,
            bandwidth_share=1.0,
            layer_seconds=0.0,  # a CPU does not wait for Python as a GPU does
            tiles=TILES,
        )

    def loss(logs: np.ndarray) -> float:
        estimates = [(row, predicted(row, machine(logs))) for _, row in fit.iterrows()]
        return sum(
            math.log(getattr(found, f"{part}_s") / row[f"{part}_s"]) ** 2 for row, found in estimates for part in PARTS
        )

    best = minimize(loss, np.log([0.5, 0.2, 3e10]), method="Nelder-Mead", options={"fatol": 1e-8, "maxiter": 2000})
    return machine(best.x)


def compared(measured: pd.DataFrame) -> pd.DataFrame:
    """Measured and predicted, size by size.

    Returns
    -------
    DataFrame
        ``use, size`` and, measured and ``_predicted``: ``step_s``, ``{part}_s`` in seconds, ``peak_gib``.
    """
    machine, rows = fitted(measured), []
    for _, row in measured.iterrows():
        found = predicted(row, machine)
        seconds = {f"{part}_s": row[f"{part}_s"] for part in PARTS}
        seconds_predicted = {f"{part}_s_predicted": getattr(found, f"{part}_s") for part in PARTS}
        rows.append(
            {
                "use": row["use"],
                "size": size(row),
                "peak_gib": max(row[f"{part}_gib"] for part in PARTS),
                "peak_gib_predicted": found.training_gib,
                "step_s": sum(seconds.values()),
                "step_s_predicted": sum(seconds_predicted.values()),
                **seconds,
                **seconds_predicted,
            }
        )
    return pd.DataFrame(rows)


def size(row: pd.Series) -> str:
    """A measured size in words."""
    model = "SmolLM2-135M's shape" if row["layers"] == 30 else f"{row['layers']} × {row['hidden']}"
    details = "".join((", checkpoints" if row["checkpointing"] else "", "" if row["dtype"] == "float32" else ", bf16"))
    completions = f"{row['prompts'] * row['group_size']} completions of {row['new_tokens']}"
    return f"{model}, vocabulary {row['vocabulary']:,}, {completions} by {row['micro_batch']}{details}"


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Predicted over measured at sizes that were not fitted to: ``median, least, largest`` of each quantity.

    Memory counts from `SMALL_GIB` on.
    """
    held_out = frame[frame["use"] == "check"]
    rows = {}
    for name in ("peak_gib", "step_s", *(f"{part}_s" for part in PARTS)):
        ratio = held_out[f"{name}_predicted"] / held_out[name]
        if name == "peak_gib":
            ratio = ratio[held_out[name] >= SMALL_GIB]
        rows[name] = {"n": len(ratio), "median": ratio.median(), "least": ratio.min(), "largest": ratio.max()}
    return pd.DataFrame(rows).T


def table(frame: pd.DataFrame) -> str:
    """Both, in Markdown."""
    head = "| size | memory, GiB | estimate | step, s | estimate |\n|---|--:|--:|--:|--:|\n"
    lines = [
        f"| {row.size}{'' if row.use == 'check' else ' *'} | {row.peak_gib:.2f} | {row.peak_gib_predicted:.2f} "
        f"| {row.step_s:.2f} | {row.step_s_predicted:.2f} |"
        for row in frame.itertuples()
    ]
    names = {
        "peak_gib": f"memory, from {SMALL_GIB:g} GiB on",
        "step_s": "time of a step",
        "generation_s": "generation",
        "passes_s": "forward and backward passes",
        "optimizer_s": "optimizer",
    }
    found = ratios(frame)
    error = [
        f"| {names[name]} | {row['n']:.0f} | {row['median']:.2f} | {row['least']:.2f} to {row['largest']:.2f} |"
        for name, row in found.iterrows()
    ]
    return (
        head
        + "\n".join(lines)
        + "\n\n| estimate over measurement | sizes | median | range |\n|---|--:|--:|--:|\n"
        + "\n".join(error)
        + "\n"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=RESULTS, help="folder of steps.csv")
    folder = parser.parse_args().folder
    frame = compared(pd.read_csv(folder / "steps.csv"))
    text = frame.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    write_atomically(folder / "compared.csv", text)
    write_atomically(folder / "tables" / "compared.md", table(frame))
    print(table(frame))


if __name__ == "__main__":
    main()
