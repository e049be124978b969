"""Speeds and differences of made curves whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from llm_experiments.study import contrasts
from llm_experiments.study.contrasts import ENDPOINTS, POOLED, differences, endpoints, speed
from llm_experiments.tasks.cells import KINDS

BUDGET, BASES, SEEDS = 1000, (0, 1, 2), range(6)
AT = np.arange(0, BUDGET + 1, 100)


def made(designs, *, noise=0.0, seed=0):
    """Curves that rise linearly, each design at its own speed, with noise of runs and a level for each base."""
    rng = np.random.default_rng(seed)
    frames = []
    for base in BASES:
        for run in SEEDS:
            luck = noise * rng.standard_normal()
            for design, rate in designs.items():
                height = 0.2 + 0.05 * base + 0.4 * rate * AT / BUDGET + luck + noise * rng.standard_normal()
                frames.append(
                    pd.DataFrame(
                        {"design": design, "base": base, "seed": run, "generated": AT, "matched": height}
                        | {name: height for name in ("greedy", "sampled", "entropy", *KINDS)}
                        | {"passed": np.where(AT % BUDGET == 0, height, np.nan)}
                    )
                )
    return pd.concat(frames, ignore_index=True)


def test_twice_as_fast_takes_half_of_the_completions():
    table = speed(made({"slow": 1.0, "fast": 2.0}), BUDGET, "slow").set_index(["design", "base"])
    assert table.loc[("fast", POOLED), "ratio"] == pytest.approx(0.5)
    assert table.loc[("slow", POOLED), "ratio"] == pytest.approx(1.0)
    assert table.loc["fast", "median"].tolist() == pytest.approx([0.5] * 4)
    assert (table.loc["fast", "reached"] == 1).all()


def test_what_does_not_arrive_is_censored_and_not_dropped():
    table = speed(made({"slow": 1.0, "slower": 0.5}), BUDGET, "slow").set_index(["design", "base"])
    assert np.isinf(table.loc[("slower", POOLED), ["ratio", "low", "high"]].astype(float)).all()
    assert table.loc[("slower", POOLED), "reached"] == 0 and np.isnan(table.loc[("slower", POOLED), "median"])


def test_intervals_of_the_ratio_hold_the_truth():
    table = speed(made({"slow": 1.0, "fast": 2.0}, noise=0.02), BUDGET, "slow").set_index(["design", "base"])
    low, high = table.loc[("fast", POOLED), ["low", "high"]]
    assert low < 0.5 < high < 0.6


def test_differences_are_paired_run_by_run():
    """Luck of a seed that all designs share leaves no error."""
    curves = made({"slow": 1.0, "fast": 2.0})
    table = differences(curves, BUDGET, "slow").set_index(["design", "endpoint", "base"])
    assert table.loc[("fast", "matched", POOLED), "difference"] == pytest.approx(0.4)
    assert table.loc[("fast", "area", POOLED), "difference"] == pytest.approx(0.2)
    assert table.loc[("fast", "matched", POOLED), "mean"] == pytest.approx(0.2 + 0.05 + 0.8)
    assert table.loc[("slow", "matched", POOLED), ["difference", "se"]].isna().all()


@pytest.mark.slow
def test_intervals_of_differences_cover_as_they_should(monkeypatch):
    """Of 95 % intervals of a difference that is there, 100 studies; one endpoint, since all are made alike."""
    monkeypatch.setattr(contrasts, "ENDPOINTS", ("matched",))
    hits = []
    for seed in range(100):
        table = differences(made({"slow": 1.0, "fast": 1.2}, noise=0.05, seed=seed), BUDGET, "slow")
        row = table.query("design == 'fast' and endpoint == 'matched' and base == 'all'").iloc[0]
        hits.append(row["low"] <= 0.08 <= row["high"])
    assert 0.89 <= np.mean(hits) <= 0.99


def test_the_interval_of_few_runs_is_that_of_a_t_test():
    curves = made({"slow": 1.0, "fast": 1.2}, noise=0.05)
    curves = curves[(curves["base"] == 0) & (curves["seed"] < 3)]
    rows = differences(curves, BUDGET, "slow").query("design == 'fast' and endpoint == 'matched'")
    heights = curves[curves["generated"] == BUDGET].pivot_table("matched", "seed", "design")
    known = ttest_1samp(heights["fast"] - heights["slow"], 0).confidence_interval(0.95)
    for row in rows.itertuples():  # the base model's, and that of all
        assert (row.low, row.high) == pytest.approx(tuple(known))


def test_holm_counts_the_designs(monkeypatch):
    """And not the endpoints, of which two are enough to see that."""
    monkeypatch.setattr(contrasts, "ENDPOINTS", ("area", "matched"))
    table = differences(made({"slow": 1.0, "a": 1.1, "b": 1.2, "c": 1.0}, noise=0.05), BUDGET, "slow")
    pooled = table.query("endpoint == 'matched' and base == 'all' and design != 'slow'")
    smallest = pooled["p"].min()
    assert pooled["p_holm"].min() == pytest.approx(3 * smallest)
    assert (pooled["p_holm"] >= pooled["p"]).all()


def test_every_run_has_every_endpoint():
    table = endpoints(made({"slow": 1.0}), BUDGET)
    assert list(table.columns) == list(ENDPOINTS)
    assert table.index.names == ["design", "base", "seed"] and len(table) == 18 and table.notna().all(axis=None)
