"""What the law of the baseline makes of a log, against what was simulated and against replays of it."""

import numpy as np
import pytest

from kaestat import RewardLog, gradient_risk, make_baseline
from kaestat.datasets import simulated_run
from kaestat.logs.baseline_law import law_applies, law_inputs, law_of_log
from kaestat.logs.replay import replay
from kaestat.logs.value_mixture import ATOMS, ValueMixture

RUNS = {size: simulated_run(n_prompts=300, n_epochs=24, group_size=size) for size in (1, 2, 8)}


def log_with(rho, *, size=8, seed=1, column="weight"):
    """The simulated run of this group size, wrong answers ``rho`` times as heavy."""
    frame = RUNS[size].log.frame
    noise = np.random.default_rng(seed).gamma(4.0, 0.25, len(frame))
    weight = np.where(frame["reward"] > 0, 1.0, rho) * noise
    return RewardLog(frame["prompt"], frame["step"], frame["reward"], time_axis="visit", **{column: weight})


def later_values(size):
    return RUNS[size].values[RUNS[size].log.frame["step"] > 0]


def test_a_mixture_of_two_success_rates_is_found_and_the_counts_own_spread_is_not_it():
    rng = np.random.default_rng(0)
    right = rng.binomial(4, np.repeat([0.1, 0.7], [6000, 4000]))
    mixture = ValueMixture(np.arange(5), np.full(5, 4), np.bincount(right, minlength=5).astype(float))
    moments = [float(mixture.share @ ATOMS**power) for power in (0, 1, 2)]
    assert moments == pytest.approx([1, 0.34, 0.6 * 0.01 + 0.4 * 0.49], abs=0.01)
    assert np.mean((right / 4) ** 2) > moments[2] + 0.02  # counts are spread more widely
    rows = ATOMS[mixture.quantiles(400)]
    assert [rows.mean(), np.square(rows).mean()] == pytest.approx(moments[1:], abs=2e-3)


def test_sums_belong_to_success_rates_as_far_as_their_counts_say():
    """By hand, with counts that leave no doubt: 20 right of 20 are of p = 1, none of 20 of p = 0."""
    mixture = ValueMixture(np.array([0, 20]), np.array([20, 20]), np.array([1.0, 1.0]))
    found = mixture.means(np.array([300.0, 100.0]), np.array([100.0, 100.0]))
    pooled = 400 / 200  # one completion of the pooled mean is added
    assert found[0] == pytest.approx((300 + pooled) / 101, rel=0.01)
    assert found[-1] == pytest.approx((100 + pooled) / 101, rel=0.01)


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("rho", [1.0, 4.0])
def test_inputs_are_those_that_were_simulated(size, rho):
    found, p = law_inputs(log_with(rho, size=size)), later_values(size)
    moments = found.moments
    best = p / (p + (1 - p) * rho)
    assert [moments.value.mean(), np.square(moments.value).mean()] == pytest.approx(
        [p.mean(), np.square(p).mean()], abs=0.012
    )
    assert [moments.best.mean(), moments.best.std()] == pytest.approx([best.mean(), best.std()], abs=0.015)
    assert moments.ratio == pytest.approx(rho, rel=0.06)
    assert moments.threshold == pytest.approx(1 + np.mean(p**2) / np.mean(p**2 * (1 - p)), rel=0.08)
    assert moments.common == 0 and not moments.signal.any()


@pytest.mark.parametrize("size", [1, 8])
def test_the_error_of_the_history_is_that_against_the_truth(size):
    log = log_with(1.0, size=size)
    found, p = law_inputs(log), RUNS[size].values
    past = (log.frame["step"] > 0).to_numpy()
    if size == 1:  # at one completion a replay has the past alone
        kae = make_baseline("kae", bandwidth=found.bandwidth, kernel="exponential")
        squared = np.mean(np.square(replay(log, kae)[0] - p)[past])
    else:
        squared = 0.0
        series = p.reshape(-1, size)[:, 0]
        units = log.prompt_units
        for unit in range(len(log.prompts)):
            visits = np.flatnonzero(units.visit_unit == unit)
            for here in range(1, len(visits)):
                lag = units.visit_step[visits[here]] - units.visit_step[visits[:here]]
                kernel = np.exp(-lag / found.bandwidth)
                mean = kernel @ (units.total[visits[:here]] / size) / kernel.sum()
                squared += (mean - series[visits[here]]) ** 2 / past[::size].sum()
    predicted = np.mean(p * (1 - p)) / found.history + found.drift.mean()
    assert predicted == pytest.approx(squared, rel=0.12)


@pytest.mark.parametrize("rho", [1.0, 2.0, 8.0])
def test_the_law_says_what_replays_of_the_log_measure(rho):
    log = log_with(rho)
    table = law_of_log(log).table().set_index("design")["noise"]
    methods = ["none", "reinforce++", "grpo", "kae_eb"]
    measured = gradient_risk(log, methods, n_boot=0).set_index(["method", "weights"])["vs_grpo"]
    for design, row, tolerance in (
        ("none", ("none", "none"), 0.02),
        ("batch_mean", ("reinforce++", "none"), 0.02),
        ("weighted_batch_mean", ("reinforce++", "score_norm"), 0.02),
        ("rloo_8", ("grpo", "none"), 1e-12),
        ("history", ("kae_eb", "none"), 0.05),  # which has the rest of the group besides the past
        ("weighted_history", ("kae_eb", "score_norm"), 0.06),
    ):
        assert table[design] == pytest.approx(measured[row], rel=tolerance), design


def test_the_table_is_in_units_of_the_logs_own_design_and_signals_count_against_groups():
    table = law_of_log(log_with(2.0, size=8)).table().set_index("design")
    assert set(table["unit"]) == {"rloo_8"} and table["noise"].is_monotonic_increasing
    assert tuple(table.loc["rloo_8", ["noise", "ci_low", "ci_high", "with_between"]]) == (1.0, 1.0, 1.0, 1.0)
    inner = table.drop("rloo_8")
    assert (inner["ci_low"] < inner["noise"]).all() and (inner["noise"] < inner["ci_high"]).all()
    singles = table.loc[["weighted_history", "none"]]
    assert (singles["with_between"] < singles["noise"]).all()
    assert table.loc["rloo_16", "with_between"] > 1 > table.loc["rloo_16", "noise"]
    single = law_of_log(log_with(2.0, size=1), group_sizes=(2,)).table()
    assert set(single["unit"]) == {"none"} and set(single["design"]) >= {"rloo_2", "grpo_2"}


def test_ratios_of_two_designs_have_an_interval_of_their_own():
    found = law_of_log(log_with(4.0))
    ratio, low, high = found.ratio("weighted_history", "weighted_batch_mean")
    table = found.table().set_index("design")
    assert ratio == pytest.approx(table.loc["weighted_history", "noise"] / table.loc["weighted_batch_mean", "noise"])
    assert low < ratio < high and low * high == pytest.approx(ratio**2)  # level on both sides of the logarithm
    assert found.ratio("none", "weighted_history")[0] > 1
    p = later_values(8)
    threshold, low, high = found.threshold
    assert low < 1 + np.mean(p**2) / np.mean(p**2 * (1 - p)) < high and threshold == found.inputs.moments.threshold


def test_between_is_the_share_that_was_asked_for_and_only_that():
    log = log_with(2.0)
    with_it, without = law_inputs(log, between=0.1).moments, law_inputs(log).moments
    within = with_it.second_moment(with_it.value).mean() - with_it.signal.mean()
    assert with_it.between / within == pytest.approx(0.1)
    np.testing.assert_array_equal(with_it.best, without.best)
    with pytest.raises(ValueError, match="between must be"):
        law_inputs(log, between=-0.1)


def test_intervals_cover_the_truth_as_often_as_they_say():
    """None over RLOO-8 in 20 logs, rho = 1 and p of Beta(1/2, 1/2): E R = 1/2 over (1 + 1/7) E p (1 - p), that is 1/8.

    Fewer than 15 of 20 intervals of 95 % cover with a probability of 3e-4.
    """
    rng, hits, expected = np.random.default_rng(5), 0, 0.5 / (8 / 7 / 8)
    for _ in range(20):
        p = rng.beta(0.5, 0.5, 40)
        prompt, step = (each.ravel() for each in np.mgrid[:40, :6].repeat(8, axis=2))
        reward = (rng.random(prompt.size) < p[prompt]).astype(float)
        log = RewardLog(prompt, step, reward, weight=np.ones(prompt.size))
        row = law_of_log(log, group_sizes=()).table().set_index("design").loc["none"]
        hits += row["ci_low"] <= expected <= row["ci_high"]
    assert hits >= 15


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"reward": [1, 0.5, 0, 1]}, "rewards must be 0 and 1"),
        ({"reward": [1, 1, 1, 1]}, "both right and wrong"),
        ({"weight": [0, 0, 0, 0]}, "not all 0"),
        ({"step": [0, 0, 0, 0]}, "no visit has 1 earlier"),
    ],
)
def test_logs_that_tell_nothing_are_refused(columns, message):
    given = {"prompt": list("aaaa"), "step": [0, 0, 1, 1], "reward": [1, 0, 0, 1], "weight": [1, 2, 3, 4]} | columns
    log = RewardLog(**given)
    assert not law_applies(log)
    with pytest.raises(ValueError, match=message):
        law_of_log(log)
