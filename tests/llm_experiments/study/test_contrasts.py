"""Speeds and differences of made curves whose truth is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

from llm_experiments.study import contrasts
from llm_experiments.study.contrasts import BEST_GROUP, FRACTIONS, POOLED, best_groups, differences, speed
from llm_experiments.tasks.cells import KINDS
from llm_experiments.training.stacked.config import Design

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


def against(design):
    """A reference that is the same on every base model."""
    return dict.fromkeys(BASES, design)


def pooled_speed(curves, reference):
    table = speed(curves, BUDGET, against(reference))
    return table.query("base == 'all'").set_index(["design", "fraction"])


def test_twice_as_fast_takes_half_of_the_completions_at_every_part_of_the_budget():
    table = pooled_speed(made({"slow": 1.0, "fast": 2.0}), "slow")
    for fraction in FRACTIONS:
        assert table.loc[("fast", fraction), "ratio"] == pytest.approx(0.5, abs=0.01)
        assert table.loc[("slow", fraction), "ratio"] == pytest.approx(1.0, abs=0.01)


def test_each_base_model_is_held_against_its_own_best_group_design():
    curves = made({"slow": 1.0, "fast": 2.0})
    table = speed(curves, BUDGET, {0: "slow", 1: "fast", 2: "fast"}).set_index(["design", "fraction", "base"])
    assert table.loc["fast", 1.0].loc[[0, 1, 2], "ratio"].tolist() == pytest.approx([0.5, 1, 1])
    assert table.loc[("fast", 1.0, POOLED), "ratio"] == pytest.approx(0.5 ** (1 / 3))


def test_what_does_not_arrive_is_censored_and_not_dropped():
    table = pooled_speed(made({"slow": 1.0, "slower": 0.5}), "slow")
    assert np.isinf(table.loc[("slower", 1.0), ["ratio", "high"]].astype(float)).all()
    assert table.loc[("slower", 1.0), "low"] == pytest.approx(1.0)  # the whole budget, at least
    assert table.loc[("slower", 0.5), "ratio"] == pytest.approx(2.0, abs=0.02)


def test_the_interval_of_the_ratio_is_students_over_base_models():
    curves = made({"slow": 1.0, "fast": 2.0}, noise=0.02)
    table = speed(curves, BUDGET, against("slow")).query("design == 'fast' and fraction == 1")
    each = np.log(table.query("base != 'all'")["ratio"].to_numpy(float))
    known = np.exp(ttest_1samp(each, 0).confidence_interval(0.95))
    row = table.query("base == 'all'").iloc[0]
    assert (row["low"], row["high"]) == pytest.approx(tuple(known))
    assert row["low"] < 0.5 < row["high"]


def test_differences_are_paired_run_by_run():
    """Luck of a seed that all designs share leaves no error."""
    curves = made({"slow": 1.0, "fast": 2.0})
    table = differences(curves, BUDGET, "slow").set_index(["design", "endpoint", "base"])
    assert table.loc[("fast", "matched", POOLED), "difference"] == pytest.approx(0.4)
    assert table.loc[("fast", "area", POOLED), "difference"] == pytest.approx(0.2)
    assert table.loc[("fast", "matched", POOLED), "mean"] == pytest.approx(0.2 + 0.05 + 0.8)
    assert table.loc[("slow", "matched", POOLED), ["difference", "se"]].isna().all()


def test_the_best_group_design_of_each_base_model_is_one_reference():
    curves = made({"slow": 1.0, "fast": 2.0})
    table = differences(curves, BUDGET, {0: "slow", 1: "fast", 2: "fast"}).set_index(["design", "endpoint", "base"])
    assert set(table["reference"]) == {BEST_GROUP}
    assert table.loc[("fast", "matched", 0), "difference"] == pytest.approx(0.4)
    assert np.isnan(table.loc[("fast", "matched", 1), "difference"])
    assert table.loc[("fast", "matched", POOLED), "difference"] == pytest.approx(0.4 / 3)


def test_the_best_group_design_is_chosen_among_those_with_groups():
    rates = pd.DataFrame(
        [
            (0, "one", 1e-3, 0.9, True),
            (0, "four", 1e-3, 0.7, True),
            (0, "eight", 1e-3, 0.8, False),
            (0, "eight", 2e-3, 0.6, True),
            (1, "four", 1e-3, 0.5, True),
            (1, "eight", 1e-3, 0.6, True),
        ],
        columns=["base", "design", "rate", "area", "chosen"],
    )
    sizes = {"one": 1, "four": 4, "eight": 8}
    designs = {name: Design(method="grpo", group_size=size) for name, size in sizes.items()}
    assert best_groups(rates, designs) == {0: "four", 1: "eight"}
    with pytest.raises(ValueError, match="more than one completion"):
        best_groups(rates.query("design == 'one'"), designs)


def test_the_interval_over_base_models_is_that_of_a_t_test_of_their_means():
    curves = made({"slow": 1.0, "fast": 1.2}, noise=0.05)
    rows = differences(curves, BUDGET, "slow").query("design == 'fast' and endpoint == 'matched'").set_index("base")
    heights = curves[curves["generated"] == BUDGET].pivot_table("matched", ["base", "seed"], "design")
    gaps = (heights["fast"] - heights["slow"]).groupby("base")
    known = ttest_1samp(gaps.mean(), 0)
    assert tuple(rows.loc[POOLED, ["low", "high"]]) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert rows.loc[POOLED, "p"] == pytest.approx(known.pvalue)
    assert rows.loc[1, "se"] == pytest.approx(gaps.sem()[1]) and np.isnan(rows.loc[1, "p"])


def test_holm_counts_the_designs(monkeypatch):
    """And not the endpoints, of which two are enough to see that."""
    monkeypatch.setattr(contrasts, "ENDPOINTS", ("area", "matched"))
    table = differences(made({"slow": 1.0, "a": 1.1, "b": 1.2, "c": 1.0}, noise=0.05), BUDGET, "slow")
    pooled = table.query("endpoint == 'matched' and base == 'all' and design != 'slow'")
    smallest = pooled["p"].min()
    assert pooled["p_holm"].min() == pytest.approx(3 * smallest)
    assert (pooled["p_holm"] >= pooled["p"]).all()
