"""Prompt schedules: what each promises, as counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.sampling.schedules import epochs, reuse, uniform

SCHEDULES = (uniform, epochs, reuse)
SIZES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(1, n), st.integers(1, 40), st.integers(0, 5))
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(sizes=SIZES)
def test_a_step_samples_distinct_known_prompts_as_the_seed_fixes_them(schedule, sizes):
    n, batch, steps, seed = sizes
    rows = schedule(n, batch, steps, seed=seed)
    assert rows.shape == (steps, batch) and rows.dtype.kind == "i"
    assert rows.min() >= 0 and rows.max() < n
    assert (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    assert (rows == schedule(np.int8(n), np.int8(batch), np.int8(steps), seed=seed)).all()
    assert not (schedule(50, 5, 30, seed=seed) == schedule(50, 5, 30, seed=seed + 1)).all()


def test_uniform_draws_every_pair_of_prompts_equally_often():
    rows = uniform(5, 2, 20_000, seed=3)
    counts = np.unique(np.sort(rows, axis=1) @ [5, 1], return_counts=True)[1]
    assert len(counts) == 10
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 48.0  # 1e-6 quantile of nine degrees of freedom is 44.8
    # Steps are independent: successive ones share a prompt with probability 1 - 3/10, which passes do more rarely.
    shared = [(r[:-1, :, None] == r[1:, None, :]).any(axis=(1, 2)) for r in (rows, epochs(6, 2, 20_000, seed=3))]
    assert abs(shared[0].mean() - 0.7) < 0.02 and shared[1].mean() < 0.4


def test_an_epoch_visits_every_prompt_once_and_leaves_others_out_in_each_pass():
    rows = epochs(12, 4, 9, seed=0)
    for start in (0, 3, 6):
        assert sorted(rows[start : start + 3].reshape(-1)) == list(range(12))
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
    assert len(np.unique(reuse(10, 4, 200, repeats=3, seed=0))) == 8  # the others fill no minibatch


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"n_prompts": 0}, "n_prompts"),
        ({"batch_size": 6}, "batch_size=6"),
        ({"repeats": 0}, "repeats"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_bad_sizes_are_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        reuse(**{"n_prompts": 5, "batch_size": 2, "n_steps": 3} | arguments)
