"""Prompt schedules: what each promises, as counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat.sampling.schedules import epochs, reuse, uniform

SCHEDULES = (uniform, epochs, reuse)
SIZES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(1, n), st.integers(1, 40), st.integers(0, 5))
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(sizes=SIZES)
@settings(derandomize=True, deadline=None, max_examples=60)
def test_a_step_samples_distinct_known_prompts(schedule, sizes):
    n, batch, steps, seed = sizes
    rows = schedule(n, batch, steps, seed=seed)
    assert rows.shape == (steps, batch)
    assert rows.dtype.kind == "i"
    assert rows.min() >= 0 and rows.max() < n
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_seed_fixes_the_schedule_and_another_changes_it(schedule):
    first = schedule(50, 5, 30, seed=1)
    assert (first == schedule(50, 5, 30, seed=1)).all()
    assert not (first == schedule(50, 5, 30, seed=2)).all()


def test_uniform_draws_every_pair_of_prompts_equally_often():
    rows = uniform(5, 2, 20_000, seed=3)
    pair = np.sort(rows, axis=1) @ [5, 1]
    counts = np.unique(pair, return_counts=True)[1]
    assert len(counts) == 10
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 48.0  # 1e-6 quantile of nine degrees of freedom is 44.8
    # Negative control: passes sample without replacement *across* steps, so successive steps never share a prompt
    # within a pass; under the uniform schedule they do with probability 1 - 3/10.
    shared = [(r[:-1, :, None] == r[1:, None, :]).any(axis=(1, 2)) for r in (rows, epochs(6, 2, 20_000, seed=3))]
    assert abs(shared[0].mean() - 0.7) < 0.02
    assert shared[1].mean() < 0.4


def test_an_epoch_visits_every_prompt_once():
    rows = epochs(12, 4, 9, seed=0)
    for start in (0, 3, 6):
        assert sorted(rows[start : start + 3].reshape(-1)) == list(range(12))


def test_leftover_prompts_of_an_epoch_change_from_pass_to_pass():
    rows = epochs(7, 3, 40, seed=0).reshape(20, 6)
    assert all(len(set(row)) == 6 for row in rows)
    assert len({(set(range(7)) - set(row)).pop() for row in rows}) > 1


def test_reuse_repeats_each_minibatch_j_times_and_draws_them_without_replacement():
    rows = reuse(24, 4, 130, repeats=10, seed=1)
    cycles = rows[:120].reshape(12, 10, 4)
    assert (cycles == cycles[:, :1]).all()
    for half in (cycles[:6, 0], cycles[6:, 0]):
        assert sorted(half.reshape(-1)) == list(range(24))
    # The partition is fixed: the second pass draws the same minibatches.
    assert {tuple(row) for row in cycles[:6, 0]} == {tuple(row) for row in cycles[6:, 0]}


def test_reuse_leaves_the_prompts_that_fill_no_minibatch_out():
    assert len(np.unique(reuse(10, 4, 200, repeats=3, seed=0))) == 8


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("sizes", "named"),
    [((0, 1, 1), "n_prompts"), ((5, 6, 1), "batch_size=6"), ((5, 2, 0), "n_steps"), ((5, 2.0, 3), "batch_size")],
)
def test_bad_sizes_are_refused_by_name(schedule, sizes, named):
    with pytest.raises(ValueError, match=named):
        schedule(*sizes)


def test_bad_repeats_are_refused_by_name():
    with pytest.raises(ValueError, match="repeats"):
        reuse(5, 2, 3, repeats=0)
