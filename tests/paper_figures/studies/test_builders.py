"""The builders: columns that machines read, verdicts, and files that open."""

import pandas as pd
import pytest

from paper_figures.shared import paper
from paper_figures.shared.comparison import reductions
from paper_figures.shared.output import latex, markdown
from paper_figures.studies import table1, table2
from simulations.studies import table1 as table1_study
from simulations.studies import table2 as table2_study
from tests.helpers.study_summaries import summary_of


@pytest.fixture(scope="module")
def value_summary():
    return summary_of(table1_study.STUDY, 40)


@pytest.fixture(scope="module")
def gradient_summary():
    return summary_of(table2_study.STUDY, 20)


def test_tables_1_and_2_hold_every_cell_of_the_papers(value_summary, gradient_summary):
    frame = table1.table(value_summary)
    assert len(frame) == 18 and (frame["mse"] > frame["mse_debiased"]).all()
    roles = {"kae": "predicted", "grpo": "input", "reinforce++": "input"}
    assert frame.groupby("method")["role"].first().to_dict() == roles
    kae = frame.set_index(["dataset", "step", "method"]).loc["math", 10, "kae"]
    assert kae["paper"] == 5.80e-3
    frame = table2.reductions(gradient_summary)
    assert len(frame) == 12 and set(frame["versus"]) == {"grpo", "reinforce++"}


def test_tables_are_laid_out_like_the_papers(value_summary, gradient_summary):
    for shown in (table1.shown(value_summary), table2.shown(gradient_summary)):
        assert shown.columns.tolist() == ["", "MATH 10", "MATH 90", "MATH 170", "GSM8K 10", "GSM8K 90", "GSM8K 170"]
    cell = table1.shown(value_summary).set_index("")["MATH 10"]["KAE (predicted)"]
    assert cell.endswith("[5.8]")


def test_characters_that_mean_something_in_a_format_are_escaped():
    frame = pd.DataFrame({"a|b": ["50 % & more_or_less"]})
    assert r"50 \% \& more\_or\_less \\" in latex(frame, "100 %", label="tab:x")
    assert r"\caption{100 \%}" in latex(frame, "100 %", label="tab:x")
    assert r"| a\|b |" in markdown(frame, "")


def test_an_advantage_stands_beside_the_reduction_of_its_own_cell():
    """Whatever the order of a summary's rows, and where it compares more than the paper does."""
    stated = paper.reductions(1)
    rows = [
        (row.dataset, row.step, f"{kind}_mse", method, place + 100.0 * (kind == "advantage"), 0.1, 4)
        for kind, order in (("reduction", 1), ("advantage", -1))
        for place, row in list(enumerate(stated.itertuples()))[::order]
        for method in ("other", row.versus)
    ]
    summary = pd.DataFrame(rows, columns=["dataset", "step", "measure", "method", "estimate", "mcse", "n"])
    summary = summary.drop_duplicates(["dataset", "step", "measure", "method"])
    found = reductions(summary, "mse", stated)
    assert len(found) == len(stated) and (found["advantage"] == found["reduction_pct"] + 100).all()
