"""The tables of value risk on logs small enough for pencil and paper."""

import itertools
import warnings

import numpy as np
import pytest

from kaestat import RewardLog, risk_differences, value_risk
from kaestat.baselines import GroupMean
from kaestat.logs.prompt_risks import DIFFERENCE_COLUMNS, RISK_COLUMNS, FewPromptsWarning
from kaestat.logs.risk import prompt_risks

STUDENT_975 = {1: 12.706204736432095, 2: 4.302652729749462}  # by degrees of freedom


def log_of(*visits):
    """A log of (prompt, step, rewards)."""
    rows = [(prompt, step, reward) for prompt, step, rewards in visits for reward in rewards]
    return RewardLog(*(list(column) for column in zip(*rows, strict=True)))


# Within-group variances: 1/2, 0, 0, 1/3; the lone completion of c has none.
LOG = log_of(("a", 0, [1, 0]), ("b", 0, [0, 0]), ("c", 0, [1]), ("a", 1, [1, 1]), ("b", 1, [1, 0, 0]))
# Mean squared error minus variance, visits of a, then of b:
#   none                1/2 - 1/2, 1 - 0;                      0, 1/3 - 1/3
#   grpo, left out      1 - 1/2, 0;                            0, (1 + 1/4 + 1/4) / 3 - 1/3
#   dr_grpo, kept in    1/4 + 2 (1/2) (1/2) - 1/2, 0;          0, 2/9 + 2 (1/3) (1/3) - 1/3
NONE, GRPO, DR_GRPO = (0.5, 0.0), (0.25, 1 / 12), (0.125, 1 / 18)
SINGLES = log_of(
    *((p, s, [r]) for p, rewards in {"a": [1, 0, 1], "b": [0, 0, 1]}.items() for s, r in enumerate(rewards))
)


def widened(center, end, n_prompts=2):
    """A percentile, as far from the centre as Student's distribution wants it."""
    factor = np.sqrt(n_prompts / (n_prompts - 1)) * STUDENT_975[n_prompts - 1] / 1.959963984540054
    return center + factor * np.subtract(end, center)


def skewed(center, ends, contributions):
    """The end on the side of the longer tail, further off by two standard errors of the standard error."""
    deviation = [one - sum(contributions) / len(contributions) for one in contributions]
    second, third, fourth = (sum(d**k for d in deviation) / len(deviation) for k in (2, 3, 4))
    factor = 1 + np.sqrt((fourth / second**2 - 1) / len(deviation))
    low, high = ends
    return (center + factor * (low - center), high) if third < 0 else (low, center + factor * (high - center))


def standard_error(risks):
    return abs(risks[0] - risks[1]) / 2  # of two prompts


def test_risk_is_the_mean_over_prompts_of_the_mean_over_their_visits():
    table = value_risk(LOG, ["none", "grpo", "dr_grpo"], n_boot=0, min_visits=0)
    risks = [NONE, GRPO, DR_GRPO]

    assert list(table.columns) == RISK_COLUMNS
    assert table["method"].tolist() == ["none", "grpo", "dr_grpo"]
    mse, se = np.mean(risks, axis=1), np.array([standard_error(risk) for risk in risks])
    np.testing.assert_allclose(table["mse"], mse, rtol=1e-12)
    np.testing.assert_allclose(table["se"], se, rtol=1e-12)
    np.testing.assert_allclose(table["ci_low"], mse - STUDENT_975[1] * se, rtol=1e-9)
    np.testing.assert_allclose(table["ci_high"], mse + STUDENT_975[1] * se, rtol=1e-9)
    np.testing.assert_allclose(table["vs_grpo"], mse / (1 / 6), rtol=1e-12)
    assert (table["n_prompts"] == 2).all() and (table["n_visits"] == 4).all()  # a lone completion has no risk


def test_only_visits_with_enough_earlier_ones_count():
    table = value_risk(LOG, ["none", "grpo"], n_boot=0)
    np.testing.assert_allclose(table["mse"], [0.5, 1 / 12], rtol=1e-12)  # visits of step 1: (1, 0) and (0, 1/6)
    assert (table["n_visits"] == 2).all()

    longer = log_of(("a", 0, [1, 0]), ("a", 1, [0, 0]), ("a", 2, [1, 1]), ("b", 0, [1, 1]), ("b", 2, [0, 0]))
    table = value_risk(longer, ["none"], n_boot=0, min_visits=np.int64(2))
    assert table["mse"].tolist() == [1.0] and table["n_prompts"].item() == table["n_visits"].item() == 1
    assert np.isnan(table["se"].item())


def test_the_bootstrap_draws_whole_prompts():
    # Two prompts: the drawn mean is that of (a, a), (a, b) or (b, b), and each end is drawn a quarter of the time.
    table = value_risk(LOG, ["none", "grpo"], min_visits=0)
    np.testing.assert_allclose(table["ci_low"], widened(table["mse"], [0.0, 1 / 12]), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(table["ci_high"], widened(table["mse"], [0.5, 0.25]), rtol=1e-9)


def test_differences_and_ratios_are_paired_by_prompt():
    table = risk_differences(LOG, ["none", "dr_grpo"], min_visits=0)
    gaps = np.subtract([NONE, DR_GRPO], GRPO)

    assert list(table.columns) == DIFFERENCE_COLUMNS
    assert table["method"].tolist() == ["none", "dr_grpo"] and table["reference"].tolist() == ["grpo"] * 2
    np.testing.assert_allclose(table["difference"], gaps.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(table["se"], [standard_error(gap) for gap in gaps], rtol=1e-12)
    np.testing.assert_allclose(table["ci_low"], widened(gaps.mean(axis=1), gaps.min(axis=1)), rtol=1e-9)
    np.testing.assert_allclose(table["ci_high"], widened(gaps.mean(axis=1), gaps.max(axis=1)), rtol=1e-9)
    np.testing.assert_allclose(table["ratio"], [1.5, 13 / 24], rtol=1e-12)
    # Numerator and denominator of a ratio come from the same draw: 2 at (a, a), 0 at (b, b) for none.
    low, high = widened(table["ratio"], [0, 0.5]), widened(table["ratio"], [2, 2 / 3])
    np.testing.assert_allclose(table["ratio_low"], low, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(table["ratio_high"], high, rtol=1e-9)
    assert (table["n_prompts"] == 2).all() and (table["n_visits"] == 4).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_reference_without_error_has_no_ratio():
    certain = log_of(*((prompt, step, [1, 1]) for prompt in "ab" for step in (0, 1)))
    assert np.isnan(value_risk(certain, ["none"])["vs_grpo"].item())
    table = risk_differences(certain, ["none"])
    assert table["difference"].item() == 1 and table[["ratio", "ratio_low", "ratio_high"]].isna().all(axis=None)
    assert risk_differences(certain, ["none", "none"])["ratio"].isna().all()


def test_the_interval_of_a_ratio_cuts_off_a_fortieth_at_each_end():
    # Of three prompts, all draws are the same one in 1 of 27 cases: more than 2.5 %, less than 5 %.
    visits = {"a": [[1, 1], [1, 1], [1, 0]], "b": [[1, 0]], "c": [[1, 1], [1, 0], [0, 0]]}
    log = log_of(*((prompt, step, rewards) for prompt, past in visits.items() for step, rewards in enumerate(past)))
    table = risk_differences(log, ["none"], n_boot=4000, min_visits=0)
    np.testing.assert_allclose(table["ratio"], (2 / 3 + 0 + 1 / 3) / (1 / 6 + 1 / 2 + 1 / 6), rtol=1e-12)
    ends = [widened(table["ratio"].item(), end, n_prompts=3) for end in (0, 4)]
    ratio = table["ratio"].item()
    ends = skewed(ratio, ends, [2 / 3 - ratio / 6, 0 - ratio / 2, 1 / 3 - ratio / 6])
    np.testing.assert_allclose(table[["ratio_low", "ratio_high"]], [ends], rtol=1e-9, atol=1e-12)


def test_one_completion_per_visit_identifies_differences_alone():
    # All rewards weigh alike: a 1 then 1/2, b 0 then 0, against rewards 0, 1 and 0, 1; "none" misses by 1 once each.
    table = risk_differences(SINGLES, ["kae:bandwidth=inf"], "none", n_boot=40)
    assert table["difference"].item() == pytest.approx((0.625 + 0.5 - 0.5 - 0.5) / 2, rel=1e-12)
    assert table[["ratio", "ratio_low", "ratio_high"]].isna().all(axis=None)
    assert table["n_prompts"].item() == 2 and table["n_visits"].item() == 4

    with pytest.raises(ValueError, match=r"one completion per visit .* Use risk_differences"):
        value_risk(SINGLES, ["kae"])


def test_a_method_with_its_own_reward_inside_is_refused_by_name_where_visits_have_one_completion():
    with pytest.raises(ValueError, match=r"^dr_grpo: contains the completion's own reward"):
        risk_differences(SINGLES, ["kae", "dr_grpo", "none"], "none")
    assert len(risk_differences(SINGLES, ["grpo", "reinforce++"], "none", n_boot=0)) == 2  # left out, as in Table 1


def test_names_enter_leave_one_out_and_objects_as_they_are():
    methods = ["grpo", GroupMean(without_own=True), GroupMean(), "dr_grpo"]
    mse = value_risk(LOG, methods, n_boot=0, min_visits=0)["mse"].tolist()
    assert mse == pytest.approx([np.mean(GRPO)] * 2 + [np.mean(DR_GRPO)] * 2, rel=1e-12)


@pytest.mark.parametrize(
    ("error", "message", "name", "wrong"),
    [
        (ValueError, "min_visits must be a whole number of at least 0", "min_visits", [True, -1, 1.5, "1", None]),
        (ValueError, r"no visit has 2 earlier ones \(the most is 1\)", "min_visits", [2]),
        (ValueError, "methods is empty", "methods", [[]]),
        (TypeError, "methods must be a list of names", "methods", ["kae", 3, None]),
        (ValueError, "n_boot must be 40 or more, got (1|39):", "n_boot", [1, 39]),
    ],
)
def test_what_cannot_be_is_refused(error, message, name, wrong):
    for table, one in itertools.product((value_risk, risk_differences), wrong):
        with pytest.raises(error, match=message):
            table(LOG, **({"methods": ["none"]} | {name: one}))


def test_one_prompt_has_no_interval():
    lone = log_of(("a", 0, [1, 0]), ("a", 1, [1, 1]))
    for n_boot in (0, 100):
        table = value_risk(lone, ["none", "james_stein"], n_boot=n_boot)
        assert table[["se", "ci_low", "ci_high"]].isna().all(axis=None) and table["mse"].notna().all()
        table = risk_differences(lone, ["none", "james_stein"], n_boot=n_boot)
        assert table[["se", "ci_low", "ci_high", "ratio_low", "ratio_high"]].isna().all(axis=None)


def test_methods_that_pool_prompts_have_the_interval_of_replays_without_each_group():
    """Three prompts are three groups; the table must be that of the three logs without one of them."""
    rng = np.random.default_rng(2)
    visits = [(prompt, step, rng.integers(0, 2, 4).tolist()) for step in range(3) for prompt in "abc"]
    methods, whole = ["james_stein", "none", "kae:bandwidth=10"], log_of(*visits)
    table = risk_differences(whole, methods, n_boot=50, min_visits=0)
    levels = value_risk(whole, methods, n_boot=50, min_visits=0)
    less = [log_of(*(visit for visit in visits if visit[0] != gone)) for gone in "abc"]
    parts = np.array([value_risk(log, [*methods, "grpo"], n_boot=0, min_visits=0)["mse"] for log in less])
    ours, theirs = prompt_risks(whole, ["james_stein", "grpo"], min_visits=0).per_prompt.T
    for left, row, name, contributions in (
        (parts[:, 0] - parts[:, 3], table, "difference", ours - theirs),
        (parts[:, 0] / parts[:, 3], table, "ratio", ours - ours.mean() / theirs.mean() * theirs),
        (parts[:, 0], levels, "mse", ours),
    ):
        se = np.sqrt(2 / 3 * np.sum((left - left.mean()) ** 2))
        ends = row.loc[0, ["ratio_low", "ratio_high"] if name == "ratio" else ["ci_low", "ci_high"]]
        student = row[name][0] + STUDENT_975[2] * se * np.array([-1, 1])
        np.testing.assert_allclose(ends.astype(float), skewed(row[name][0], student, contributions))
        if name != "ratio":
            assert row["se"][0] == pytest.approx(se)
    others = ["none", "kae:bandwidth=10"]
    alone = risk_differences(whole, others, n_boot=50, min_visits=0)  # they keep the bootstrap
    columns = ["se", "ci_low", "ci_high", "ratio_low", "ratio_high"]
    np.testing.assert_allclose(table.loc[[1, 2], columns], alone[columns])
    # Against a reference that pools, every comparison has the jackknife.
    table = risk_differences(whole, ["none"], "james_stein", n_boot=50, min_visits=0)
    left = parts[:, 1] - parts[:, 0]
    assert table["se"].item() == pytest.approx(np.sqrt(2 / 3 * np.sum((left - left.mean()) ** 2)))


def test_a_table_carried_by_few_prompts_warns_of_its_intervals_by_name():
    one_hard = [(f"p{k}", step, [1, 0] if k == 0 else [1, 1]) for k in range(30) for step in (0, 1)]
    with pytest.warns(FewPromptsWarning, match=r"^grpo: few of the 30 prompts .* 1\.0 prompts"):
        value_risk(log_of(*one_hard), ["grpo"], n_boot=0)
    with pytest.warns(FewPromptsWarning, match=r"^rloo: few of the 30 prompts"):
        risk_differences(log_of(*one_hard), ["rloo"], "kae", n_boot=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewPromptsWarning)
        value_risk(log_of(*((f"p{k}", step, [1, 0]) for k in range(8) for step in (0, 1))), ["grpo"], n_boot=0)


def test_of_a_large_log_only_the_beginning_is_replayed_without_groups(monkeypatch):
    """Groups are the same prompts in both, and the means are those of the beginning alone."""
    rng = np.random.default_rng(0)
    prompt, step = np.tile(np.repeat(np.arange(12), 2), 10), np.repeat(np.arange(10), 24)
    columns = prompt, step, rng.integers(2, size=240)
    monkeypatch.setattr("kaestat.logs.risk.LARGE", 36)  # scored visits: those of steps 1 to 3
    whole, beginning = (
        prompt_risks(
            RewardLog(*(column[step <= last] for column in columns)), ["james_stein", "grpo"], again=True, seed=2
        )
        for last in (9, 3)
    )
    np.testing.assert_allclose(whole.left_out, beginning.left_out)
    np.testing.assert_allclose(whole.apart, beginning.apart)
    assert not np.allclose(whole.per_prompt, beginning.per_prompt)
