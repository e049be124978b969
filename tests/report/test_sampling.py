"""What `analyze --sampling` says of prompts that teach nothing, and that what it says is so."""

import json

import numpy as np
import pandas as pd
import pytest

from kaestat import RewardLog, sampling_risk
from kaestat.datasets import simulated_run
from kaestat.report.analysis import analyze
from kaestat.report.cli import run
from kaestat.report.headline import headline, paste_lines
from kaestat.report.sampling import BUDGET, NO_RETURNS, POLICIES, SAMPLING_LINE, sampling_table

METHODS = ["grpo", "kae:bandwidth=6"]
FRAME = simulated_run(n_prompts=60, n_epochs=8).log.frame[["prompt", "step", "reward"]]


def analysis_of(frame: pd.DataFrame, **options):
    return analyze(RewardLog.from_frame(frame), METHODS, **({"n_boot": 100, "sampling": True} | options))


@pytest.fixture(scope="module")
def ordinary():
    return analysis_of(FRAME)


@pytest.fixture(scope="module")
def all_alike():
    """Prompts of one value: there is nothing to choose."""
    rng = np.random.default_rng(0)
    return analysis_of(FRAME.assign(reward=(rng.random(len(FRAME)) < 0.5).astype(float)))


def test_the_table_is_that_of_the_library_most_worth_first(ordinary):
    table = sampling_risk(RewardLog.from_frame(FRAME), POLICIES, budget=BUDGET, n_boot=100)
    expected = table.sort_values("worth", ascending=False, kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(ordinary.sampling.table, expected)
    shown = sampling_table(ordinary.sampling)
    assert len(shown.rows) == len(POLICIES) and {len(row) for row in shown.rows} == {len(shown.header)}


def test_where_it_gains_it_says_by_how_much_and_gives_the_line(ordinary):
    ours, uniform = ordinary.sampling.row("neyman"), ordinary.sampling.row("uniform")
    assert ours.ci_low > 1
    told = headline(ordinary)
    assert f"{100 * uniform.dead:.0f} % of your completions went to prompts that were all right or all wrong." in told
    assert f"are worth {ours.worth:.2f} ({ours.ci_low:.2f} to {ours.ci_high:.2f}) times as many" in told
    assert paste_lines(ordinary)[-1] == SAMPLING_LINE


def test_where_nothing_is_gained_it_says_so_and_gives_no_line(all_alike):
    assert all_alike.sampling.row("neyman").ci_low <= 1
    assert "is not shown to help" in headline(all_alike)
    assert SAMPLING_LINE not in paste_lines(all_alike)


def test_a_log_whose_prompts_do_not_come_back_has_a_note_instead():
    once = FRAME[FRAME["step"] == FRAME["step"].min()]
    found = analyze(RewardLog.from_frame(once), ["rloo", "james_stein"], n_boot=0, sampling=True)
    assert found.sampling is None and NO_RETURNS in found.notes


def test_the_command_writes_the_table_the_page_and_json(tmp_path, capsys):
    FRAME.to_csv(tmp_path / "log.csv", index=False)
    methods = [word for method in METHODS for word in ("--method", method)]
    common = ["analyze", str(tmp_path / "log.csv"), "--sampling", "--n-boot", "40", *methods]
    assert run([*common, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "neyman" in shown and "Worth of half of the completions" in shown
    table = pd.read_csv(tmp_path / "out" / "sampling.csv")
    assert table["policy"].tolist()[0] in POLICIES and len(table) == len(POLICIES)
    assert "you draw half of the completions" in (tmp_path / "out" / "report.html").read_text()
    assert run([*common, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["policy"] for row in document["sampling"]} == set(POLICIES)
