"""The value error of every baseline along a run, from the run's own rewards."""

import numpy as np
import pandas as pd
import pytest

import kaestat
from kaestat.datasets import simulated_run
from kaestat.logs.replay import replay
from llm_experiments.training.value_error import value_errors


def single(log: kaestat.RewardLog) -> kaestat.RewardLog:
    """The log with the first completion of every visit alone."""
    frame = log.frame.groupby(["prompt", "step"], as_index=False).first()
    return kaestat.RewardLog(frame["prompt"].tolist(), frame["step"].tolist(), frame["reward"].tolist())


def test_one_window_is_the_librarys_risk():
    log = simulated_run(n_prompts=40, n_epochs=12, group_size=4).log
    found = value_errors(log, ["grpo", "kae:bandwidth=5"], windows=1)
    expected = kaestat.value_risk(log, ["grpo", "kae:bandwidth=5"], n_boot=0)
    assert found["mse"].to_numpy() == pytest.approx(expected["mse"].to_numpy())
    assert found["mse_se"].to_numpy() == pytest.approx(expected["se"].to_numpy())
    paired = kaestat.risk_differences(log, ["grpo", "kae:bandwidth=5"], "reinforce++", n_boot=0)
    assert found["less_reference"].to_numpy() == pytest.approx(paired["difference"].to_numpy())
    assert found["less_reference_se"].to_numpy() == pytest.approx(paired["se"].to_numpy())


def test_windows_part_the_run_and_its_visits():
    log = simulated_run(n_prompts=40, n_epochs=13, group_size=4).log
    found = value_errors(log, ["kae"])
    steps = int(log.frame["step"].max()) + 1
    assert found["from_step"].tolist()[0] == 0 and found["to_step"].tolist()[-1] == steps
    assert found["from_step"].tolist()[1:] == found["to_step"].tolist()[:-1]
    assert found["n_visits"].sum() == value_errors(log, ["kae"], windows=1)["n_visits"].item()


def test_windows_agree_with_the_true_values():
    """Against what no real log has: the mean squared distance from the true values, window by window."""
    simulated = simulated_run(n_prompts=400, n_epochs=20)
    log, truth = simulated.log, simulated.values  # noqa: PD011 (no pandas object)
    found = value_errors(log, ["kae:bandwidth=10"])
    values, _ = replay(log, kaestat.make_baseline("kae", bandwidth=10))
    frame = log.frame.assign(loss=(values - truth) ** 2)
    frame["first"] = frame["step"] == frame.groupby("prompt")["step"].transform("min")
    for row in found.itertuples():
        inside = frame[(frame["step"] >= row.from_step) & (frame["step"] < row.to_step) & ~frame["first"]]
        loss = inside.groupby("prompt")["loss"].mean().mean()
        assert abs(row.mse - loss) < 4 * row.mse_se
        assert row.mse_se < 0.5 * row.mse  # so that this says something


def test_with_one_completion_only_differences_are_told():
    log = single(simulated_run(n_prompts=60, n_epochs=12, group_size=4).log)
    found = value_errors(log, ["none", "kae:bandwidth=5", "spo"])
    assert found["mse"].isna().all() and np.isfinite(found["less_reference"]).all()
    worst, best = found[found["baseline"] == "none"], found[found["baseline"] == "kae:bandwidth=5"]
    assert best["less_reference"].mean() < 0 < worst["less_reference"].mean()


def test_a_run_without_a_second_visit_has_no_rows():
    log = kaestat.RewardLog(["a", "b", "c", "d"], [0, 0, 1, 1], [1.0, 0.0, 1.0, 1.0])
    found = value_errors(log, ["kae"])
    assert isinstance(found, pd.DataFrame) and found.empty and "mse" in found
