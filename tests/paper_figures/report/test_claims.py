"""Every claim of the paper has a row, and its verdict follows what was found."""

import shutil

import numpy as np
import pandas as pd

from kaestat import Groups, Visits, make_baseline
from paper_figures.report.claims import GPUS, RESULTS, REVERSED, VERDICTS, claims
from paper_figures.shared import paper
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, Finding
from paper_figures.studies.rates import random_visits_slopes, tends


def verdict_of(table, words):
    (row,) = table[table["claim"].str.contains(words, regex=False)].itertuples()
    return row.verdict


def test_every_claim_has_a_row_with_place_verdict_and_evidence():
    table = claims([])
    assert len(table) == len(paper.claim_list()) + len(paper.claims()) >= 35
    assert set(table["verdict"]) <= set(VERDICTS) and (table != "").all(axis=None)
    assert not table["claim"].duplicated().any()
    decided = paper.claim_list().set_index("key")
    assert ((decided["decided_by"] == "fixed") == (decided["verdict"] != "")).all()


def test_one_finding_that_does_not_hold_refutes_its_claim():
    def table(*verdicts):
        return claims([Finding("a", verdict, "e", "paper", ("table1",)) for verdict in verdicts])

    words = "KAE's row and its reductions against GRPO"
    assert verdict_of(table(HOLDS), words) == HOLDS
    assert verdict_of(table(HOLDS, OPEN), words) == OPEN
    assert verdict_of(table(HOLDS, OPEN, FAILS), words) == FAILS
    assert verdict_of(table(), words) == OPEN


def test_small_runs_reverse_a_claim_only_beyond_their_error(tmp_path):
    words = "KAE ends above REINFORCE"
    assert verdict_of(claims([]), words) == REVERSED
    folder = shutil.copytree(RESULTS, tmp_path / "training")
    file = folder / "tiny_single_stream" / "differences.csv"
    frame = pd.read_csv(file, keep_default_na=False)
    frame.assign(ci_high=0.001).to_csv(file, index=False)
    assert verdict_of(claims([], folder), words) == GPUS


def test_the_own_reward_in_the_value_only_scales_the_advantage():
    # Section 3: with it the value is (M V + K(0) Z) / (M + K(0)), so the advantage is M / (M + K(0)) times as large.
    rng = np.random.default_rng(0)
    groups = Groups((rng.random((3, 4)) < 0.5).astype(float))
    lag = np.array([[5.0, 2.0]])
    visits = Visits.of_successes(lag, rng.integers(0, 5, (3, 2)).astype(float), 4)
    value = make_baseline("kae", bandwidth=10).values(groups, visits, step=9)
    weight = 1 - lag[0] / 10
    mass = 3 + 4 * weight.sum()  # in units of K(0)
    whole = (groups.reward.sum(axis=1) + visits.total @ weight) / (mass + 1)
    np.testing.assert_allclose(groups.reward - whole[:, None], mass / (mass + 1) * (groups.reward - value))


def test_slopes_that_tend_elsewhere_do_not_hold():
    slopes = random_visits_slopes()
    assert tends(slopes, 4) == HOLDS
    assert tends(slopes + 0.03, 4) == FAILS and tends(slopes, 4, rate=-0.65) == FAILS
