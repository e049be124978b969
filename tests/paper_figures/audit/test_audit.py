"""The paper's numbers as data, and what the audit finds in them."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from paper_figures.audit import counts, recomputed, sampling_error
from paper_figures.audit.recomputed import Printed, reduction_range
from paper_figures.audit.tables import TABLES
from paper_figures.shared import paper
from simulations.bandits.calibration import INPUTS

KEPT = Path(__file__).parents[3] / "results" / "reproduced"


def test_tables_have_a_number_for_every_cell():
    for number in (1, 2):
        levels, reductions = paper.levels(number), paper.reductions(number)
        assert len(levels) == 18 == len(levels.drop_duplicates(["dataset", "step", "method"]))
        assert len(reductions) == 12 == len(reductions.drop_duplicates(["dataset", "step", "versus"]))
        assert set(levels["dataset"]) == set(paper.DATASETS) and set(levels["step"]) == set(paper.STEPS)
    frame = paper.accuracies()
    assert frame.groupby("table").size().to_dict() == {3: 28, 4: 28}
    assert (frame["printed"].str.len() == 6).all()


def test_calibration_starts_from_the_papers_rows():
    entries = paper.levels(1).set_index(["dataset", "step", "method"])["mse"]
    for cell, (reinforce_mse, grpo_mse) in INPUTS.items():
        assert (reinforce_mse, grpo_mse) == pytest.approx((entries[(*cell, "reinforce++")], entries[(*cell, "grpo")]))


@pytest.mark.parametrize("name", ["audit_claims", "audit_differences"])
def test_the_tables_that_pages_quote_are_the_committed_ones(name):
    written = io.StringIO(TABLES[name]().to_csv(index=False))
    found, kept = (pd.read_csv(each, keep_default_na=False, na_values=[""]) for each in (written, KEPT / f"{name}.csv"))
    pd.testing.assert_frame_equal(found, kept, rtol=1e-6)


def test_percentage_rows_are_exact_but_for_two_that_are_within_rounding():
    frame = recomputed.reductions()
    assert len(frame) == 24
    off = frame[frame["verdict"] != "exact"]
    assert [tuple(row) for row in off[["table", "dataset", "step", "versus", "verdict"]].to_numpy()] == [
        (1, "gsm8k", 10, "grpo", "within rounding"),
        (1, "gsm8k", 90, "grpo", "within rounding"),
    ]


def test_reduction_range_spans_all_entries_that_round_to_the_printed_ones():
    recomputed, low, high = reduction_range(Printed("0.91"), Printed("2.50"))
    assert recomputed == pytest.approx(63.6)
    assert (low, high) == pytest.approx((100 * (1 - 0.915 / 2.495), 100 * (1 - 0.905 / 2.505)))


def test_average_columns_are_exact():
    assert set(recomputed.averages()["verdict"]) == {"exact"}


def test_wrong_numbers_are_found(monkeypatch):
    stated, accuracies, claims = paper.reductions(1), paper.accuracies(), paper.claims()
    stated.loc[0, "printed"] = "92.9"
    accuracies.loc[(accuracies["benchmark"] == "average") & (accuracies["method"] == "kae"), "printed"] = "0.4200"
    accuracies.loc[0, ["printed", "accuracy"]] = ["0.2723", 0.2723]
    claims.loc[claims["quantity"] == "mean_improvement_dapo", ["low", "high"]] = "12.8"
    monkeypatch.setattr(paper, "accuracies", lambda: accuracies)
    monkeypatch.setattr(paper, "claims", lambda: claims)
    verdict = recomputed.text_claims().set_index(claims["quantity"])["verdict"]
    assert verdict["mean_improvement_dapo"] == "differs" and verdict["mean_improvement_math"] == "holds"
    assert recomputed.averages().set_index("method")["verdict"]["kae"].tolist() == ["differs", "differs"]
    assert (counts.accuracy_counts()["verdict"] != "k/n").tolist() == [True] + [False] * 47
    monkeypatch.setattr(paper, "reductions", lambda number: stated)
    assert recomputed.reductions().loc[0, "verdict"] == "differs"


def test_every_accuracy_is_a_count_over_the_benchmarks_size():
    frame = counts.accuracy_counts()
    assert len(frame) == 48 and set(frame["verdict"]) == {"k/n"}
    k = frame.set_index(["table", "method", "benchmark"])["k"].sort_index()
    assert k[3, "kae"].to_dict() == {
        "aime24": 285, "aime25": 90, "amc": 1542, "math": 386, "minerva": 95, "olympiad": 268
    }  # fmt: skip


def test_difference_variance_is_binomial_without_intraclass_correlation():
    variance = sampling_error.difference_variance(0.3, 0.2, 30, 32, intraclass=0.0, between=0.0)
    assert variance == pytest.approx((0.3 * 0.7 + 0.2 * 0.8) / 960, abs=1e-15)


def test_problems_on_which_both_methods_do_equally_well_add_no_variance():
    rates = np.array([0.2, 0.8])
    v = 0.25
    intraclass = float(np.var(rates) / v)
    exact = 2 * float(np.mean(rates * (1 - rates))) / 50
    found = sampling_error.difference_variance(0.5, 0.5, 50, 1, intraclass=intraclass, between=1.0)
    assert found == pytest.approx(exact, abs=1e-15)
