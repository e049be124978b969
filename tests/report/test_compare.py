"""``kaestat compare``: what is known of two runs; and what it prints and writes."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from kaestat import RewardLog
from kaestat.core.bootstrap import mean_with_interval
from kaestat.report.cli import run
from kaestat.report.comparison import compare_runs
from kaestat.report.comparison_text import comparison_headline, comparison_notes
from kaestat.report.facts import LogFacts
from kaestat.report.reward_curve import RewardCurve


def made(rate, *, seed=0, prompts="q", group=8, n_steps=60) -> RewardLog:
    """A run whose logits rise by ``rate`` a step."""
    rng = np.random.default_rng(seed)
    n_prompts = 60
    logit = np.random.default_rng(5).normal(-0.7, 1.5, n_prompts)
    chosen = np.array([rng.choice(n_prompts, 24, replace=False) for _ in range(n_steps)])
    step, prompt = np.repeat(np.arange(n_steps), 24 * group), np.repeat(chosen.ravel(), group)
    value = 1 / (1 + np.exp(-logit[prompt] - rate * step))
    return RewardLog([f"{prompts}{k}" for k in prompt], step, (rng.random(len(step)) < value).astype(float))


@pytest.fixture(scope="module")
def found():
    return compare_runs(made(0.02), made(0.04, seed=1), ("slow", "fast"), n_boot=200)


def test_a_run_that_learns_twice_as_fast_takes_half_the_completions(found):
    share, low, high = found.share
    assert low < 0.55 < high < 0.85 and low < share < high
    assert "fast reaches the mean reward that slow ends at" in comparison_headline(found)[0]


def test_a_run_that_never_gets_there_is_said_to_be_one():
    back = compare_runs(made(0.04, seed=1), made(0.0), ("fast", "flat"), n_boot=0)
    assert math.isinf(back.share[0]) and math.isnan(back.share[1])
    assert comparison_headline(back)[0].startswith("flat does not reach the mean reward that fast ends at")


def test_a_run_beside_itself_differs_by_nothing(found):
    same = compare_runs(made(0.02), made(0.02), n_boot=50)
    assert (same.figures["difference"] == 0).all() and same.share == (1.0, 1.0, 1.0)
    assert same.different == () and comparison_headline(same)[0] == "No difference between before and after is shown."
    assert "not shown to differ" in comparison_headline(same)[1]


def test_figures_are_means_over_prompts_and_differences_paired_where_prompts_are_common(found):
    before, after = made(0.02), made(0.04, seed=1)
    last = []
    for log in (before, after):
        tail = log.frame.tail(len(log.frame) // 10)
        names = np.array(log.prompts)[tail["prompt"]]
        last.append(tail.groupby(names)["reward"].mean())
    row = found.figures.set_index("quantity").loc["mean reward, last tenth"]
    common = last[0].index.intersection(last[1].index)
    assert row["before"] == pytest.approx(last[0].mean()) and row["after"] == pytest.approx(last[1].mean())
    assert row["n_common"] == len(common)
    assert row["difference"] == pytest.approx((last[1][common] - last[0][common]).mean())
    assert row["low"] > 0


def test_runs_on_other_prompts_count_as_independent():
    other = compare_runs(made(0.02), made(0.02, seed=1, prompts="other"), n_boot=50)
    assert (other.figures["n_common"] == 0).all()
    row = other.figures.set_index("quantity").loc["dead groups"]
    assert row["difference"] == pytest.approx(row["after"] - row["before"]) and row["low"] < 0 < row["high"]
    assert not other.share_shown and "completions" not in " ".join(comparison_headline(other))
    assert any("cannot be compared" in note for note in comparison_notes(other))


@pytest.mark.parametrize(
    ("wrong", "right", "ends"), [(0, 1, (0, 1)), (-1, 1, (-1, 1)), (0, 0.5, (0, 1)), (-1, 0.5, None)]
)
def test_intervals_of_three_prompts_stay_where_their_means_can_be(wrong, right, ends):
    few = np.array([[0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1.0]])
    logs = []
    for rewards in (few, 1 - few):
        reward = np.where(rewards, right, wrong).astype(float)
        if ends is None:
            reward[0, 0] = 0.25  # a third reward: others are possible
        logs.append(RewardLog(np.repeat(["a", "b", "c"], 4), np.zeros(12, dtype=int), reward.ravel()))
    table = compare_runs(*logs, n_boot=0).figures.set_index("quantity")
    row = table.loc["mean reward, last tenth"]
    means = logs[0].frame.groupby("prompt")["reward"].mean().to_numpy()[:, None]
    _, _, low, high = (float(part[0]) for part in mean_with_interval(means, np.empty((0, 1))))
    if ends is not None:
        assert low < ends[0]
        low, high = max(low, ends[0]), min(high, ends[1])
        assert ends[0] - ends[1] <= row["low"] < row["high"] <= ends[1] - ends[0]
    assert (row["before_low"], row["before_high"]) == (low, high)
    dead = table.loc["dead groups"]
    assert dead["before"] == pytest.approx(1 / 3) and dead["before_low"] == 0 and dead["before_high"] == 1


def test_curves_are_running_means_by_a_slow_way():
    log = made(0.05, n_steps=100)
    curve = RewardCurve.of(log)
    reward = log.frame["reward"].to_numpy()
    ends = [0, *curve.completions.tolist()]
    slow = [reward[ends[max(0, k - 4)] : ends[k + 1]].mean() for k in range(len(curve.completions))]
    np.testing.assert_allclose(curve.means(), slow, rtol=1e-12)
    assert curve.completions[-1] == len(reward) and len(curve.completions) == 50


def test_the_command_prints_and_writes(tmp_path, capsys):
    for name, log in (("a.csv", made(0.02)), ("b.csv", made(0.04, seed=1))):
        frame = log.frame
        frame.assign(prompt=np.array(log.prompts)[frame["prompt"]])[["prompt", "step", "reward"]].to_csv(
            tmp_path / name, index=False
        )
    logs = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    assert run(["compare", *logs, "--n-boot", "50", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "b.csv reaches the mean reward that a.csv ends at" in printed
    assert "reaches the mean reward that a.csv ends at" in page and "SHA-256" in page
    assert run(["compare", *logs, "--n-boot", "50", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    shown = pd.DataFrame(document["figures"]).set_index("quantity")
    assert f"{shown.loc['dead groups', 'before']:.3f}" in printed and document["share"][0] < 1
    assert run(["compare", logs[0], str(tmp_path / "none.csv")]) == 2


def test_a_log_of_a_few_large_steps_has_the_same_ends_whatever_the_order_of_its_rows():
    """Half of the prompts are always right: a tenth of a step would be right or wrong prompts alone."""
    prompts = np.arange(20)
    ends = []
    for order in (prompts, prompts[::-1]):
        log = RewardLog(np.tile(order, 6), np.repeat(np.arange(6), 20), np.tile(order % 20 < 10, 6).astype(float))
        facts = LogFacts.of(log)
        ends.append((facts.reward_start, facts.reward_end, float(RewardCurve.of(log).means()[-1])))
    assert ends == [(0.5, 0.5, 0.5)] * 2
