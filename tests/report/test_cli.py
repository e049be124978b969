"""The command line: what it prints, what it writes, and how it fails."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kaestat import read_log, risk_differences, select_bandwidth, value_risk
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.datasets import simulated_run
from kaestat.report.analysis import TUNED_METHODS, analyze, default_methods
from kaestat.report.tables import selection_line
from kaestat.smoothing.selectors import BandwidthSelection


def write_log(log, path):
    """A long CSV file of a log."""
    log.frame[["prompt", "step", "reward"]].to_csv(path, index=False)
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def log_file(folder):
    return write_log(simulated_run(n_prompts=60, n_epochs=12).log, folder / "run.csv")


@pytest.fixture(scope="module")
def singles_file(folder):
    return write_log(simulated_run(n_prompts=60, n_epochs=12, group_size=1).log, folder / "singles.csv")


def test_analyze_prints_every_method_lowest_first(command, log_file):
    status, out, err = command("analyze", log_file, "--n-boot", 40, "--all")
    assert (status, err) == (0, "")
    names = [line.split()[0] for line in out.splitlines() if line and line.split()[0] in default_methods()]
    expected = value_risk(read_log(log_file), default_methods(), n_boot=0).sort_values("mse", kind="stable")
    assert names[: len(expected)] == expected["method"].tolist()
    assert "5,760 completions of 60 prompts" not in out  # some prompts sit out an epoch: not 60 * 12 * 8
    assert f"{len(read_log(log_file).frame):,} completions of 60 prompts" in out


def test_ten_rows_are_shown_with_those_that_the_answer_names(command, log_file):
    _, out, _ = command("analyze", log_file, "--n-boot", 40)
    shown = [line.split()[0] for line in out.splitlines() if line and line.split()[0] in default_methods()]
    assert 10 <= len(shown) <= 12 and {DEFAULT_METHOD, "grpo"} <= set(shown)
    assert re.search(r"\d+ more methods with --all", out)


def test_methods_that_are_not_scored_change_neither_the_answer_nor_other_rows(command, log_file):
    _, out, _ = command("analyze", log_file, "--n-boot", 40)
    few, every = (analyze(read_log(log_file), every=every, n_boot=40) for every in (False, True))
    assert few.recommendation == every.recommendation and not every.unscored
    names = set(few.risk["method"])
    assert {*names, *few.unscored} == set(every.risk["method"]) and {"sieve", "ebpo", "dr_grpo"} <= set(few.unscored)
    for name in ("risk", "differences"):
        whole = getattr(every, name)
        kept = whole[whole["method"].isin(names)].reset_index(drop=True)
        pd.testing.assert_frame_equal(getattr(few, name), kept)
    table = out[out.index("method ") : out.index(" more methods")].splitlines()[1:-1]
    more = int(re.search(r"(\d+) more methods", out)[1])
    assert sum(" to " in row for row in table) + more == len(default_methods()) + len(TUNED_METHODS)


def test_default_methods_are_all_that_need_rewards_alone():
    assert {"kae", "kae_eb", "grpo", "reinforce++", "spo", "sieve"} <= set(default_methods())
    assert not {"oracle"} & set(default_methods())


def test_json_holds_what_the_library_computes(command, log_file):
    specifications = ["grpo", "kae:bandwidth=4,kernel=exponential"]
    options = [part for specification in specifications for part in ("--method", specification)]
    status, out, err = command("analyze", log_file, *options, "--n-boot", 50, "--seed", 3, "--min-visits", 2, "--json")
    found, log = json.loads(out), read_log(log_file)
    assert (status, err) == (0, "")
    expected = value_risk(log, specifications, n_boot=50, seed=3, min_visits=2).sort_values("mse", ignore_index=True)
    pd.testing.assert_frame_equal(pd.DataFrame(found["risk"]), expected)
    differences = pd.DataFrame(found["differences"])
    for reference in (DEFAULT_METHOD, "grpo"):
        mine = differences[differences["reference"] == reference].sort_values("method", ignore_index=True)
        library = risk_differences(log, specifications, reference, n_boot=50, seed=3, min_visits=2)
        pd.testing.assert_frame_equal(mine, library.sort_values("method", ignore_index=True))
    assert found["bandwidth"] is None
    assert (found["provenance"]["seed"], found["provenance"]["min_visits"]) == (3, 2)


def test_json_has_null_for_what_is_no_number(command, log_file):
    status, out, _ = command("bandwidth", log_file, "--selector", "fixed", "--json")
    assert status == 0
    assert json.loads(out, parse_constant=pytest.fail)["se"] is None


def test_bandwidth_grid_shows_the_path_of_both_kernels(command, log_file):
    status, out, _ = command("analyze", log_file, "--method", "kae", "--bandwidth-grid", "--n-boot", 40, "--json")
    path = pd.DataFrame(json.loads(out)["bandwidth"])
    assert status == 0 and set(path["kernel"]) == {"triangular", "exponential"}
    log = read_log(log_file)
    rows = path.iloc[[0, 12, -1]]
    methods = [f"kae:kernel={row.kernel},bandwidth={row.bandwidth!r}" for row in rows.itertuples()]
    np.testing.assert_allclose(rows["risk"], value_risk(log, methods, n_boot=0)["mse"], rtol=1e-9)
    _, text, _ = command("analyze", log_file, "--method", "kae", "--bandwidth-grid", "--n-boot", 40)
    assert "triangular kernel" in text and "exponential kernel" in text


def test_bandwidth_agrees_with_select_bandwidth(command, log_file):
    status, out, _ = command("bandwidth", log_file, "--kernel", "exponential", "--json")
    expected = select_bandwidth(read_log(log_file), "forward_cv", "exponential")
    found = json.loads(out)
    assert status == 0
    assert (found["bandwidth"], found["se"]) == (expected.bandwidth, expected.se)
    _, text, _ = command("bandwidth", log_file, "--kernel", "exponential")
    answer = f"By forward_cv, exponential kernel: bandwidth {expected.bandwidth:.2f} steps (standard error "
    assert text.startswith(answer)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [(1.5, "This is the shortest of the grid, 1.50 to 20.00"), (3.0, None), (20.0, "This is the longest of the grid")],
)
def test_a_bandwidth_at_the_edge_of_its_grid_is_said_to_be_there(chosen, words):
    path = pd.DataFrame({"bandwidth": [1.5, 3.0, 20.0]})
    line = selection_line(BandwidthSelection(chosen, 1.0, path, "forward_cv"), "triangular")
    assert words in line if words else line.endswith("bandwidth 3.00 steps (standard error 1.00).")


def test_rows_without_a_reward_are_dropped_if_wanted(command, log_file, tmp_path):
    frame = pd.read_csv(log_file)
    holes = frame.iloc[:1].assign(reward=None)
    pd.concat([frame, holes]).to_csv(tmp_path / "run.csv", index=False)
    assert command("bandwidth", tmp_path / "run.csv", "--json")[0] == 2
    status, out, err = command("bandwidth", tmp_path / "run.csv", "--json", "--missing", "drop")
    assert (status, out) == command("bandwidth", log_file, "--json")[:2] and "left out for lack of reward" in err


def test_one_completion_per_visit_gives_differences_with_an_explanation(command, singles_file):
    status, out, err = command("analyze", singles_file, "--n-boot", 40, "--all")
    assert (status, err) == (0, "")
    assert "difference to default" in out and "One completion per visit (G = 1)" in out
    assert "Left out" in out and "krpo" in out
    _, text, _ = command("analyze", singles_file, "--method", "spo", "--n-boot", 40, "--json")
    found = json.loads(text)
    expected = risk_differences(read_log(singles_file), ["spo"], DEFAULT_METHOD, n_boot=40)
    assert found["risk"] is None
    assert found["differences"][0]["difference"] == expected["difference"].item()


def test_visit_index_as_time_is_said_plainly(command, folder):
    path = folder / "accuracies.json"
    path.write_text(json.dumps({f"p{k}": [0.25 * (k % 4), 0.5, 0.25, 1.0] for k in range(6)}))
    status, out, _ = command("analyze", path, "--hint", "group_size=4", "--n-boot", 0)
    assert status == 0
    assert "visit index of each prompt" in out and "groups of 4" in out and "count visits" in out


def test_methods_lists_all_with_what_they_need(command):
    status, out, _ = command("methods")
    assert status == 0
    assert all(name in out for name in ("kae_eb", "local_polynomial", "none"))
    assert "needs greedy=" in out


def test_simulated_run_can_stand_for_a_log(command):
    status, out, _ = command("analyze", "--simulated", "--method", "grpo", "--n-boot", 0, "--json")
    found = json.loads(out)
    assert status == 0 and found["provenance"]["sha256"] is None
    assert found["risk"][0]["mse"] == pytest.approx(
        value_risk(simulated_run().log, ["grpo"], n_boot=0)["mse"].item(), rel=1e-12
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyze", "LOG", "--method", "kae:bandwidth=-1"], "--method kae:bandwidth=-1: bandwidth must be positive"),
        (["analyze", "LOG", "--method", "oracle"], "needs value="),
        (["analyze", "LOG", "--min-visits", "99"], "lower --min-visits"),
        (["analyze", "LOG", "--n-boot", "-1"], "--n-boot"),
        (["analyze", "LOG", "--hint", "nope"], "write KEY=VALUE"),
        (["analyze", "LOG", "--simulated"], "not both"),
        (["analyze"], "give a reward log"),
        (["analyze", "missing.csv"], "no such file"),
        (["analyze", "TORN"], "torn.json"),
        (["analyze", "SINGLES", "--method", "ebpo"], "nothing is identified"),
        (["bandwidth", "LOG", "--selector", "nope"], "--selector: unknown name"),
        (["bandwidth", "LOG", "--kernel", "nope"], "--kernel: unknown name"),
        ([], "Missing command"),
    ],
)
def test_errors_are_one_line_with_status_two_and_write_nothing(
    command, log_file, singles_file, tmp_path, arguments, message
):
    torn = tmp_path / "torn.json"
    torn.write_text('{"a": [0.25, 0.5')
    out = tmp_path / "out"
    places = {"LOG": log_file, "SINGLES": singles_file, "TORN": torn}
    arguments = [places.get(argument, argument) for argument in arguments]
    if arguments[:1] == ["analyze"]:
        arguments += ["--out", out]
    status, printed, err = command(*arguments)
    assert (status, printed) == (2, "")
    assert message in err and len(err.splitlines()) == 1 and err.startswith("kaestat: ")
    assert not out.exists()


@pytest.mark.slow
def test_real_run_has_the_known_risks(command):
    folder = os.environ.get("KAESTAT_DATA")
    path = Path(folder or "") / "acc_step_500_dev.json"
    if not folder or not path.exists():
        pytest.skip("KAESTAT_DATA points to no folder with acc_step_500_dev.json")
    status, out, _ = command("analyze", path, "--json")
    found = json.loads(out)
    risk = {row["method"]: row for row in found["risk"]}
    assert status == 0 and found["facts"]["time_axis"] == "visit" and found["facts"]["group_size"] == [8, 8]
    # E p(1-p) / 7 of the leave-one-out mean, from the group accuracies alone
    groups = json.loads(path.read_text())
    spread = [np.mean([k * (8 - k) / 56 for k in np.rint(8 * np.array(a[1:]))]) for a in groups.values()]
    assert risk["grpo"]["mse"] == pytest.approx(np.mean(spread) / 7, rel=1e-9)
    assert risk["kae:bandwidth=10"]["vs_grpo"] == pytest.approx(0.150, abs=0.001)
    assert risk["kae:bandwidth=10"]["ci_high"] < risk["kalman"]["mse"]
