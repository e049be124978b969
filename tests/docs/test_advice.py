"""What the page on histories says of advice is what the kept rows and the study's tables say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from llm_experiments.study.config import StudyConfig
from paper_figures.policies.__main__ import build_advice
from paper_figures.policies.names import name_of

ROOT = Path(__file__).parents[2]
COLUMNS = ROOT / "results" / "studies" / "columns"
WORKINGS = ROOT / "results" / "studies" / "workings"
PAGE = ROOT / "docs" / "experiments" / "what_a_history_buys.md"
OWN, GROUP = "kae_eb_1_adam", "grpo_8"


@pytest.fixture(scope="module")
def advice():
    return pd.read_csv(COLUMNS / "advice.csv").set_index(["metric", "log"]).sort_index()


@pytest.fixture(scope="module")
def said():
    text = " ".join(PAGE.read_text().split())
    return text[text.index("## Was the advice right?") : text.index("## Real models")]


def short(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("0.", ".", 1).replace("-", "−")


def over_bases(values: pd.Series, digits: int = 2) -> str:
    return f"{short(values.mean(), digits)} ± {short(values.sem(), digits)}"


def span(values: pd.Series, digits: int = 2) -> str:
    return f"{short(values.min(), digits)} to {short(values.max(), digits)}"


@pytest.mark.parametrize("study", ["columns", "workings"])
def test_the_table_on_the_page_is_that_of_the_results(study, tmp_path):
    folder = ROOT / "results" / "studies" / study
    config = StudyConfig(**json.loads((folder / "provenance.json").read_text())["config"])
    for name in ("advice.csv", "advice_order.csv", "rows.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    build_advice(tmp_path, config, {name: name_of(design) for name, design in config.designs.items()})
    assert (tmp_path / "tables" / "advice.md").read_text() == (folder / "tables" / "advice.md").read_text()
    assert f'--8<-- "results/studies/{study}/tables/advice.md"' in PAGE.read_text()


def test_what_was_learned_is_what_the_study_says(advice):
    """The gaps of the table of advice are the differences that the study's own table has, the other way round."""
    found = pd.read_csv(COLUMNS / "differences.csv")
    found = found[
        (found["reference"] == OWN) & (found["design"] == "batch_mean_1_adam") & (found["endpoint"] == "area")
    ]
    by_base = found[found["base"] != "all"].set_index("base")
    for row in advice.reset_index().itertuples():
        assert row.gap == pytest.approx(-by_base.loc[str(row.base), "difference"], abs=1e-5)
        assert row.gap_se == pytest.approx(by_base.loc[str(row.base), "se"], abs=1e-5)


def test_sentences_on_logs_in_adams_units(advice, said):
    group, own = advice.loc[("adam", GROUP)], advice.loc[("adam", OWN)]
    designs = pd.read_csv(COLUMNS / "advice_order.csv")
    assert (designs.groupby(["base", "log", "metric"]).size() == 13).all() and "puts 13 designs into" in said
    assert f"rank correlation {over_bases(group['correlation'], 3)} with what they learned" in said
    assert f"and {over_bases(group['correlation_between'], 3)} with the between/within ratio" in said
    assert (group["right"] == "yes").all() and "pays" not in set(group["advice"])
    assert (len(own), (own["advice"] == "pays").sum()) == (6, 3) and "pays on three base models of six" in said
    assert f"saves {span(own['saved'])} of the noise in a replay, and {span(1 - own['predicted'])} by the law" in said
    assert f"The gain in accuracy was {over_bases(own['gap'], 3)}." in said


def test_sentences_on_other_norms(advice, said):
    logits = advice.loc["logits"]
    assert f"By them ρ is {span(logits['rho'])}, where it is " in said
    rho = advice.loc["adam"]["rho"]
    assert f"where it is {rho.min():.1f} to {rho.max():.0f} in Adam's units" in said
    assert ((logits["advice"] == "pays").sum(), len(logits)) == (10, 12) and "a history on ten logs of twelve" in said
    for metric, column in (("logits", "correlation"), ("logits", "correlation_between"), ("plain", "correlation")):
        group, own = (over_bases(advice.loc[(metric, log), column]) for log in (GROUP, OWN))
        assert f"{group} and {own}" in said or f"{group} from GRPO's logs and {own} from the history's" in said


def test_sentences_on_workings(said):
    found = pd.read_csv(WORKINGS / "advice.csv")
    assert (found["advice"] == "pays").all() and found["base"].nunique() == 6
    adam = found[found["metric"] == "adam"]
    gaps = adam.drop_duplicates("base")
    low, high = stats.t.interval(0.95, 5, gaps["gap"].mean(), gaps["gap"].sem())
    assert f"learned {over_bases(gaps['gap'], 3)} more [" in said and f"[{short(low, 3)}, {short(high, 3)}]" in said
    assert (
        gaps["right"].value_counts().to_dict() == {"open": 5, "yes": 1}
        and "four seeds show it on one and leave it open on five" in said
    )
    assert f"Logs promise {span(adam['saved'])} less noise" in said
    group, own = (adam[adam["log"] == log] for log in (GROUP, OWN))
    for column, sentence in (
        ("correlation", "{} from GRPO's logs and {} from"),
        ("correlation_between", "{} and {}, so"),
    ):
        assert sentence.format(*(over_bases(each[column], 3) for each in (group, own))) in said
    assert found["rho"].between(0.9, 1.5).all()  # by all norms


def test_rows_are_those_of_runs_that_were_compared():
    facts = pd.read_csv(COLUMNS / "rows.csv").set_index(["base", "design"])
    curves = pd.read_csv(COLUMNS / "curves.csv").set_index(["base", "design", "seed"]).sort_index()
    assert len(facts) == 12
    for (base, design), row in facts.iterrows():
        own = curves.loc[(base, design, row["seed"])]
        assert (own["rate"] == row["rate"]).all() and own["generated"].max() == row["completions"] == 4800
    made = json.loads((COLUMNS / "provenance.json").read_text())["tables"]
    assert {"advice.csv", "advice_order.csv", "rows.csv"} <= set(made)
