"""The value diagnostic: the paper's formula, its exact expectation, and the debiasing."""

import numpy as np
import pytest

from kaestat import Groups, Visits, make_baseline
from kaestat.baselines.registry import FIXED_PARAMETERS
from llm_experiments.diagnose import draws
from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.estimators import make_estimator, plain_estimators
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.diagnose.value_mse import PURPOSE, VALUE_COLUMNS, VALUE_DIFFERENCE_COLUMNS, value_errors
from tests.helpers.statistical import Discrepancy, check_mean, generator

TABLE_1 = ("kae", "grpo", "reinforce++")


def stationary_pool(rng, prompts=60, *, n_target=32, n_history=12, past=4, value=None) -> PoolRewards:
    """Pools of right-or-wrong rewards whose values stand still."""
    value = rng.uniform(0.05, 0.95, prompts) if value is None else value
    prompts = len(value)
    target = (rng.random((prompts, n_target)) < value[:, None]).astype(float)
    history = (rng.random((prompts, past, n_history)) < value[:, None, None]).astype(float)
    return PoolRewards(10, target, history)


def estimators(*names):
    return [make_estimator(name) for name in names]


def slow_errors(pool, name, *, n_oracle, group_size, repeats, seed):
    """Prompt by prompt, repeat by repeat, completion by completion, in the words of the appendix."""
    baseline = make_baseline(name, **FIXED_PARAMETERS.get(name, {})).leave_one_out()
    drawing = Drawing(group_size, first=n_oracle, seed=seed, purpose=PURPOSE)
    squares = [[] for _ in range(pool.n_prompts)]
    for repeat in range(repeats):
        drawn = drawing.draw(pool, range(repeat, repeat + 1))
        now = np.array([[pool.target[b, h] for h in drawn.indices[0, b]] for b in range(pool.n_prompts)])
        past = np.array(
            [
                [[pool.history[b, t, h] for h in drawn.history_indices[0, b, t]] for t in range(pool.n_history)]
                for b in range(pool.n_prompts)
            ]
        )
        carry = baseline.initial_carry()
        for t in range(pool.n_history + 1):
            total = past[:, :t].sum(axis=-1)
            lag = np.tile(np.arange(t, 0, -1.0), (pool.n_prompts, 1))
            visits = Visits(lag=lag, count=0 * lag + group_size, total=total, total_sq=total)
            groups = Groups(now if t == pool.n_history else past[:, t])
            step = pool.step - pool.n_history + t
            if t == pool.n_history:
                values = baseline.values(groups, visits, step=step, carry=carry)
            carry = baseline.advance(carry, groups, visits, step=step)
        for b in range(pool.n_prompts):
            oracle = sum(pool.target[b, :n_oracle]) / n_oracle
            squares[b] += [(values[b, g] - oracle) ** 2 for g in range(group_size)]
    return np.array([np.mean(row) for row in squares])


@pytest.mark.parametrize("name", [estimator.name for estimator in plain_estimators()])
def test_the_diagnostic_is_the_papers_formula_written_as_loops(name):
    pool = stationary_pool(generator(900), prompts=7, n_target=13, n_history=6, past=3)
    sizes = {"n_oracle": 8, "group_size": 4, "repeats": 5, "seed": 3}
    found = value_errors(pool, estimators(name), **sizes).errors.per_prompt[:, 0]
    rounding = 1e-5 if name == "bayes_filter" else 1e-12  # its messages are of single precision
    np.testing.assert_allclose(found, slow_errors(pool, name, **sizes), rtol=rounding)


def test_chunks_of_repeats_do_not_change_the_result(monkeypatch):
    pool = stationary_pool(generator(901), prompts=5)
    sizes = {"n_oracle": 16, "group_size": 4, "repeats": 7, "seed": 1}
    whole = value_errors(pool, estimators(*TABLE_1, "ebpo"), **sizes).errors.per_prompt
    monkeypatch.setattr(draws, "CHUNK_CELLS", 1)
    np.testing.assert_allclose(
        value_errors(pool, estimators(*TABLE_1, "ebpo"), **sizes).errors.per_prompt, whole, rtol=1e-12
    )


def test_the_oracle_pool_is_never_drawn_from():
    """An estimation pool of zeros beside an oracle pool of ones."""
    target = np.concatenate([np.ones((3, 10)), np.zeros((3, 6))], axis=1)
    pool = PoolRewards(4, target, np.zeros((3, 2, 6)))
    found = value_errors(pool, estimators(*TABLE_1), n_oracle=10, group_size=4, repeats=3, seed=0)
    np.testing.assert_array_equal(found.errors.per_prompt, 1.0)


def test_debiasing_needs_no_rewards_of_0_and_1():
    """Graded rewards, an oracle of 3: the known value 0 as estimate has MSE V^2 exactly."""
    rng = generator(904)
    rewards = rng.beta(2, 3, (4000, 5))
    pool = PoolRewards(4, rewards, np.zeros((4000, 0, 4)))
    found = value_errors(pool, estimators("none"), n_oracle=3, group_size=2, repeats=1, seed=0)
    check_mean(found.debiased.per_prompt[:, 0], target=0.16, detect=0.02)
    with pytest.raises(Discrepancy):
        check_mean(found.errors.per_prompt[:, 0], target=0.16 - 0.01, detect=0.02)


def test_the_tables_have_the_agreed_columns_and_paired_differences():
    pool = stationary_pool(generator(906), prompts=30)
    found = value_errors(pool, estimators(*TABLE_1), n_oracle=20, group_size=4, repeats=10, seed=0)
    table, frame = found.table(), found.differences(n_boot=200, seed=0)
    assert table.columns.tolist() == VALUE_COLUMNS and frame.columns.tolist() == VALUE_DIFFERENCE_COLUMNS
    errors = dict(zip(found.errors.methods, found.errors.per_prompt.T, strict=True))
    np.testing.assert_allclose(table["se"], [np.std(errors[m], ddof=1) / 30**0.5 for m in TABLE_1])
    row = frame.set_index(["method", "reference"]).loc["kae", "grpo"]
    paired = errors["kae"] - errors["grpo"]
    assert row["difference"] == pytest.approx(paired.mean())
    assert row["se"] == pytest.approx(paired.std(ddof=1) / 30**0.5)
    assert row["ratio"] == pytest.approx(errors["kae"].mean() / errors["grpo"].mean())
    levels = table.set_index("method")["mse_debiased"]
    assert row["ratio_debiased"] == pytest.approx(levels["kae"] / levels["grpo"])
    assert row["ci_low"] < row["difference"] < row["ci_high"] and row["ratio_low"] < row["ratio"] < row["ratio_high"]
