"""The builder of study ``efficiency``, on a summary made by hand and on a small one that is simulated."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from paper_figures.shared.finding import FAILS, HOLDS, OPEN
from paper_figures.studies import efficiency
from simulations.harness import Cell, Streams
from simulations.studies.efficiency import STUDY

STEADY = {"visits": 30, "path": "walk 0.13", "group_size": 4, "every": 1}
JUMP = STEADY | {"path": "jump", "group_size": 16}
RARE = STEADY | {"every": 60}
RATIOS = {  # to the best, in each of the three
    "bayes_filter": (1.02, 1.0, 1.1),
    "kae_eb:bandwidth=auto": (1.0, 1.5, 1.03),
    "kae:bandwidth=10": (1.4, 1.2, 11.0),
    "kae_eb:bandwidth=20": (1.1, 3.0, 8.0),
}


def summary(ratios=RATIOS, mcse=0.01) -> pd.DataFrame:
    """By hand: the best has twice the known filter's error everywhere."""
    rows = []
    for place, cell in enumerate((STEADY, JUMP, RARE)):
        rows.append(cell | {"method": "known parameters", "measure": "mse", "estimate": 1e-3, "mcse": 1e-4, "n": 9})
        for method, each in ratios.items():
            estimates = {"mse": 2e-3 * each[place], "ratio_to_known": 2 * each[place], "ratio_to_best": each[place]}
            rows += [
                cell | {"method": method, "measure": measure, "estimate": estimate, "mcse": mcse, "n": 9}
                for measure, estimate in estimates.items()
            ]
    return pd.DataFrame(rows)


def test_worst_and_mean_ratios_by_hand():
    worst = efficiency.worst(summary()).set_index("method")
    assert worst.index.tolist() == sorted(RATIOS, key=lambda method: max(RATIOS[method]))
    row = worst.loc["bayes_filter"]
    assert (row["path"], row["every"], row["max_ratio_to_best"], row["max_ratio_to_known"]) == (
        "walk 0.13", 60, 1.1, 2.2
    )  # fmt: skip
    assert row["mean_ratio_to_best"] == pytest.approx(1.04)
    assert row["mean_ratio_to_best_mcse"] == pytest.approx(0.01 / 3**0.5)  # settings are independent
    assert worst.loc["kae_eb:bandwidth=auto", ["path", "settings"]].tolist() == ["jump", 3]


def test_tables_show_every_setting_once_and_name_the_worst():
    shown = efficiency.shown(summary()).set_index("Method")
    assert shown.loc["Bayes filter (learned)", "Where"] == "walk 0.13, 30 visits every 60 steps, G = 4"
    assert shown.loc["Bayes filter (learned)", "Worst to best"] == "1.100 (0.010)"
    settings = efficiency.shown_settings(summary())
    assert settings["Setting"].tolist() == [efficiency.setting(cell) for cell in (STEADY, JUMP, RARE)]
    assert settings.loc[1, "KAE-EB, bandwidth auto"] == "1.500 (0.010)"


def test_findings_follow_the_numbers():
    assert [finding.verdict for finding in efficiency.findings(summary())] == [HOLDS, FAILS, HOLDS, HOLDS]
    wide = efficiency.findings(summary(mcse=0.1))
    assert [finding.verdict for finding in wide] == [OPEN, FAILS, OPEN, HOLDS]
    worse = RATIOS | {"bayes_filter": (1.3, 1.0, 1.1), "kae:bandwidth=10": (1.0, 1.0, 1.1)}
    assert [finding.verdict for finding in efficiency.findings(summary(worse))] == [FAILS, FAILS, HOLDS, FAILS]
    assert "1.300 (0.010) (walk 0.13, 30 visits, G = 4)" in efficiency.findings(summary(worse))[0].evidence


def test_the_study_gives_what_the_builder_takes(tmp_path):
    rows = []
    for factors in (STEADY | {"visits": 5}, STEADY | {"visits": 5, "group_size": 1}):
        cell = Cell(factors)
        samples = STUDY.simulate(cell, Streams(0, STUDY.seed_key(cell), range(3)))
        assert set(samples) >= {f"{method}|mse" for method in RATIOS}
        estimates = STUDY.summarise(cell, samples)
        rows += [factors | asdict(estimate) for estimate in estimates]
        by_name = {(e.method, e.measure): e.estimate for e in estimates}
        for method in ("bayes_filter", "kae_eb:bandwidth=auto"):
            assert by_name[method, "room"] == pytest.approx(1.15 - by_name[method, "ratio_to_best"])
        assert min(e.estimate for e in estimates if e.measure == "ratio_to_best") == 1
    frame = efficiency.table(pd.DataFrame(rows))
    assert not {"rloo", "james_stein"} & set(frame[frame["group_size"] == 1]["method"])
    np.testing.assert_allclose(
        frame.groupby(["group_size"])["mse"].transform(lambda mse: mse / mse.iloc[0]),
        frame["ratio_to_known"].fillna(1.0),
    )
    assert STUDY.conclude(pd.DataFrame(rows))["max_ratio_to_best"].min() >= 1
