"""The studies at a small scale: what they claim, with both error rates stated and a negative control each."""

import numpy as np
import pandas as pd
import pytest

from kaestat.theory import excess_gradient_mse, suboptimality_recursion
from simulations.harness import Cell, RunSettings, Samples, Streams, Study, run
from simulations.studies import bandwidth_selectors, gradient_mse, policy_regret, value_rates
from tests.helpers.statistical import Discrepancy, check_mean, generator

SEED = int(generator().integers(2**31))


def simulated(study: Study, cell: Cell, replicates: int) -> Samples:
    return study.simulate(cell, Streams(SEED, study.seed_key(cell), range(replicates)))


@pytest.fixture(scope="module")
def rates_run(tmp_path_factory):
    settings = RunSettings(out=tmp_path_factory.mktemp("rates"), seed=SEED, scale=0.5, jobs=1)
    return run(value_rates.STUDY, settings)


@pytest.fixture(scope="module")
def rates(rates_run) -> pd.DataFrame:
    return rates_run.conclusion.set_index("quantity")


def test_every_simulated_slope_is_the_exact_slope_of_the_same_cells(rates):
    for quantity, row in rates.iterrows():
        detect = 0.4 if quantity == "kae bias in h (bandwidth)" else 0.18
        check_mean(estimate=row["slope"], se=row["se"], target=row["exact_slope"], detect=detect)


def test_every_simulated_number_is_the_exact_one(rates_run):
    summary = rates_run.summary
    for _, rows in summary.groupby(["design", "step", "h", "method"], dropna=False):
        by_measure = rows.set_index("measure")
        for measure, detect in (("bias", 0.04), ("variance", 0.45), ("mse", 0.45)):
            exact = by_measure.loc[f"exact_{measure}", "estimate"]
            scale = 1.0 if measure == "bias" else exact
            check_mean(
                estimate=by_measure.loc[measure, "estimate"] / scale,
                se=by_measure.loc[measure, "mcse"] / scale,
                target=exact / scale,
                detect=detect,
            )


def test_exact_slopes_in_the_worst_case_are_those_of_stones_rate(rates):
    worst = rates[rates.index.str.startswith("worst-case")]
    np.testing.assert_allclose(worst["exact_slope"], [-0.66370, -0.66603, -0.66653, -0.66664], atol=1e-5)
    assert (worst["theory_slope"] == -2 / 3).all()


@pytest.fixture(scope="module")
def selected() -> Samples:
    cell = Cell({"path": "random_walk", "group_size": 8})
    return simulated(bandwidth_selectors.STUDY, cell, 120)


def test_the_exact_risk_of_a_fixed_bandwidth_is_its_mean_squared_error(selected):
    for bandwidth in (2.0, 15.0, np.inf):
        simulated_mse = selected[f"fixed at {bandwidth:g}|mse"]
        risk = selected[f"fixed at {bandwidth:g}|risk"]
        check_mean((simulated_mse - risk) / risk.mean(), target=0.0, detect=0.2)
        with pytest.raises(Discrepancy):
            check_mean((simulated_mse - 0.7 * risk) / risk.mean(), target=0.0, detect=0.2)


def test_the_excess_gradient_mse_is_the_identity_of_theorem_2():
    cell = Cell(gradient_mse.BASE | {"batch": 8, "m": 16, "group_size": 2})
    samples = simulated(gradient_mse.STUDY, cell, 4_000)
    bandit = gradient_mse._bandit(cell)
    gradient2 = (bandit.prompt_gradients(np.zeros(gradient_mse.N_ACTIONS)) ** 2).sum(axis=1)
    for name, own_derivative in (("none", 0.0), ("grpo", 1.0)):
        excess = samples[f"{name}|gradient_mse"] - samples["oracle|gradient_mse"]
        predicted = samples[f"{name}|identity_excess"]
        cross = excess_gradient_mse(
            0.0, 0.0, batch=8, group_size=2, own_derivative=own_derivative, value_gradient_norm2=gradient2
        )
        level = predicted.mean()
        check_mean((excess - predicted) / level, target=cross / level, detect=0.15)
        with pytest.raises(Discrepancy):
            check_mean((excess - 0.7 * predicted) / level, target=cross / level, detect=0.15)


@pytest.fixture(scope="module")
def learned() -> Samples:
    return simulated(policy_regret.STUDY, Cell({"steps": 300}), 100)


def test_the_gaps_lie_below_the_recursion_of_theorem_3(learned):
    """With the PL constant and the smoothness of the bandit in its square, and the largest gradient MSE seen."""
    bandit, optimum = policy_regret.problem()
    axis = np.linspace(policy_regret.LOWEST, policy_regret.HIGHEST, 81)
    theta = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    gap, gradient = optimum - bandit.objective(theta), bandit.gradient(theta)
    pl = ((gradient**2).sum(axis=1) / (2 * gap))[gap > 1e-6].min()
    hessian = np.stack([(bandit.gradient(theta + m) - bandit.gradient(theta - m)) / 2e-5 for m in 1e-5 * np.eye(2)], 1)
    smoothness = np.abs(np.linalg.eigvalsh((hessian + hessian.swapaxes(1, 2)) / 2)).max()
    assert 2 * pl * policy_regret.BETA > 1  # Assumption 7
    rate = policy_regret.BETA / (np.arange(300) + policy_regret.OFFSET)
    assert (rate < 2 / smoothness).all()
    start = float(optimum - bandit.objective(np.zeros(2)))
    for name in policy_regret.METHODS:
        noise = max(learned[f"{name}|gradient_noise_after_{k:05d}"].mean() for k in (30, 100, 300))
        bound = suboptimality_recursion(start, np.full(300, noise), rate, pl=pl, smoothness=smoothness)
        for k in (30, 100, 300):
            column = learned[f"{name}|gap_after_{k:05d}"]
            check_mean(column, target=bound[k], detect=0.02, side="at most")
    # Half of the first gap, and no noise: a bound that does not hold.
    with pytest.raises(Discrepancy):
        false = suboptimality_recursion(start, np.zeros(300), rate, pl=3 * pl, smoothness=smoothness)
        check_mean(learned["none|gap_after_00300"], target=false[300], detect=0.02, side="at most")
