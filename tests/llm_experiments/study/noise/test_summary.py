"""Ratios, levels and rank correlations of a study whose noise is made up."""

import numpy as np
import pandas as pd
import pytest

from llm_experiments.study.noise.measured import NOISE_COLUMNS
from llm_experiments.study.noise.summary import EVERYWHERE, noise_levels, noise_ratios, rank_correlations

FACTORS = {"grpo_8": 1.0, "none_1": 0.25, "dapo_8": 2.0}


def made(spread=0.0, n_seeds=2):
    """Noise by the factors at two places; `spread` of the factors between paths, in logarithms."""
    rng = np.random.default_rng(0)
    rows = []
    for base in range(3):
        for seed in range(n_seeds):
            for place in (16, 32):
                for design, factor in FACTORS.items():
                    own = place * factor * np.exp(spread * rng.standard_normal())
                    row = dict.fromkeys(NOISE_COLUMNS, 1.0) | {
                        "base": base,
                        "seed": seed,
                        "generated": place,
                        "design": design,
                        "value_error": 0.1 / factor,
                        "noise": own,
                        "signal": 2.0,
                        "spent": 3.0 if design == "dapo_8" else 1.0,
                    }
                    if design == "dapo_8":
                        row |= {name: np.nan for name in NOISE_COLUMNS if name.startswith(("mean", "cost"))}
                    rows.append(row)
    return pd.DataFrame(rows)


def test_ratios_are_those_that_the_noise_was_made_by():
    found = noise_ratios(made(), "grpo_8").set_index(["quantity", "design", "generated"])
    for place in (16, 32, EVERYWHERE):
        assert found.loc[("noise", "none_1", place), ["ratio", "low", "high"]].tolist() == pytest.approx([0.25] * 3)
        assert found.loc[("value_error", "none_1", place), "ratio"] == pytest.approx(4.0)
        assert found.loc[("noise", "grpo_8", place), "ratio"] == 1.0


def test_dropped_completions_are_paid_for():
    found = noise_ratios(made(), "grpo_8").set_index(["quantity", "design", "generated"])["ratio"]
    assert found["noise", "dapo_8", EVERYWHERE] == pytest.approx(6.0)
    assert found["push", "dapo_8", EVERYWHERE] == pytest.approx(3.0)


def test_the_jackknife_has_the_error_of_a_loop():
    noise = made(spread=0.3)
    found = noise_ratios(noise, "grpo_8").set_index(["quantity", "design", "generated"])
    row = found.loc[("noise", "none_1", 16)]

    def ratio(part):
        means = part[part["generated"] == 16].groupby("design")["noise"].mean()
        return np.log(means["none_1"] / means["grpo_8"])

    left_out = [
        ratio(noise[(noise["base"] != base) | (noise["seed"] != seed)]) for base in range(3) for seed in range(2)
    ]
    se = np.sqrt(5 / 6 * np.sum((left_out - np.mean(left_out)) ** 2))
    assert np.log(row["ratio"]) == pytest.approx(ratio(noise))
    assert np.log(row["high"] / row["ratio"]) == pytest.approx(2.570582 * se)
    assert se > 0.05


def test_a_signal_that_is_not_there_has_no_ratio():
    noise = made()
    noise.loc[noise["design"] == "none_1", "signal"] = -1.0
    found = noise_ratios(noise, "grpo_8").set_index(["quantity", "design", "generated"])["ratio"]
    assert np.isnan(found["noise", "none_1", EVERYWHERE]) and found["value_error", "none_1", 16] == pytest.approx(4.0)


def test_levels_are_means_over_paths_of_what_was_measured():
    noise = made()
    noise["cosine"] = 0.9 + 0.1 * noise["seed"]
    found = noise_levels(noise).set_index(["design", "quantity", "generated"])
    assert found.loc[("none_1", "cosine", EVERYWHERE)].tolist() == pytest.approx([0.95, 0.05 * (6 / 5) ** 0.5 / 6**0.5])
    assert ("dapo_8", "cost_solved", 16) not in found.index and ("dapo_8", "push_solved", 16) in found.index


def test_correlations_are_of_ranks_and_take_ties_at_the_end():
    ratios = pd.DataFrame(
        {"design": list("abcd"), "quantity": "noise", "generated": EVERYWHERE, "ratio": [0.1, 0.2, 0.4, 0.3]}
    )
    every = pd.concat([ratios.assign(quantity=name) for name in ("value_error", "adam_noise", "answer_noise", "push")])
    speed = pd.Series({"a": 0.2, "b": 0.3, "c": np.inf, "d": np.inf, "unknown": 0.1})
    found = rank_correlations(pd.concat([ratios, every]), speed, draws=50).set_index("quantity").loc["noise"]
    own, other = [1, 2, 4, 3], [1, 2, 3.5, 3.5]
    assert found["correlation"] == pytest.approx(np.corrcoef(own, other)[0, 1])
    assert found["designs"] == 4 and found["low"] <= found["correlation"] <= found["high"] == pytest.approx(1.0)
