"""`gradient_risk` and `gradient_differences`: hand-computed, against a slow reference, and what is refused."""

import re

import numpy as np
import pandas as pd
import pytest

from kaestat import AdvantageEstimator, RewardLog, gradient_differences, gradient_risk, make_baseline, value_risk
from kaestat.baselines.base import Baseline
from kaestat.datasets import simulated_run
from kaestat.logs.gradient_risk import GRADIENT_COLUMNS, Row, gradient_scores, rows_of
from kaestat.logs.jackknife import REPLAYS, jackknife_groups, replayed_interval
from kaestat.logs.replay import replay
from kaestat.logs.weight_ratio import weight_ratio

BASE = simulated_run(n_prompts=30, n_epochs=6).log.frame


def weighted_log(seed=0, *, ratio=5.0, kept=None, **more) -> RewardLog:
    """The simulated run, wrong answers ``ratio`` times as heavy as right ones; ``kept`` drops rows."""
    rng = np.random.default_rng([3, seed])
    weight = np.where(BASE["reward"] > 0, 1.0, ratio) * rng.exponential(size=len(BASE))
    frame = BASE.assign(weight=weight, length=weight + rng.exponential(size=len(BASE)))
    frame = frame if kept is None else frame[kept(frame)]
    columns = {name: frame[name] for name in ("weight", "length")} | more
    return RewardLog(frame["prompt"], frame["step"], frame["reward"], **columns)


LOG = weighted_log()


def reference_noise(log: RewardLog, baseline: Baseline, weighted: bool, min_visits: int = 1) -> float:
    """A training loop that serves one step at a time, and then a loop over completions."""
    estimator, seen, total, count = AdvantageEstimator(baseline), {}, 0.0, 0
    for step, frame in log.frame.groupby("step"):
        weights = frame["weight"].to_numpy()
        estimator.step(
            frame["prompt"].tolist(), frame["reward"].to_numpy(), step, weights=weights if weighted else None
        )
        for prompt, reward, weight, value in zip(
            frame["prompt"], frame["reward"], weights, estimator.values, strict=True
        ):
            if seen.get(prompt, 0) >= min_visits:
                total, count = total + weight * (reward - value) ** 2, count + 1
        for prompt in frame["prompt"].unique():
            seen[prompt] = seen.get(prompt, 0) + 1
    return total / count


@pytest.mark.parametrize("method", ["rloo", "kae:bandwidth=4", "kae", "kae_eb", "sieve", "reinforce++", "kalman"])
@pytest.mark.parametrize("min_visits", [0, 2])
def test_the_noise_is_that_of_a_training_loop(method, min_visits):
    log = weighted_log(kept=lambda frame: (frame["prompt"] % 3 > 0) | (frame["step"] < 4))
    table = gradient_risk(log, [method], weights="weight", n_boot=0, min_visits=min_visits)
    found = table.set_index("weights")["noise"]
    baseline = make_baseline(*[method.split(":")[0]], **({"bandwidth": 4} if ":" in method else {})).leave_one_out()
    if baseline.takes_weights:
        assert found["score_norm"] == pytest.approx(reference_noise(log, baseline, True, min_visits), rel=1e-9)
    assert found["none"] == pytest.approx(reference_noise(log, baseline, False, min_visits), rel=1e-9)
    assert list(found.index) == (["none", "score_norm", "length"] if baseline.takes_weights else ["none"])


def test_by_hand():
    """rloo on groups (1, 0, 0) of weights (1, 2, 4), then (1, 1, 0) of the same prompt; only the second counts."""
    log = RewardLog(["a"] * 6, [0] * 3 + [1] * 3, [1, 0, 0, 1, 1, 0], weight=[9, 9, 9, 1, 2, 4])
    table = gradient_risk(log, ["rloo", "none"], n_boot=0)
    plain = (1 * 0.5**2 + 2 * 0.5**2 + 4 * 1) / 3
    weighted = (1 * (1 - 2 / 6) ** 2 + 2 * (1 - 1 / 5) ** 2 + 4 * 1) / 3
    np.testing.assert_allclose(table["noise"], [plain, weighted, 1.0], rtol=1e-12)
    np.testing.assert_allclose(table["vs_none"], [plain, weighted, 1.0], rtol=1e-12)
    np.testing.assert_allclose(table["vs_grpo"], [1.0, weighted / plain, 1 / plain], rtol=1e-12)
    assert list(table.columns) == GRADIENT_COLUMNS and table["se"].isna().all()  # one prompt: no spread


def test_importance_ratios_enter_by_their_squares():
    ratio = np.random.default_rng(5).lognormal(0, 0.3, len(BASE))
    with_ratios = weighted_log(importance=ratio)
    folded = RewardLog(BASE["prompt"], BASE["step"], BASE["reward"], weight=LOG.frame["weight"].to_numpy() * ratio**2)
    options = {"weights": "weight", "n_boot": 0}
    first, second = (gradient_risk(log, ["rloo", "kae:bandwidth=4"], **options) for log in (with_ratios, folded))
    first = first[first["weights"] != "length"].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, second, rtol=1e-12)
    plain, kept = (value_risk(log, ["kae:bandwidth=4"], n_boot=0)["mse"] for log in (LOG, with_ratios))
    assert plain.equals(kept)


def test_what_contains_its_own_reward_is_refused_or_leaves_it_out():
    for method in ("ebpo", "krpo"):
        with pytest.raises(ValueError, match=f"{method}: contains the completion's own reward"):
            gradient_risk(LOG, ["kae", method], n_boot=0)
    table = gradient_risk(LOG, ["grpo", "rloo", "dr_grpo", "gpg"], n_boot=0).groupby("weights")["noise"]
    assert table.min().equals(table.max())


def test_differences_are_those_of_the_levels_and_sharper_than_they():
    levels = gradient_risk(LOG, ["kae:bandwidth=4", "grpo"]).set_index(["method", "weights"])
    gaps = gradient_differences(LOG, ["kae:bandwidth=4", "grpo"], "grpo").set_index(["method", "weights"])
    np.testing.assert_allclose(gaps["difference"], levels["noise"] - levels["noise"]["grpo", "none"], atol=1e-12)
    np.testing.assert_allclose(gaps["ratio"], levels["vs_grpo"])
    np.testing.assert_allclose(gaps["ratio_high"], levels["vs_grpo_high"])
    row = "kae:bandwidth=4", "score_norm"
    assert gaps["se"][row] < levels["se"][row] and gaps["ci_high"][row] < 0
    assert (gaps["reference"] == "grpo").all()


def test_prompts_of_different_sizes_have_the_error_of_a_ratio_of_sums():
    """Bootstrapping the ratio itself, by hand, gives the standard error that the linear parts have."""
    log = weighted_log(kept=lambda frame: frame["step"] <= 1 + frame["prompt"] % 5)
    found = gradient_risk(log, ["rloo"], weights="weight", n_boot=400).iloc[0]
    loss = log.frame["weight"] * (log.frame["reward"] - replay(log, make_baseline("rloo"))[0]) ** 2
    again = loss[log.frame["step"] >= 1].groupby(log.frame["prompt"])
    total, size = again.sum().to_numpy(), again.size().to_numpy()
    assert found["noise"] == pytest.approx(total.sum() / size.sum(), rel=1e-12) and len(set(size)) > 3
    drawn = np.random.default_rng(1).integers(len(size), size=(20_000, len(size)))
    ratios = total[drawn].sum(axis=1) / size[drawn].sum(axis=1)
    assert found["se"] == pytest.approx(ratios.std(), rel=0.1)
    size = len(log.frame)
    log = RewardLog(log.frame["prompt"], log.frame["step"], np.ones(size), length=np.full(size, 2))
    same = gradient_risk(log, ["none"]).iloc[0]  # every completion alike: no error, however sizes differ
    assert same["noise"] == 2.0 and same["se"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("method", ["james_stein", "kae_eb", "kae_eb:bandwidth=4", "reinforce++", "kae"])
def test_methods_that_pool_are_replayed_without_each_group(method):
    log = weighted_log(kept=lambda frame: frame["step"] <= 2 + frame["prompt"] % 4)
    rows = rows_of(log, [method])
    scored = gradient_scores(log, [*rows, Row("grpo")], weights="weight", again=True, seed=4)
    group = jackknife_groups(len(log.prompts), seed=4, n_groups=REPLAYS)
    options = {"weights": "weight", "n_boot": 0}
    left = [gradient_risk(log.subset(group != k), [method], **options)["noise"] for k in range(REPLAYS)]
    np.testing.assert_allclose(scored.left_out[:, :-1], left, rtol=1e-8)
    table = gradient_risk(log, [method], weights="weight", seed=4)
    risks = scored.take(range(len(rows)))
    plain = risks.per_prompt.std(axis=0, ddof=1) / np.sqrt(len(risks.per_prompt))
    given = risks.per_prompt.mean(axis=0), risks.left_out, risks.apart, plain, len(risks.per_prompt)
    np.testing.assert_allclose(table["se"], replayed_interval(*given)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("log", "options", "words"),
    [
        (RewardLog(["a"] * 2, [0, 1], [1, 0]), {}, "this log has neither weights nor lengths. Give RewardLog a weight"),
        (RewardLog(["a"] * 2, [0, 1], [1, 0], length=[3, 4]), {"weights": "weight"}, "this log has length."),
        (LOG, {"weights": "score_norm"}, "weights='score_norm': this log has weight or length."),
        (RewardLog(["a"] * 2, [0, 1], [1, 0], weight=[1, 0]), {}, "weight is 0 for every completion that counts"),
        (RewardLog(["a", "b"], [0, 0], [1, 0], weight=[1, 1]), {}, "every prompt occurs once: set min_visits to 0"),
    ],
)
def test_bad_input_is_refused(log, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        gradient_risk(log, **({"methods": ["kae"], "n_boot": 0} | options))


def test_the_weight_ratio_compares_within_groups():
    """By hand: of (1, 1, 0) with weights (1, 3, 6) and (1, 0) with (2, 4); the third prompt has right answers only."""
    log = RewardLog(list("aaabbcc"), [0] * 7, [1, 1, 0, 1, 0, 1, 1], weight=[1, 3, 6, 2, 4, 100, 100])
    expected = (2 * 6 / 3 + 1 * 4 / 2) / (1 * 4 / 3 + 1 * 2 / 2)
    assert weight_ratio(log, "weight", n_boot=0)[0] == pytest.approx(expected, rel=1e-12)
    scaled = RewardLog(list("aaabb"), [0] * 5, [2, 2, -1, 2, -1], weight=[1, 3, 6, 2, 4])
    assert weight_ratio(scaled, "weight", n_boot=0)[0] == pytest.approx(expected, rel=1e-12)
    alike = RewardLog(list("aabb"), [0] * 4, [1, 1, 0, 0], weight=[1, 3, 6, 2])
    assert np.isnan(weight_ratio(alike, "weight")).all()
