"""What `analyze` says of the gradient's noise, and that what it says is so."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from kaestat import AdvantageEstimator, RewardLog, gradient_differences, gradient_risk
from kaestat.datasets import simulated_run
from kaestat.integrations.verl.options import Options
from kaestat.report.analysis import analyze
from kaestat.report.cli import run
from kaestat.report.gradient_text import history_verdict, noise_table
from kaestat.report.headline import headline, paste_lines, paste_notes
from kaestat.report.setting import Setting

pytestmark = pytest.mark.filterwarnings("ignore::kaestat.logs.prompt_risks.FewPromptsWarning")

FRAME = simulated_run(n_prompts=40, n_epochs=8).log.frame[["prompt", "step", "reward"]]
METHODS = ["none", "grpo", "kae:bandwidth=6", "ebpo"]


def frame_with(ratio: float, column: str = "score_norm", *, seed: int = 2) -> pd.DataFrame:
    """The simulated run, wrong answers ``ratio`` times as heavy."""
    noise = np.random.default_rng([seed, 41]).gamma(4.0, 0.25, size=len(FRAME))
    return FRAME.assign(**{column: np.where(FRAME["reward"] > 0, 1.0, ratio) * noise})


def analysis_of(ratio: float, column: str = "score_norm", methods=METHODS, **options):
    return analyze(RewardLog.from_frame(frame_with(ratio, column)), methods, **({"n_boot": 200} | options))


@pytest.fixture(scope="module")
def heavy():
    return analysis_of(6.0)


@pytest.fixture(scope="module")
def alike():
    return analysis_of(1.0)


def test_the_table_is_that_of_the_library_lowest_first(heavy):
    log = RewardLog.from_frame(frame_with(6.0))
    table = gradient_risk(log, METHODS[:3], n_boot=200)
    expected = table.sort_values("noise", kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(heavy.gradient.noise, expected)
    gap = gradient_differences(log, ["kae:bandwidth=6"], heavy.gradient.plain, n_boot=200).iloc[1]
    expected = 1 - gap["ratio"], 1 - gap["ratio_high"], 1 - gap["ratio_low"]
    assert heavy.gradient.saving == pytest.approx(expected, rel=1e-12)
    shown = noise_table(heavy.gradient)
    assert len(shown.rows) == len(table) and {len(row) for row in shown.rows} == {len(shown.header)}


def test_where_weights_matter_it_says_so_first_with_the_error_and_the_lines(heavy):
    found = heavy.gradient
    plain = found.noise[found.noise["weights"] == "none"]["method"].iloc[0]
    assert found.matter and (found.row, found.weights) == ("kae:bandwidth=6", "score_norm")
    assert found.plain == plain == "none"  # no value at all is better here than a good one
    assert found.ratio[1] < 6.0 < found.ratio[2] and found.ratio[0] == pytest.approx(6.0, rel=0.15)
    text = headline(heavy)
    shares = r"[\d.]+ % \(-?[\d.]+ to [\d.]+\)"
    assert re.match(
        r"Your wrong answers weigh [56]\.\d+ \(95 % interval [\d.]+ to [\d.]+\) times as much as right ones: use kae "
        r"with bandwidth 6 steps and the triangular kernel with weights=score_norm\. "
        rf"The gradient then has {shares} less noise than with GRPO's group mean\. "
        rf"With the best method without weights, none, it has {shares} less\. By the value alone: ",
        text,
    )
    best, low, high = found.reduction(found.row, found.weights)
    assert f"{100 * best:.0f} % ({100 * low:.0f} to {100 * high:.0f}) less noise" in text
    assert "where score norms do not matter" not in text and not re.search(r"nan|inf\b|None", text)
    lines = dict(paste_lines(heavy))
    assert set(lines) == {"TRL", "A loop of your own", "verl"}
    assert lines["verl"].endswith(
        "+algorithm.kaestat.weights=score_norm actor_rollout_ref.actor.calculate_sum_pi_squared=True "
        "trainer.v1.trainer_mode=kaestat_sync"
    )
    assert lines["TRL"].endswith('weights="score_norm", ...)')
    estimator = eval(
        re.search(r"AdvantageEstimator\(.*?\)", lines["TRL"])[0], {"AdvantageEstimator": AdvantageEstimator}
    )
    names = {"AdvantageEstimator": AdvantageEstimator, "step": 0, "score_norms": [1.0, 5.0]}
    eval(lines["A loop of your own"], names | {"prompt_ids": ["a", "a"], "rewards": [1.0, 0.0]})
    assert estimator.baseline.takes_weights and estimator.method == "kae" and paste_notes(heavy) == []


def test_lines_of_a_weighted_batch_mean_leave_its_whitening_out():
    setting = Setting("reinforce++", {})
    assert setting.python_line("step", "length") == 'AdvantageEstimator("reinforce++", scale="none")'
    line = setting.verl_line("step", "length")
    assert line == "algorithm.adv_estimator=reinforce++ +algorithm.kaestat.scale=none +algorithm.kaestat.weights=length"
    assert setting.python_line("step") == 'AdvantageEstimator("reinforce++")'
    assert Setting("kae", {}).python_line("step", "length") == 'AdvantageEstimator("kae")'


def test_of_tied_weighted_rows_kae_eb_is_taken():
    analysis = analysis_of(6.0, methods=["none", "grpo", "kae:bandwidth=6", "kae_eb:bandwidth=6"])
    assert (analysis.gradient.row, analysis.gradient.weights) == ("kae_eb:bandwidth=6", "score_norm")
    assert dict(paste_lines(analysis))["verl"].startswith("algorithm.adv_estimator=kae_eb ")


def test_kae_eb_is_not_taken_where_another_weighted_row_is_clearly_better():
    """Values far apart that stay, and a bandwidth that reaches nothing: kae has a past, kae_eb none."""
    rng = np.random.default_rng(43)
    prompt, step = (each.ravel() for each in np.mgrid[:60, :60] // [[[1]], [[2]]])
    reward = (rng.random(prompt.size) < np.where(prompt < 30, 0.1, 0.9)).astype(float)
    log = RewardLog(prompt, step, reward, weight=np.where(reward > 0, 1.0, 3.0))
    found = analyze(log, ["none", "kae:bandwidth=20", "kae_eb:bandwidth=0.5"], n_boot=200).gradient
    assert (found.row, found.weights) == ("kae:bandwidth=20", "score_norm")


def test_where_values_mislead_and_weights_are_no_better_no_baseline_is_named():
    analysis = analysis_of(1e3, methods=["none", "kae:bandwidth=6"])
    found = analysis.gradient
    assert found.plain == "none" and found.misled and not found.matter  # kae is not the one to take where it is tied
    assert re.search(
        r"leave them out\. .* kae:bandwidth=6 leaves \d+ % \(.*?\) less noise than GRPO's group mean\. Training "
        r"without a baseline leaves 99 % \(.*?\) less noise than GRPO's group mean: do not subtract values in this "
        r"run\. By the value alone: Use kae",
        headline(analysis),
    )
    assert paste_lines(analysis) == []
    of_grpo = headline(analysis_of(30.0, methods=["none", "grpo"]))
    assert "Training without a baseline leaves 8" in of_grpo and "grpo leaves" not in of_grpo


def test_where_they_make_no_difference_they_are_to_be_left(alike):
    found = alike.gradient
    assert not found.matter and found.ratio[1] < 1.0 < found.ratio[2]
    text = headline(alike)
    assert text.startswith("Use kae") and re.search(
        r"Weights (are not shown to lower the noise|add noise).*: leave them out\.", text
    )
    assert re.search(r"leaves [\d.]+ % \([\d.]+ to [\d.]+\) less noise than GRPO's group mean\.", text)
    assert {where for where, _ in paste_lines(alike)} == {"TRL, or a loop of your own", "verl"}


def test_lengths_are_called_a_stand_in_and_go_into_verls_line():
    found = analysis_of(6.0, "response_length")
    assert found.gradient.by_length and found.gradient.weights == "length"
    assert "times as much as right ones by length: use kae" in headline(found)
    line = dict(paste_lines(found))["verl"]
    assert "+algorithm.kaestat.weights=length" in line.split()
    assert "weights" in Options.__dataclass_fields__


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_rewards_that_are_all_the_same_give_no_advice(reward):
    analysis = analyze(RewardLog.from_frame(frame_with(6.0).assign(reward=reward)), METHODS, n_boot=40)
    assert not analysis.gradient.matter and not re.search(r"nan|inf\b|None|leave them", headline(analysis))


def test_the_command_line_prints_writes_and_downloads_it(tmp_path, capsys):
    path, out = tmp_path / "run.csv", tmp_path / "report"
    frame_with(6.0, "norms").to_csv(path, index=False)
    words = [f"--method={method}" for method in METHODS] + ["--n-boot=40", "--hint", "weight=norms"]
    assert run(["analyze", str(path), *words, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Noise of the gradient, E[W (R - b)^2] per completion" in printed and "score_norm" in printed
    table = pd.read_csv(out / "gradient.csv")
    page = (out / "report.html").read_text()
    assert "<h2>Noise of the gradient" in page and 'download="gradient.csv"' in page
    for row in table.itertuples():
        assert f"</td><td>{row.weights}</td><td>{1e3 * row.noise:.2f}</td>" in page
        assert f"<td>{row.method}<" in page
    assert run(["analyze", str(path), *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["gradient"]
    assert document["weights"] == "score_norm" and document["setting"]["method"] == "kae"
    np.testing.assert_allclose([row["noise"] for row in document["noise"]], table["noise"], rtol=1e-12)
    assert run(["analyze", str(path), *words[:-1], "weight=nope"]) == 2
    assert "has no column 'nope'" in capsys.readouterr().err


PAST = ["none", "reinforce++", "kae_eb"]


def spread_frame(ratio: float, *, seed: int = 3) -> pd.DataFrame:
    """Prompts whose values lie between .05 and .95 and do not move, wrong answers ``ratio`` times as heavy."""
    rng = np.random.default_rng(seed)
    value = rng.uniform(0.05, 0.95, size=60)
    frame = pd.DataFrame([(p, step) for step in range(12) for p in range(60)], columns=["prompt", "step"])
    frame = frame.loc[frame.index.repeat(4)].reset_index(drop=True)
    frame["reward"] = (rng.random(len(frame)) < value[frame["prompt"]]).astype(float)
    return frame.assign(score_norm=np.where(frame["reward"] > 0, 1.0, ratio) * rng.gamma(4.0, 0.25, size=len(frame)))


def test_a_history_is_said_to_pay_where_values_are_spread_and_weights_alike():
    found = analyze(RewardLog.from_frame(spread_frame(1.0)), PAST, n_boot=200)
    assert found.gradient.by_history[1] > 0
    told = headline(found)
    assert "A history pays for the gradient: weighted kae_eb leaves" in told
    assert "less noise than the batch mean with the same weights" in told
    assert "weigh more than 4." in told and "which is below that." in told  # at the mean success rate it would be 3


def test_a_history_is_not_said_to_pay_where_one_number_does():
    found = analyze(RewardLog.from_frame(spread_frame(200.0)), PAST, n_boot=200)
    log = RewardLog.from_frame(spread_frame(200.0))
    table = gradient_risk(log, PAST[1:], n_boot=0).query("weights == 'score_norm'").set_index("method")["noise"]
    assert found.gradient.by_history[0] == pytest.approx(1 - table["kae_eb"] / table["reinforce++"])
    told = headline(found)
    assert found.gradient.by_history[2] < 0.05 and "A history does not pay for the gradient" in told
    assert "needs no history" in told and "training without a baseline leaves less noise" in told
    assert "weigh more than 4." in told and "which is above that." in told


def test_a_history_pays_where_it_saves_more_than_a_twentieth_of_the_noise(heavy):
    cases = {(0.2, 0.06, 0.3): "pays", (0.2, 0.04, 0.3): "is not shown to pay", (0.0, -0.1, 0.04): "does not pay"}
    for share, verdict in cases.items():
        assert history_verdict(replace(heavy.gradient, by_history=share)) == verdict
    assert np.isnan(heavy.gradient.by_history[0]) and history_verdict(heavy.gradient) == ""  # its replay lacks a row


def test_the_law_agrees_with_what_was_replayed_and_is_in_all_outputs(tmp_path, capsys):
    path = tmp_path / "run.csv"
    spread_frame(3.0).to_csv(path, index=False)
    words = ["analyze", str(path), "--n-boot", "40", *(word for name in ("grpo", *PAST) for word in ("--method", name))]
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    law, noise = document["gradient"]["law"], document["gradient"]["noise"]
    table = {row["design"]: row for row in law["table"]}
    for design, method, weights in (("none", "none", "none"), ("weighted_history", "kae_eb", "score_norm")):
        measured = next(row for row in noise if (row["method"], row["weights"]) == (method, weights))["vs_grpo"]
        assert measured == pytest.approx(table[design]["noise"], rel=0.1)
    assert law["threshold"][0] == pytest.approx(4.48, rel=0.15)  # 1 + E p^2 / E p^2 (1 - p)
    assert run([*words, "--out", str(tmp_path / "report")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "report" / "report.html").read_text()
    for text in (shown, page):
        assert "predicted by the law of the baseline" in text and "rloo_4" in text
    written = pd.read_csv(tmp_path / "report" / "law.csv")
    assert written["design"].tolist() == [row["design"] for row in law["table"]]


def test_the_law_says_nothing_of_logs_that_it_is_not_about():
    frame = spread_frame(3.0)
    graded = analyze(RewardLog.from_frame(frame.assign(reward=frame["reward"] / 2)), PAST, n_boot=40)
    once = analyze(RewardLog.from_frame(frame.loc[frame["step"] == 0]), PAST, n_boot=40)
    for found in (graded, once):
        assert found.law is None and "law of the baseline" not in headline(found)
