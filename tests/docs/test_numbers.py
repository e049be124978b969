"""The numbers and figures of "Choose a baseline" are what the committed script measures; worked examples are short."""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kaestat import read_log
from simulations import studies
from tests.helpers.tiers import slow_after

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "figures"
RESULTS = DOCS.parent / "results"
NORMS_AND_GRADIENT = ("score_norms", "gradient_mse_debiased")
LONGEST_EXAMPLE = 50
REAL = Path(os.environ.get("KAESTAT_DATA", "")) / "acc_step_500_dev.json"


def module(name: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FIGURES)
        return sys.modules.get(name) or importlib.import_module(name)


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(FIGURES / f"{name}.csv")


def same(found: pd.DataFrame, kept: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found.reset_index(drop=True), kept, rtol=1e-4, check_dtype=False)


def test_curves_are_what_the_script_measures():
    same(module("choice_numbers").curves(), table("choice_curves"))


@pytest.mark.slow
def test_map_is_what_the_script_measures():
    same(module("choice_numbers").choice_map(), table("choice_map"))


if REAL.is_file():

    @pytest.mark.slow
    def test_real_run_is_what_the_script_measures():
        found, kept = module("choice_numbers").real_run(read_log(REAL)), table("choice_real_run")
        same(found[found["method"].isin(kept["method"])], kept)

    def test_defaults_on_the_real_run_are_what_the_script_measures():
        same(module("choice_numbers").real_run_defaults(read_log(REAL)), table("choice_defaults"))


def test_table_of_the_real_run_shows_the_measured_numbers():
    rows = re.findall(r"^\| (\[`.*?) \| (.*?) ± (.*?) \| (.*?) \|$", (DOCS / "choose.md").read_text(), re.MULTILINE)
    shown = {name: cells for names, *cells in rows for name in re.findall(r"\[`(.*?)`\]", names)}
    kept = {
        row.method: [f"{1e3 * row.mse:.2f}", f"{1e3 * row.se:.2f}", f"{row.ratio_to_grpo:.2f}"]
        for row in table("choice_real_run").itertuples()
    }
    assert shown == kept


def test_table_of_defaults_on_the_real_run_shows_the_measured_numbers():
    rows = re.findall(r"^\| `([^|]*?)` \| ([\d.]+) ± ([\d.]+) \|$", (DOCS / "efficiency.md").read_text(), re.MULTILINE)
    kept = [
        (row.method, f"{1e3 * row.mse:.3f}", f"{1e3 * row.se:.3f}") for row in table("choice_defaults").itertuples()
    ]
    assert rows == kept


def test_example_on_large_groups_uses_the_measured_numbers():
    rows = re.search(r"in \[(\(2, .*?)\]:", (DOCS / "choose.md").read_text())[1]
    curves = (
        table("choice_curves").query("axis == 'group_size'").pivot_table(index="at", columns="method", values="mse")
    )
    for size, kae, grpo in re.findall(r"\((\d+), ([\d.]+), ([\d.]+)\)", rows):
        measured = 1e3 * curves.loc[float(size), ["kae", "rloo"]]
        np.testing.assert_allclose([float(kae), float(grpo)], measured, atol=0.005)


def test_table_where_assumption_6_fails_is_the_diagnosis_of_the_small_model():
    rows = re.findall(r"^\| (.*?) \| (\d+) \((\d+)\) \| ([\d.]*) ?\|$", (DOCS / "choose.md").read_text(), re.MULTILINE)
    names = {
        "best constant of each prompt": "best_baseline",
        "`kae`, weighted by exact score norms": "kae@exact",
        "the true value": "oracle",
    }
    gradient, value = (
        pd.read_csv(RESULTS / "tiny" / f"{table}.csv").query("step == 10").set_index("method")
        for table in ("gradient_mse_debiased", "value_mse")
    )
    assert len(rows) == 7
    for label, mse, se, value_mse in rows:
        method = names.get(label, label.strip("`"))
        assert (mse, se) == (f"{gradient.loc[method, 'mse']:.0f}", f"{gradient.loc[method, 'se']:.0f}")
        if method in value.index:
            assert float(value_mse) == pytest.approx(1e3 * value.loc[method, "mse_debiased"], rel=0.02)
    assert "weighted `kae_eb` ({:.0f}) and the weighted batch mean ({:.0f}) beside it".format(
        *gradient.loc[["kae_eb@exact", "reinforce++@exact"], "mse"]
    ) in " ".join((DOCS / "choose.md").read_text().split())


def test_table_of_assumption_6_along_a_run_is_the_diagnosis_of_its_checkpoints():
    page = (DOCS / "experiments" / "results.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\S+) \| (\S+) \| (.*) \|$", page, re.MULTILINE)
    norms, gradient = (pd.read_csv(RESULTS / "tiny_trained" / f"{kept}.csv") for kept in NORMS_AND_GRADIENT)
    gradient = gradient.set_index(["step", "method"])
    methods = ["none", "oracle", "kae", "reinforce++", "kae@exact", "reinforce++@exact", "kae_eb@exact"]
    assert [int(step) for step, *_ in rows] == norms["step"].unique().tolist()
    for step, value, ratio, errors in rows:
        at = norms[norms["step"] == int(step)]
        assert value == f"{at['value'].mean():.2f}"
        assert float(ratio.replace(",", "")) == float(f"{(at['norm2_wrong'] / at['norm2_right']).median():.2g}")
        found = [gradient.loc[(int(step), method)] for method in methods]
        assert errors.split(" | ") == [f"{each['mse']:.1f} ({each['se']:.1f})" for each in found]


def test_what_is_said_of_assumption_6_along_a_run_holds_in_its_diagnosis():
    norms, gradient = (pd.read_csv(RESULTS / "tiny_trained" / f"{kept}.csv") for kept in NORMS_AND_GRADIENT)
    error = gradient.pivot_table(index="step", columns="method", values="mse")
    for method in ("kae", "oracle"):
        assert (error[method] / error["none"]).round()[1:].between(7, 15).all()
    in_the_table = error[["none", "oracle", "kae", "reinforce++", "kae@exact", "reinforce++@exact", "kae_eb@exact"]]
    assert (in_the_table.idxmin(axis=1) == "kae_eb@exact").all()
    assert (error["kae@exact"] / error["kae_eb@exact"]).round()[[50, 100]].tolist() == [6, 8]
    both = norms.dropna(subset=["norm2_wrong", "norm2_right"]).assign(wrong=lambda d: d.norm2_wrong > d.norm2_right)
    first, last = (both[both["step"] == step] for step in (5, 100))
    assert first.groupby(first["value"] > 0.5)["wrong"].mean().round().tolist() == [0, 1]  # the rare answer is it
    assert first["best_baseline"].corr(first["value"]) < -0.8
    assert last["wrong"].all() and last["best_baseline"].median() < 0.05


def test_what_is_said_of_a_language_model_at_an_equal_budget_holds_in_its_table():
    page = (DOCS / "experiments" / "equal_budget.md").read_text()
    frame = pd.read_csv(RESULTS / "smollm2" / "equal_budget.csv", keep_default_na=False, na_values=[""])
    designs = frame.set_index(["method", "group_size", "past"])
    told = [("kae_eb@exact", 1, 8), ("kae_eb", 1, 8), ("oracle", 1, 0), ("kae_eb@exact", 1, 1), ("kae_eb", 8, 8)]
    said = [interval(designs.loc[each], "relative") for each in [*told, ("none", 1, 0)]]
    said.append(interval(designs.loc[("none", 1, 0)], "to_weighted"))
    assert [each for each in said if each not in page] == []
    assert designs.loc[("none", 1, 0), "relative_low"] < 1 < designs.loc[("none", 1, 0), "relative_high"]


def interval(row, name):
    """An estimate with its interval, as the page writes it."""
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]".replace("0.", ".")


def test_what_is_said_of_designs_at_an_equal_budget_holds_in_their_table():
    frame = pd.read_csv(RESULTS / "tiny_trained" / "equal_budget.csv", keep_default_na=False, na_values=[""])
    longest = frame[frame["past"] == frame.groupby("method")["past"].transform("max")]
    noise = longest.pivot_table(index=["step", "method"], columns="group_size", values="relative")
    at = {method: noise.xs(method, level="method") for method in frame["method"].unique()}
    assert at["grpo"][[2, 4]].min(axis=1).round(1).isin([0.7, 0.8]).all() and (at["grpo"][8] == 1).all()
    assert at["grpo"][16].between(1.4, 1.7).all()
    assert (noise[16] > noise[8]).all() and (noise[8] > noise[4]).all()
    for method in ("kae", "oracle"):
        assert (at[method][8] >= 0.945).all() and at[method][1].round(1).between(0.4, 0.6).all()
    assert (at["none"] < at["oracle"]).all(axis=None) and round((at["oracle"] / at["none"]).loc[50, 1]) == 6
    little = frame.query("past == 1").pivot_table(index=["step", "method"], columns="group_size", values="relative")
    shortest, shrunk = (little.xs(name, level="method")[1] for name in ("kae@exact", "kae_eb@exact"))
    for cells, low, high in (
        (at["kae@exact"][1], 0.16, 0.23), (at["reinforce++@exact"][1], 0.15, 0.19), (shortest, 0.36, 0.51),
        (at["kae_eb@exact"][1], 0.07, 0.15), (shrunk, 0.08, 0.17), (at["none"][1], 0.08, 0.21),
        (at["best_baseline"][1], 0.07, 0.11),
    ):  # fmt: skip
        assert (cells.round(2).min(), cells.round(2).max()) == (low, high)
    weighted = at["reinforce++@exact"][1].to_numpy()
    assert (weighted < shortest.to_numpy()).all()
    assert noise[1].drop("best_baseline", level="method").groupby("step").idxmin().str[1].eq("kae_eb@exact").all()
    assert (shrunk / at["kae_eb@exact"][1]).max() < 1.35
    assert (at["kae_eb@exact"][8] / at["kae@exact"][8]).between(0.99, 1.01).all()  # six problems in a step
    signal = pd.read_csv(RESULTS / "tiny_trained" / "gradient_signal.csv").set_index(["quantity", "step"])["mean"]
    assert (signal["between"] / signal["value_noise"]).between(1 / 9, 1 / 3.7).all()
    assert np.isnan(frame.query("step == 100")["to_signal"]).all()


def test_what_is_said_of_weighted_kae_eb_against_the_others_holds_in_the_paired_tables():
    ratio = pd.read_csv(RESULTS / "tiny_trained" / "equal_budget.csv", keep_default_na=False, na_values=[""])
    bare = ratio.query("method == 'none' and group_size == 1").set_index("step")
    assert (bare["to_weighted"].round(2).min(), bare["to_weighted"].round(2).max()) == (1.13, 1.41)
    assert (bare["to_weighted_low"] > 1).to_dict() == {5: True, 20: True, 50: False, 100: True}
    paired = pd.read_csv(RESULTS / "tiny_trained" / "gradient_mse_debiased_differences.csv", keep_default_na=False)
    paired = paired[paired["reference"] == "kae_eb@exact"].astype({"ci_low": float})
    worse = paired.pivot_table(index="method", columns="step", values="ci_low") > 0
    assert worse.loc["none"].to_dict() == {5: True, 20: True, 50: False, 100: False}
    assert worse.loc["reinforce++@exact"].to_dict() == {5: True, 20: True, 50: False, 100: True}
    assert worse.loc[["kae", "kae_eb", "grpo", "reinforce++", "grpo@exact", "oracle"]].all(axis=None)


def test_what_is_said_of_the_model_made_in_the_run_holds_in_its_table():
    frame = pd.read_csv(RESULTS / "tiny" / "equal_budget.csv", keep_default_na=False, na_values=[""])
    longest = frame[frame["past"] == frame.groupby("method")["past"].transform("max")]
    noise = longest.pivot_table(index=["step", "method"], columns="group_size", values="relative")
    single = longest.query("group_size == 1").pivot_table(index="method", columns="step", values="relative")
    norms = pd.read_csv(RESULTS / "tiny" / "score_norms.csv").assign(ratio=lambda d: d.norm2_wrong / d.norm2_right)
    by_step = norms.groupby("step").agg({"value": "mean", "ratio": "median"}).round({"value": 2, "ratio": 0})
    assert by_step.loc[[10, 70], "value"].tolist() == [0.23, 0.33] and by_step["ratio"].tolist() == [10, 13, 23]
    tied = ["none", "reinforce++@exact", "kae@exact", "kae_eb@exact"]
    assert (single.loc[tied].min(axis=None).round(2), single.loc[tied].max(axis=None).round(2)) == (0.07, 0.15)
    assert single.loc[["kae", "oracle"]].round(2).min(axis=None) >= 0.5
    assert single.loc[["kae", "oracle"]].round(2).max(axis=None) <= 0.65
    to_weighted = longest.query("group_size == 1").set_index(["method", "step"])["to_weighted"]
    assert to_weighted.loc[tied].between(0.99, 1.06).all()
    assert (noise[2] > noise[1]).drop("grpo", level="method").drop("grpo@exact", level="method").all()
    assert noise.xs("grpo", level="method").idxmin(axis=1).isin([4, 8]).all()


def test_gradients_drawn_outright_agree_with_the_formula_of_the_page():
    frame = pd.read_csv(RESULTS / "tiny_trained" / "equal_budget_drawn.csv", keep_default_na=False)
    z = (frame["drawn"] - frame["formula"]) / np.hypot(frame["drawn_se"], frame["formula_se"])
    assert (z.abs() < 4).all() and (z**2).mean() < 2.5
    assert len(z) == 40 and set(frame["step"]) == {5, 50} and z.abs().max().round(1) == 1.3  # what the page says
    single = frame.query("step == 50 and group_size == 1").set_index("method")[["drawn", "drawn_se"]].round(1)
    assert single.loc["kae_eb@exact"].tolist() == [9.4, 0.5] and single.loc["kae"].round().tolist() == [192, 12]


def test_correlations_on_the_theory_page_are_those_of_the_diagnoses():
    said = re.search(
        r"of (-\S+) to (-\S+) in our small model, (-\S+) in SmolLM2-135M, from (-\S+) to (-\S+) \[along",
        (DOCS / "theory.md").read_text(),
    ).groups()
    found = {
        run: pd.read_csv(RESULTS / run / "score_norms_summary.csv").query("quantity == 'correlation'")["mean"]
        for run in ("tiny", "smollm2", "tiny_trained")
    }
    measured = [found["tiny"].max(), found["tiny"].min(), found["smollm2"].item(), *found["tiny_trained"].iloc[[0, -1]]]
    assert list(said) == [f"{each:.2f}" for each in measured]


def test_the_guide_counts_the_studies_that_there_are():
    said = re.findall(r"(\d+) (?:Monte Carlo|simulation) studies", (DOCS / "guide" / "simulate.md").read_text())
    assert said == [str(len(studies.names()))]


@pytest.mark.parametrize("name", slow_after(1, ["choice_curves", "choice_map"]))
def test_figures_are_drawn_in_both_schemes_and_the_same_each_time(name):
    drawn = module("choice_figures").drawn
    light = drawn(name, "light")
    assert light.startswith(b"<?xml")
    assert light == drawn(name, "light") != drawn(name, "dark")


@pytest.mark.parametrize("page", ["baseline", "selector", "adapter", "study"])
def test_worked_example_of_an_extension_is_short(page):
    first = re.search(r"^```python\n(.*?)^```", (DOCS / "extend" / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)[
        1
    ]
    assert len(first.splitlines()) < LONGEST_EXAMPLE


def test_shares_of_score_norms_in_a_step_of_trl_are_those_of_the_benchmark():
    rows = json.loads((DOCS.parent / "benchmarks/trl/results.json").read_text())["benchmarks"]["score_norms"]["rows"]
    measured = [
        "{median:.2f} ({low:.2f} – {high:.2f})".format(**row["value"]) for row in rows if row["unit"] == "ratio"
    ]
    said = " ".join((DOCS / "frameworks" / "trl.md").read_text().split())
    assert re.findall(r"\d\.\d\d \(\d\.\d\d – \d\.\d\d\)", said) == measured


def test_costs_of_a_step_are_those_of_the_benchmark():
    measured = json.loads((DOCS.parent / "benchmarks/untuned/results.json").read_text())["benchmarks"]["untuned_step"][
        "rows"
    ]
    cost = {
        (row["quantity"].split(" / ")[0], row["case"]): "{median:.2g} ({low:.2g} – {high:.2g})".format(**row["value"])
        for row in measured
        if row["unit"] == "ratio"
    }
    page = (DOCS / "efficiency.md").read_text()
    rows = re.findall(r"^\| `(\S+)` (?:\|[^|\n]*){4}\| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    assert ("kae:bandwidth=10", "1", "1") in rows
    for method, *costs in rows:
        if method != "kae:bandwidth=10":
            assert costs == [cost[method, f"{n_prompts} × 8"] for n_prompts in (64, 512)]
    assert len(rows) == 9
    said = ", {} and {} times one of".format(*(cost["bayes_filter", f"{n_prompts} × 8"] for n_prompts in (256, 512)))
    assert cost["bayes_filter", "64 × 8"] + said in " ".join(page.split())


def test_figures_of_late_rewards_are_those_of_the_benchmark():
    benchmark = json.loads((DOCS.parent / "benchmarks/late/results.json").read_text())["benchmarks"]["late_rewards"]
    value = {row["quantity"]: row["value"] for row in benchmark["rows"]}
    assert all(row["holds"] is not False for row in benchmark["rows"])
    errors, steps = "value MSE of {}, learned, any order over strict order", "step of kae, {}"
    said = " ".join((DOCS / "guide" / "late-rewards.md").read_text().split())
    told = [
        *("{median:.3f} ({low:.3f} – {high:.3f})".format(**value[errors.format(name)]) for name in ("kae", "kae_eb")),
        "takes {median:.1f} ({low:.1f} – {high:.1f}) times".format(
            **value["step of kae, learned, any order over strict order"]
        ),
        "takes {median:.1f} ({low:.1f} – {high:.1f}) ms at the end".format(**value["observe, last third of the run"]),
        "has {median:.0f} MB".format(**value["arrays of the history, at the end"]),
        "has {median:.2f} MB, and".format(**value["delta of a step, as bytes"]),
        "{median:.2f} MB if".format(**value["delta, as bytes"]),
        "values takes {median:.1f} ms".format(**value[steps.format("any order")]),
        "lateness, takes {median:.1f}".format(**value[steps.format("strict order")]),
        "{median:.0f} ms where the bandwidth is learned".format(**value[steps.format("learned, any order")]),
    ]
    assert [figure for figure in told if figure not in said] == []


def test_tables_of_the_warm_start_show_the_measured_numbers():
    page = (DOCS / "guide" / "warm-start.md").read_text()
    real = table("warm_start_real_run").set_index(["method", "visits", "warm"])
    for method in real.index.unique(0):
        parts = [real.loc[(method, visits, warm)] for visits in ("all", "1-5") for warm in (False, True)]
        cells = " | ".join(f"{part['mse']:.4f} ± {part['se']:.4f}".replace("0.", ".") for part in parts)
        assert f"| `{method}` | {cells} |" in page
    other = table("warm_start_other_policy").set_index(["method", "count", "off", "epochs"])
    for method, count in {key[:2] for key in other.index}:
        parts = [other.loc[(method, count, off, epochs)] for off in (0.0, 1.5) for epochs in ("first", "last four")]
        cells = " | ".join(f"{p['warm'] / p['cold']:.2f} ± {p['se'] / p['cold']:.2f}" for p in parts)
        assert f"| `{method}` | {count} | {cells} |" in page
    rloo = table("choice_real_run").set_index("method").loc["rloo", "mse"]
    assert f"has {rloo:.4f}".replace("0.", ".") in page


@pytest.mark.slow
def test_gradients_of_objectives_are_what_the_script_measures():
    same(module("objective_numbers").gradients(), table("objective_gradients"))


def test_page_on_objectives_tells_the_gradients():
    page, kept = (DOCS / "guide" / "objectives.md").read_text(), table("objective_gradients")
    for (objective, method), of_sizes in kept.groupby(["objective", "method"]):
        parts = [row for _, row in of_sizes.sort_values("group_size").iterrows()]
        cells = [f"{row[name]:.2f} ± {row[f'{name}_se']:.2f}" for name in ("scale", "cosine") for row in parts]
        form = "`kae_eb`, `objective=`" if method.startswith("kae_eb") else f"`{method}`"
        assert f"| {objective} | {form} | {' | '.join(cells)} |" in page


def test_page_on_outside_values_tells_what_the_script_measures():
    kept = table("outside_value")
    same(module("outside_value_numbers").computed(), kept)
    page = (DOCS / "methods" / "outside_value.md").read_text()
    for (name, noise), rows in kept.groupby(["baseline", "noise"], dropna=False, sort=False):
        label = f"`{name}`" + ("" if np.isnan(noise) else f", error {noise:g}".replace("0.", "."))
        known = rows.set_index(["visits", "group_size"])
        cells = [
            f"{1e3 * known.loc[key, 'mse']:.1f} ± {1e3 * known.loc[key, 'se']:.1f}" if key in known.index else "–"
            for key in product(("first", "2-12"), (1, 2, 4))
        ]
        assert f"| {label} | {' | '.join(cells)} |" in page


@pytest.mark.slow
def test_warm_starts_with_another_policy_are_what_the_script_measures():
    same(module("warm_start_numbers").other_policies(), table("warm_start_other_policy"))


if REAL.is_file():

    @pytest.mark.slow
    def test_warm_starts_on_the_real_run_are_what_the_script_measures():
        numbers = module("warm_start_numbers")
        same(numbers.real_run(numbers.successes(REAL)), table("warm_start_real_run"))


def test_no_baseline_leaves_less_noise_than_the_value_from_the_ratio_on_that_pages_tell():
    """Noise E[W (R - b)^2] at b = 0 and at b = p, right answers of weight 1, wrong ones of weight rho."""
    bounds = {p: 1 + 1 / (1 - p) for p in map(Fraction, ("1/1000000", "1/2", "9/10"))}
    for p, bound in bounds.items():
        for rho in (bound - Fraction(1, 1000), bound, bound + Fraction(1, 1000)):
            of_none, of_value = (p * (1 - b) ** 2 + (1 - p) * rho * b**2 for b in (0, p))
            assert (of_none < of_value) == (rho > bound)
    told = "ρ > 1 + 1/(1 − p): {:.0f} for small p, {:.0f} at p = .5, {:.0f} at p = .9".format(
        *map(float, bounds.values())
    )
    for page in ("docs/experiments/what_a_history_buys.md", "docs/guide/gradient-noise.md", "README.md"):
        assert told in " ".join((DOCS.parent / page).read_text().split())


def test_cost_of_following_a_run_is_that_of_the_benchmark():
    measured = json.loads((DOCS.parent / "benchmarks/watch/results.json").read_text())["benchmarks"]["watch_step"]
    (value,) = (row["value"] for row in measured["rows"] if row["unit"] == "ratio")
    said = "{median:.4f} ({low:.4f} – {high:.4f})".format(**value)
    assert said in (DOCS / "guide" / "watch.md").read_text()
