"""The paper's numbers as data, and what the audit finds in them."""

import io
from pathlib import Path

import pandas as pd
import pytest

from paper_figures.audit import counts, recomputed, sampling_error
from paper_figures.audit.recomputed import Printed, reduction_range
from paper_figures.audit.tables import TABLES
from paper_figures.shared import paper
from simulations.bandits.calibration import INPUTS

KEPT = Path(__file__).parents[3] / "results" / "reproduced"


def test_calibration_starts_from_the_papers_rows():
    entries = paper.levels(1).set_index(["dataset", "step", "method"])["mse"]
    for cell, (reinforce_mse, grpo_mse) in INPUTS.items():
        assert (reinforce_mse, grpo_mse) == pytest.approx((entries[(*cell, "reinforce++")], entries[(*cell, "grpo")]))


@pytest.mark.parametrize("name", ["audit_claims", "audit_differences"])
def test_the_tables_that_pages_quote_are_the_committed_ones(name):
    written = io.StringIO(TABLES[name]().to_csv(index=False))
    found, kept = (pd.read_csv(each, keep_default_na=False, na_values=[""]) for each in (written, KEPT / f"{name}.csv"))
    pd.testing.assert_frame_equal(found, kept, rtol=1e-6)


def test_averages_are_exact_and_percentages_but_for_two_that_are_within_rounding():
    assert set(recomputed.averages()["verdict"]) == {"exact"}
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


def test_the_error_of_a_difference_is_binomial_and_the_average_s_is_that_of_six_independent_ones():
    frame = sampling_error.difference_errors().set_index(["table", "benchmark", "versus"]).sort_index()
    accuracy = paper.accuracies().set_index(["table", "benchmark", "method"])["accuracy"].sort_index()
    p, q = accuracy[3, "aime24", "kae"], accuracy[3, "aime24", "grpo"]
    row = frame.loc[3, "aime24", "grpo"]
    assert row["difference"] == pytest.approx(p - q)
    assert row["se"] == pytest.approx(((p * (1 - p) + q * (1 - q)) / (30 * 32)) ** 0.5)
    ses = frame.loc[3].xs("grpo", level="versus")["se"]
    assert ses["average"] == pytest.approx((ses.drop("average") ** 2).sum() ** 0.5 / 6)
