"""All finished runs of an experiment as a few small tables: what figures and comparisons are made from."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

from kaestat.core.result_tables import write_table
from kaestat.core.storage import write_atomically
from llm_experiments.training.identity import IDENTITY
from llm_experiments.training.tables import CURVE, PROVENANCE, TEST

KEYS = ["method", "weights", "scale", "reuse", "seed"]
VARIANT = KEYS[:-1]
BINS = 40  # of a training curve
LAST_TESTS = 3  # whose mean stands for the end of a run
TESTED = ("greedy", "accuracy", "pass_at_samples")
OUTCOMES = (*TESTED, "average", "gain")


def collect(folder: Path, results: Path) -> list[Path]:
    """Write the tables of the finished runs of an experiment.

    folder: ``runs/training/NAME``.
    results: ``results/training/NAME``. Gets ``curves.csv.gz`` (training, averaged over bins of steps) and
        ``provenance.json``; of tested runs ``tests.csv``, ``final.csv`` (end of training by variant) and
        ``differences.csv`` (paired by seed).
    Returns: The folders of the runs.
    """
    done = sorted(path.parent for path in folder.glob(f"*/{CURVE}"))
    configs = [json.loads((run / IDENTITY).read_text()) for run in done]
    frames = {"curves": _join(configs, [binned(pd.read_csv(run / CURVE)) for run in done])}
    if all((run / TEST).exists() for run in done):
        tests = _join(configs, [pd.read_csv(run / TEST) for run in done])
        ends = run_ends(tests)
        frames |= {"tests": tests, "final": final(ends), "differences": differences(ends)}
    for name, frame in frames.items():
        write_table(results / f"{name}.csv{'.gz' if name == 'curves' else ''}", frame, digits=5)
    origin = {run.name: json.loads((run / PROVENANCE).read_text()) for run in done}
    write_atomically(results / PROVENANCE, json.dumps(_shared(origin), indent=1))
    return done


def binned(curve: pd.DataFrame) -> pd.DataFrame:
    """A training curve averaged over some forty bins of steps; ``step`` is the first of each."""
    width = max(1, len(curve) // BINS)
    columns = [name for name in curve.columns if name not in ("step", "se")]
    return curve.groupby(curve["step"] // width * width)[columns].mean().reset_index()


def run_ends(tests: pd.DataFrame) -> pd.DataFrame:
    """The end of each run, the mean of its last three tests after the first one, its average, and what it gained.

    Returns: ``method, weights, scale, reuse, seed, greedy, accuracy, pass_at_samples``; ``average``, the accuracy over
        all tests after the first, which tells fast from slow learners; and ``gain``, the accuracy at the end less that
        of the first test.
    """
    by_run = tests.sort_values("step", kind="stable").groupby(KEYS, sort=False)
    ends = by_run[list(TESTED)].agg(lambda values: values.iloc[1:].iloc[-LAST_TESTS:].mean())
    ends["average"] = by_run["accuracy"].agg(lambda values: values.iloc[1:].mean())
    ends["gain"] = ends["accuracy"] - by_run["accuracy"].first()
    return ends.reset_index()


def final(ends: pd.DataFrame) -> pd.DataFrame:
    """Mean over seeds of every variant's end, with its standard error over seeds.

    Returns: ``method, weights, scale, reuse, outcome, mean, se, n_seeds``.
    """
    rows = []
    for variant, part in ends.groupby(VARIANT, sort=False):
        for outcome in OUTCOMES:
            rows.append((*variant, outcome, part[outcome].mean(), part[outcome].sem(), len(part)))
    return pd.DataFrame(rows, columns=[*VARIANT, "outcome", "mean", "se", "n_seeds"])


def differences(ends: pd.DataFrame) -> pd.DataFrame:
    """Each variant's end less that of each other one, paired by seed: same start, same training problems.

    Returns: ``method, weights, scale, reuse, reference, outcome, difference, se, ci_low, ci_high, n_seeds``; the
        interval is Student's, and NaN with a single seed. ``reference`` is written as by `name_of`.
    """
    by_variant = {variant: part.set_index("seed") for variant, part in ends.groupby(VARIANT, sort=False)}
    rows = []
    for variant, part in by_variant.items():
        for other, reference in by_variant.items():
            if variant == other:
                continue
            for outcome in OUTCOMES:
                paired = (part[outcome] - reference[outcome]).dropna()
                mean, se = paired.mean(), paired.sem()
                reach = student.ppf(0.975, len(paired) - 1) * se if len(paired) > 1 else np.nan
                rows.append((*variant, name_of(*other), outcome, mean, se, mean - reach, mean + reach, len(paired)))
    columns = [*VARIANT, "reference", "outcome", "difference", "se", "ci_low", "ci_high", "n_seeds"]
    return pd.DataFrame(rows, columns=columns)


def name_of(method: str, weights: str, scale: str, reuse: int) -> str:
    """A variant in one word.

    Examples
    --------
    >>> name_of("kae:bandwidth=80", "none", "own", 1), name_of("kae", "length", "group_std", 10)
    ('kae:bandwidth=80', 'kae@length/group_std-J10')
    """
    weighted = method if weights == "none" else f"{method}@{weights}"
    return weighted + ("" if scale == "own" else f"/{scale}") + ("" if reuse == 1 else f"-J{reuse}")


def _join(configs: list[dict], frames: list[pd.DataFrame]) -> pd.DataFrame:
    parts = []
    for config, frame in zip(configs, frames, strict=True):
        variant = (config["method"], config["weights"], config["scale"] or "own", config["updates"]["reuse"])
        values = (*variant, config["seed"])
        for position, (key, value) in enumerate(zip(KEYS, values, strict=True)):
            frame.insert(position, key, value)
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def _shared(origin: dict[str, dict]) -> dict:
    """One configuration, versions and machine for all; times and commits by run."""
    first = next(iter(origin.values()))
    runs = {name: {key: each[key] for key in ("time", "commit")} for name, each in origin.items()}
    plain = {key: value for key, value in first["config"].items() if key not in ("method", "weights", "scale", "seed")}
    return {**{key: first[key] for key in ("python", "packages", "machine")}, "config": plain, "runs": runs}
