"""The study ``best_baselines`` and its builder, on a summary made by hand and on a small one that is simulated."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from kaestat import AdvantageEstimator, make_baseline
from paper_figures.shared.finding import FAILS, HOLDS
from paper_figures.studies import best_baselines
from simulations.harness import Cell, Streams
from simulations.studies.best_baselines import REGIMES, STUDY, served, values_and_weights

FACTORS = [{"regime": regime, "group_size": size} for regime in REGIMES for size in (2, 8)]


def summary(ours=1.03, over_plain=0.001) -> pd.DataFrame:
    rows = []
    for factors in FACTORS:
        rows.append(factors | {"method": "best_baseline", "measure": "noise", "estimate": 0.2, "mcse": 0.01, "n": 9})
        ratios = dict.fromkeys(best_baselines.ROWS, 1.5) | {"kae_eb, weighted": ours}
        for method, ratio in ratios.items():
            measures = {"noise": 0.2 * ratio, "ratio_to_best": ratio}
            measures |= {"over_plain": over_plain} if method == "kae_eb, weighted" else {}
            rows += [
                factors | {"method": method, "measure": measure, "estimate": value, "mcse": 0.001, "n": 9}
                for measure, value in measures.items()
            ]
    return pd.DataFrame(rows)


def verdicts(**changes):
    return [finding.verdict for finding in best_baselines.findings(summary(**changes))]


def test_findings_follow_the_numbers():
    assert verdicts() == [HOLDS] * 4
    assert verdicts(ours=1.2) == [FAILS, FAILS, HOLDS, HOLDS]
    assert verdicts(ours=1.6, over_plain=0.1) == [FAILS] * 4


def test_the_table_has_a_row_for_each_setting():
    shown = best_baselines.shown(summary()).set_index("")
    assert shown.loc["late, near .95, G = 8", "KAE-EB, weighted"] == "1.0300 (0.0010)"
    assert len(shown) == len(FACTORS) and "Oracle (true value)" in shown.columns


def small(regime, group_size, replicates=2):
    cell = Cell({"regime": regime, "group_size": group_size})
    return cell, Streams(0, STUDY.seed_key(cell), range(replicates))


def test_regimes_are_what_they_say():
    value, right, wrong = values_and_weights(REGIMES["independent"], small("independent", 1)[1])
    np.testing.assert_allclose(wrong, right)
    value, right, wrong = values_and_weights(REGIMES["wrong weighs 4"], small("wrong weighs 4", 1, 40)[1])
    assert np.log(wrong / right).mean() == pytest.approx(np.log(4), abs=0.05)
    name = "softmax, .6 to .9"
    value, right, wrong = values_and_weights(REGIMES[name], small(name, 1, 40)[1])
    of_softmax = np.log(wrong / right / (value / (1 - value)))
    assert of_softmax.mean() == pytest.approx(np.log(2), abs=0.05)
    assert value[:, 0].mean() == pytest.approx(0.6, abs=0.02) and value[:, -1].mean() > 0.8


@pytest.mark.parametrize(
    ("method", "weighted", "rtol"), [("kae_eb", False, 1e-9), ("kae_eb", True, 1e-9), ("bayes_filter", False, 1e-6)]
)
def test_values_of_a_run_are_those_of_the_estimator_step_by_step(method, weighted, rtol):
    rng = np.random.default_rng(0)
    reward = (rng.random((1, 7, 9, 2)) < 0.6).astype(float)
    weight = rng.exponential(1, reward.shape) if weighted else None
    steps = 3 * np.array([0, 1, 2, 4, 5, 8, 9])  # prompts in turns, three a step
    values = served(make_baseline(method), reward, weight, batches=3, steps=steps)[0]
    estimator, ids = AdvantageEstimator(method), np.repeat(np.arange(9), 2).reshape(9, 2)
    for t, turn in np.ndindex(7, 3):
        here = slice(3 * turn, 3 * turn + 3)
        given = {} if weight is None else {"weights": weight[0, t, here].ravel()}
        estimator.step(ids[here].ravel().tolist(), reward[0, t, here].ravel(), int(steps[t]) + turn, **given)
        np.testing.assert_allclose(estimator.values, values[t, here].ravel(), rtol=rtol)


def test_the_study_gives_what_the_builder_takes():
    rows = []
    for regime, size in (("independent", 1), ("late, near .95", 4)):
        cell, streams = small(regime, size, 3)
        samples = STUDY.simulate(cell, streams)
        estimates = STUDY.summarise(cell, samples)
        rows += [dict(cell.factors) | asdict(estimate) for estimate in estimates]
        least = samples["best_baseline|noise"]
        assert all((column >= least * (1 - 1e-12)).all() for column in samples.values()), "nothing is below the bound"
    frame = best_baselines.table(pd.DataFrame(rows)).set_index(["group_size", "method"])["ratio_to_best"]
    assert "rloo" not in frame[1].index and frame[1, "oracle"] == pytest.approx(1.0)
    assert frame[4, "kae_eb, weighted"] < 1.1 < frame[4, "kae, weighted"] < 2 < frame[4, "kae_eb"]
    assert STUDY.conclude(pd.DataFrame(rows))["max_ratio_to_best"].min() >= 1
