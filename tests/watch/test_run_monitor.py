"""The state of a run that is followed: at every moment what the whole log says by other ways."""

import math

import numpy as np
import pytest

from kaestat import RewardLog, gradient_risk, make_baseline, risk_differences, value_risk
from kaestat.datasets import simulated_run
from kaestat.watch import RunMonitor

METHODS = ["kae_eb", "kae", "kae:bandwidth=5,kernel=exponential", "rloo", "dr_grpo", "krpo", "james_stein"]
METHODS += ["kalman", "spo", "bayes_filter"]  # in the unit of the range


def made_log(*, group_size=6, groups=False, weight=False, n_prompts=40, seed=0, low=0, high=1) -> RewardLog:
    """Prompts that come and go, with ragged visits."""
    rng = np.random.default_rng(seed)
    frame = simulated_run(n_prompts=n_prompts, n_epochs=12, group_size=group_size, seed=seed).log.frame
    frame = frame[rng.random(len(frame)) < 0.9] if group_size > 1 else frame
    measures = {"weight": rng.exponential(1 + 3 * (frame["reward"] == 0))} if weight else {}
    group = rng.integers(0, 2, len(frame)) if groups else None
    return RewardLog(frame["prompt"], frame["step"], low + (high - low) * frame["reward"], group, **measures)


def by_steps(log: RewardLog, cut: int = 7):
    """The log in pieces that end within steps."""
    frame = log.frame
    for part in np.array_split(np.arange(len(frame)), cut):
        rows = frame.iloc[part]
        measures = {name: rows[name] for name in ("weight", "length") if name in rows}
        names = [log.prompts[code] for code in rows["prompt"]]
        group = [log.groups[code] for code in rows["group"]] if log.has_groups else None
        yield RewardLog(names, rows["step"], rows["reward"], group, **measures)


def followed(log: RewardLog, methods) -> RunMonitor:
    monitor = RunMonitor(methods)
    for piece in by_steps(log):
        monitor.add(piece)
    monitor.finish()
    return monitor


@pytest.mark.parametrize(("groups", "low", "high"), [(False, 0, 1), (True, 0, 1), (False, -2, 8)])
def test_value_errors_are_those_of_the_whole_log(groups, low, high):
    log = made_log(groups=groups, low=low, high=high)
    summary = followed(log, METHODS).summary()
    expected = value_risk(log, [row.method for row in summary.methods], n_boot=0)
    assert summary.absolute and len(summary.methods) == len(METHODS) + 2
    np.testing.assert_allclose([row.error for row in summary.methods], expected["mse"], rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose([row.error_se for row in summary.methods], expected["se"], rtol=1e-4)
    np.testing.assert_allclose([row.ratio for row in summary.methods], expected["vs_grpo"], rtol=1e-5)
    assert [row.error for row in summary.methods] == sorted(row.error for row in summary.methods)


def test_a_range_that_widens_holds_from_its_step_on_and_is_told():
    steps = [RewardLog(list("aabb"), [step] * 4, rewards) for step, rewards in enumerate([[0, 3, 1, 2], [8, 7, 1, 0]])]
    monitor = RunMonitor(["kalman", "kalman:low=0,high=8"])
    for log in steps:
        monitor.add(log, whole_steps=True)
    assert monitor.steps["error:kalman"][1] == monitor.steps["error:kalman:low=0,high=8"][1]
    (told,) = monitor.summary().told
    assert told.startswith("kalman: rewards reach from 0 to 8 since step 1,")


def test_with_one_completion_per_visit_differences_are_those_of_the_whole_log():
    log = made_log(group_size=1)
    summary = followed(log, ["kae_eb", "kae"]).summary()
    expected = risk_differences(log, [row.method for row in summary.methods], n_boot=0)
    assert not summary.absolute and math.isnan(summary.dead.mean)
    np.testing.assert_allclose([row.error for row in summary.methods], expected["difference"], rtol=1e-5, atol=1e-9)
    assert all(math.isnan(row.ratio) for row in summary.methods)


def test_gradient_noise_is_that_of_the_whole_log():
    log = made_log(weight=True)
    summary = followed(log, ["kae_eb", "kae"]).summary()
    table = gradient_risk(log, [row.method for row in summary.methods], n_boot=0)
    plain = table[table["weights"] == "none"].set_index("method")["vs_grpo"]
    assert summary.measured_by == "weight"
    np.testing.assert_allclose(
        [row.noise for row in summary.methods], [plain[row.method] for row in summary.methods], rtol=1e-5
    )
    assert all(0 <= row.noise_se < 0.5 for row in summary.methods)


def test_standard_errors_of_ratios_hold_their_promise():
    """Against the spread of the ratio over independent runs: chi-square within 4 standard errors of its own."""
    runs = [followed(made_log(seed=seed), ["kae:bandwidth=10"]).summary().methods for seed in range(40)]
    found = np.array([next((r.ratio, r.ratio_se) for r in rows if r.method == "kae:bandwidth=10") for rows in runs])
    spread = found[:, 0].std(ddof=1)
    assert spread / found[:, 1].mean() == pytest.approx(1.0, abs=4 / math.sqrt(2 * len(found)))


def test_groups_of_two_prompts_are_apart_whatever_their_numbers():
    """Of groups a-0, a-1, b-0 and b-1 the second and the third have numbers with one sum."""
    monitor = RunMonitor(["grpo"])
    monitor.add(RewardLog(list("aaaabbbb"), [0] * 8, [1, 0, 1, 1, 0, 0, 1, 0], group=[0, 0, 1, 1] * 2))
    monitor.finish()
    assert monitor.steps["dead"] == [1 / 2]


def test_figures_of_a_step_by_hand():
    monitor = RunMonitor(["kae:bandwidth=10"])
    monitor.add(RewardLog(list("aabbc"), [0] * 5, [1, 1, 0, 1, 0]))
    monitor.add(RewardLog(list("aaddee"), [1] * 6, [0, 0, 1, 1, 1, 0]))
    assert monitor.open_step == 1 and monitor.last_step == 0
    monitor.finish()
    assert monitor.open_step is None
    assert monitor.steps["dead"] == [1 / 2, 2 / 3]  # a of a and b: c is alone; a and d of a, d and e
    assert monitor.steps["right"] == [1 / 2, 1 / 3]
    assert monitor.steps["returned"] == [0, 1 / 3] and monitor.steps["reached"] == [0, pytest.approx(1 / 3)]
    assert monitor.steps["reward"] == [3 / 5, pytest.approx(1 / 2)]
    summary = monitor.summary()
    assert (summary.n_completions, summary.n_prompts, summary.n_steps) == (11, 5, 2)
    assert summary.reward.mean == pytest.approx(0.55) and summary.reward.se == pytest.approx(0.05)


def test_a_history_that_reaches_nothing_is_told_of():
    monitor = RunMonitor(["kae:bandwidth=2"])
    for step in range(0, 120, 10):
        monitor.add(RewardLog(list("aabbccddee"), [step] * 10, [0, 1] * 5))
    monitor.finish()
    summary = monitor.summary()
    assert summary.returned.mean > 0.9 and summary.reached.mean == 0
    assert any("bandwidth 2 reaches hardly any" in told for told in summary.told)


def test_completions_of_steps_that_are_over_are_counted_and_left_out():
    monitor = RunMonitor(["kae"])
    monitor.add(RewardLog(["a"] * 4, [0, 0, 1, 1], [0, 1, 1, 1]))
    monitor.add(RewardLog(["a"] * 3, [0, 1, 2], [1, 1, 1]))
    monitor.finish()
    summary = monitor.summary()
    assert summary.late == 1 and summary.n_completions == 6 and summary.last_step == 2


def test_nothing_is_known_of_a_run_that_has_not_begun():
    summary = RunMonitor().summary()
    assert summary.n_steps == 0 and summary.last_step == -1 and math.isnan(summary.reward.mean)
    assert all(math.isnan(row.error) for row in summary.methods)


def test_a_table_is_a_log_a_name_no_list_and_two_baselines_of_a_type_are_two_methods():
    of_log, of_table = RunMonitor(["kae"]), RunMonitor(["kae"])
    log = made_log()
    of_log.add(log, whole_steps=True)
    of_table.add(log.frame, whole_steps=True)
    assert [row.error for row in of_table.summary().methods] == [row.error for row in of_log.summary().methods]
    two = RunMonitor([make_baseline("kae", bandwidth=5), make_baseline("kae", bandwidth=9)])
    assert [name.partition("(")[0] for name in two.steps if name.startswith("error")][:2] == ["error:Kae"] * 2
    with pytest.raises(TypeError, match="methods must be a list of names, specifications or baselines, got 'kae'"):
        RunMonitor("kae")


def test_memory_grows_with_prompts_and_not_with_steps():
    monitor = RunMonitor(["rloo"])
    for step in range(3):
        monitor.add(RewardLog(np.arange(4000).repeat(2), np.full(8000, step), np.tile([0, 1], 4000)))
    monitor.finish()
    assert monitor.summary().n_prompts == 4000
    assert monitor._errors._sums.shape[1] < 3 * 4000
