"""What pages say of policies trained in made worlds is what the tables of their studies say."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from llm_experiments.study.config import StudyConfig
from llm_experiments.study.contrasts import best_groups, speed

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "results" / "studies"
OWN, WEIGHTED_MEAN = "kae_eb_1_adam", "batch_mean_1_adam"


@cache
def text_of(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


def section(title: str) -> str:
    text = text_of("docs/experiments/what_a_history_buys.md")
    begin = text.index(f"## {title}")
    return text[begin : text.index(" ## ", begin + 1)]


@cache
def gaps(study: str, endpoint: str = "area") -> pd.DataFrame:
    """Over base models: each design's difference from the recommended one."""
    found = pd.read_csv(STUDIES / study / "differences.csv", dtype={"base": str})
    return found[(found["reference"] == OWN) & (found["endpoint"] == endpoint)].set_index(["base", "design"])


def short(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1).replace("-", "−")


def ahead(study: str, design: str) -> str:
    """By how much a design learned more than the recommended one."""
    row = gaps(study).loc[("all", design)]
    return f"{short(row['difference'])} ± {short(row['se'])}"


def behind(study: str, design: str) -> str:
    row = gaps(study).loc[("all", design)]
    return f"{short(-row['difference'])} ± {short(row['se'])}"


def lead(study: str, design: str, other: str) -> str:
    """How much more one design learned than another, over base models."""
    by_base = (
        gaps(study)
        .drop(index="all", level="base")
        .reset_index()
        .pivot_table(index="base", columns="design", values="difference", dropna=False)
    )
    paired = by_base[design].fillna(0.0) - by_base[other].fillna(0.0)  # the recommended design's own are empty
    return f"{short(paired.mean())} ± {short(paired.sem())}"


@cache
def study_of(name: str) -> StudyConfig:
    return StudyConfig(**json.loads((STUDIES / name / "provenance.json").read_text())["config"])


@pytest.mark.parametrize("name", ["columns", "workings"])
def test_six_base_models_stand_in_the_tables_and_are_those_of_the_plan(name):
    curves = pd.read_csv(STUDIES / name / "curves.csv")
    config = study_of(name)
    assert len(config.world.bases) == 6
    assert set(curves["base"]) == set(config.world.bases)
    assert (curves.groupby(["base", "design"])["seed"].nunique() == 4).all()
    assert "six base models" in section("A made world, with") and "six base models" in section("A made world like")


def test_what_is_said_of_columns():
    said, found = section("A made world, with the controls"), gaps("columns").loc["all"]
    for design, sentence in {
        WEIGHTED_MEAN: f"same weights is {ahead('columns', WEIGHTED_MEAN)} *ahead* of weighted KAE-EB",
        "constant_1_adam": f"one weighted constant {ahead('columns', 'constant_1_adam')} (p",
        "none_1": f"is level too ({ahead('columns', 'none_1')})",
        "kae_eb_1": f"Without them KAE-EB loses {behind('columns', 'kae_eb_1')}",
        "batch_mean_1": f"and the batch mean {lead('columns', WEIGHTED_MEAN, 'batch_mean_1')}.",
        "none_signed_1": f"With rewards of ±1 it learns {lead('columns', 'none_1', 'none_signed_1')} less",
    }.items():
        assert sentence in said, design
    p = [short(found.loc[design, "p_holm"], 2) for design in (WEIGHTED_MEAN, "constant_1_adam")]
    assert f"(p = {p[0]} and {p[1]} after Holm's correction)" in said
    assert f"Without weights a history is {lead('columns', 'kae_eb_1', 'batch_mean_1')} ahead" in said
    groups = found[found.index.str.match("grpo|rloo|dapo")]["mean"].sort_values()
    assert groups.idxmax() == "grpo_4" and "GRPO with four has the highest mean" in said
    need = pd.read_csv(STUDIES / "columns" / "speed.csv", dtype={"base": str})
    reached = need[(need["base"] != "all") & (need["fraction"] == 1)].set_index("design")["ratio"] < float("inf")
    assert [reached[name].sum() for name in ("grpo_8", "grpo_16", "dapo_8")] == [1, 0, 0]
    assert "on one base model of six, groups of 16 and DAPO's filter on none" in said
    need = need[(need["base"] == "all") & (need["fraction"] == 1)].set_index("design")["ratio"]
    weighted = need[[design for design in need.index if design.endswith("adam")]]
    assert f"need {short(weighted.min(), 2)} to {short(weighted.max(), 2)} of the completions" in said


def test_the_rule_of_workings_and_what_came_out():
    said, found = section("A made world like a real run"), gaps("workings").loc["all"]
    p_none, p_mean = (found.loc[design, "p"] for design in ("none_1", WEIGHTED_MEAN))
    assert 2 * p_none < 0.001 and p_none < p_mean < 0.05  # Holm over the two of the rule
    leads = f"is {behind('workings', 'none_1')} ahead of no baseline and {behind('workings', WEIGHTED_MEAN)} ahead of"
    assert leads in said and f"p < .001 and p = {short(p_mean)}, Holm over these two" in said
    assert f"the second is {short(found.loc[WEIGHTED_MEAN, 'p_holm'])})" in said

    config = study_of("workings")
    groups = {name: design for name, design in config.designs.items() if name in ("grpo_2", "grpo_4", "grpo_8")}
    rates = pd.read_csv(STUDIES / "workings" / "rates.csv")
    curves = pd.read_csv(STUDIES / "workings" / "curves.csv")
    best = best_groups(rates[rates["design"].isin(groups)], groups)
    needed = speed(curves, config.budget, best).query(f"design == '{OWN}' and fraction == 1").set_index("base")
    own, by_base = needed.loc["all"], needed.drop(index="all")["ratio"]
    assert (by_base == float("inf")).sum() == 4 and "on four base models of six weighted KAE-EB does not reach" in said
    assert "on four base models of six it does not reach" in text_of("README.md")
    assert own["ratio"] == float("inf") and f"95 % interval from {short(own['low'], 2)} on" in said


def test_what_else_is_said_of_workings():
    said, found = section("A made world like a real run"), gaps("workings").loc["all"]
    constants = -found.loc[["batch_mean_1_adam", "constant_1_adam", "batch_mean_1", "none_signed_1"], "difference"]
    assert f"one number for all prompts are {short(constants.min())} to {short(constants.max())} behind" in said
    assert found["mean"].idxmin() == "none_1" and "no baseline is last" in said
    by_base = gaps("workings").drop(index="all", level="base").xs(WEIGHTED_MEAN, level="design")["difference"]
    assert ((by_base < 0).sum(), len(by_base)) == (5, 6) and "behind on five base models of six" in said
    groups = [ahead("workings", design) for design in ("rloo_4", "grpo_8", "grpo_4")]
    assert (
        f"RLOO with four is {groups[0]} ahead of weighted KAE-EB, GRPO with eight {groups[1]}, with four {groups[2]}"
        in said
    )
    assert (found.loc[["rloo_4", "grpo_8", "grpo_4"], "p_holm"] > 0.05).all()
    both = pd.read_csv(STUDIES / "workings" / "differences.csv", dtype={"base": str})
    best = both.query(f"reference != '{OWN}' and endpoint == 'area' and base == 'all' and design == 'kae_eb_1'").iloc[0]
    assert f"level with the best group design (+{short(best['difference'])} ± {short(best['se'])})" in said
    assert f"with them KAE-EB learns {ahead('workings', 'kae_eb_1')} less" in said
    assert f"the batch mean {lead('workings', WEIGHTED_MEAN, 'batch_mean_1')} more" in said


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/guide/half_the_completions.md"])
def test_other_pages_say_the_same(page):
    text = text_of(page)
    assert f"{behind('workings', WEIGHTED_MEAN)} ahead of the weighted batch" in text
    if page != "README.md":
        assert f"{ahead('columns', WEIGHTED_MEAN)} ahead of the weighted history" in text
    else:
        assert f"{behind('workings', 'none_1')} ahead of no baseline" in text
