"""The selector `auto` against plain loops over all past steps."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, make_baseline
from kaestat.smoothing.selectors import Auto
from tests.helpers import references as ref
from tests.helpers.method_table import flat
from tests.helpers.strategies import case_at, groups_of, runs, visits_of
from tests.helpers.tensors import as_torch
from tests.helpers.tiers import slow_after
from tests.helpers.weighted_references import kae_eb_from_values

CANDIDATES = [2 ** (2 * k / 3) for k in range(-12, 56)]
REFERENCES = {"kae": (ref.kae, 10), "kae_eb": (ref.kae_eb, 20)}


def mass(visit):
    return math.fsum(visit.weights)


def slow_values(name, run, *, weighted=False):
    """Values of the last step of a run, from all losses of all its steps."""
    reference, rule = REFERENCES[name]
    ways = [reference, kae_eb_from_values] if weighted and name == "kae_eb" else [reference]
    cases = [case_at(run, k) for k in range(len(run))]
    if not weighted:
        cases = [unweighted(case) for case in cases]
    losses, count, squares, last, first, gap = (
        [[0.0] * len(CANDIDATES) for _ in ways],
        0.0,
        0.0,
        None,
        run[0].number,
        None,
    )
    way_losses, way_count, way_squares = [0.0] * len(ways), 0.0, 0.0
    for case in cases:
        past = [[v for v in visits if mass(v) > 0] for visits in case.past]
        newest = [case.step - visits[-1].step for visits in past if visits]
        mean_lag = sum(newest) / len(newest) if newest else 1.0
        gap = min([*newest, *([] if gap is None else [gap])], default=None)
        usable_gap = 1.0 if gap is None else gap
        oldest = max((case.step - v.step for visits in past for v in visits), default=0)
        span = max(case.step - first, oldest, usable_gap)
        low = max(k for k, b in enumerate(CANDIDATES) if b <= usable_gap)
        high = min(k for k, b in enumerate(CANDIDATES) if b >= 20 * span)

        distance = [abs(math.log2(CANDIDATES[k] / (rule * mean_lag))) for k in range(low, high + 1)]
        own_shares = []
        for own in losses:
            if count == 0:
                shares = [1.0 if d == min(distance) else 0.0 for d in distance]
            else:
                logs = relative_log_likelihood(own, count, squares)[low : high + 1]
                shares = [math.exp(log - 0.35 * d) for log, d in zip(logs, distance, strict=True)]
            own_shares.append([s / math.fsum(shares) for s in shares])
        way_shares = [1.0] + [0.0] * (len(ways) - 1)
        if way_count > 0:
            assume(not 0 < max(way_losses) < 1e-20)  # both ways are exact: rounding would choose between them
            way_shares = [math.exp(log) for log in relative_log_likelihood(way_losses, way_count, way_squares)]
            way_shares = [s / math.fsum(way_shares) for s in way_shares]
        each = [[way(case, bandwidth=CANDIDATES[k]) for k in range(low, high + 1)] for way in ways]
        mixed = [
            [
                [math.fsum(s * e[p][g] for s, e in zip(shares, of_way, strict=True)) for g in range(len(row))]
                for p, row in enumerate(case.rewards)
            ]
            for shares, of_way in zip(own_shares, each, strict=True)
        ]
        values = [
            [math.fsum(s * m[p][g] for s, m in zip(way_shares, mixed, strict=True)) for g in range(len(row))]
            for p, row in enumerate(case.rewards)
        ]

        scored = [
            (p, g) for p, row in enumerate(case.rewards) if past[p] for g in range(len(row)) if case.weights[p][g]
        ]
        weights = [case.weights[p][g] for p, g in scored]
        told = math.fsum(weights) ** 2 / math.fsum(w * w for w in weights) if scored else 0.0
        returns = (case.step - last) / mean_lag * told / len(scored) if scored and last is not None else 0.0
        kept, slowly = 0.7**returns, 0.7 ** (returns / 8)

        def loss(values, case=case, scored=scored):
            return math.fsum(case.weights[p][g] * (case.rewards[p][g] - values[p][g]) ** 2 for p, g in scored)

        for own, of_way in zip(losses, each, strict=True):
            new = [loss(of_way[k - low]) for k in (min(max(k, low), high) for k in range(len(CANDIDATES)))]
            own[:] = [kept * old + added for old, added in zip(own, new, strict=True)]
        way_losses = [slowly * old + loss(values) for old, values in zip(way_losses, mixed, strict=True)]
        now_squares = math.fsum(case.weights[p][g] * case.rewards[p][g] ** 2 for p, g in scored)
        count, squares = kept * count + told, kept * squares + now_squares
        way_count, way_squares = slowly * way_count + told, slowly * way_squares + now_squares
        last = case.step if scored else last
    return values


def relative_log_likelihood(losses, count, squares):
    unit = max(min(losses), 1e-12 * max(squares, *losses))
    return [-count / 2 * (loss - min(losses)) / unit if unit > 0 else 0.0 for loss in losses]


def unweighted(case):
    past = [[replace(visit, weights=[1.0] * len(visit.rewards)) for visit in visits] for visits in case.past]
    return replace(case, weights=[[1.0] * len(row) for row in case.rewards], past=past)


def served(name, run, *, weighted=False, kind=lambda container: container):
    """Library values of the last step, with the carry of the steps before."""
    baseline = make_baseline(name, bandwidth="auto")
    carry, values = baseline.initial_carry(), None
    for k in range(len(run)):
        case = case_at(run, k)
        groups = kind(groups_of(case, weighted=weighted, padding=0.5))
        step = baseline.serve(groups, kind(visits_of(case, weighted=weighted)), step=case.step, carry=carry)
        carry, values = step.carry, step.values
    return values if groups.mask is None else values[groups.mask].reshape(-1)


@pytest.mark.parametrize(
    ("name", "weighted"), slow_after(2, [("kae", False), ("kae_eb", True), ("kae", True), ("kae_eb", False)])
)
@settings(max_examples=5)
@given(data=st.data())
def test_values_are_those_of_plain_loops_over_all_steps(name, weighted, data):
    run = data.draw(runs(weighted=weighted, max_steps=5))
    expected = flat(slow_values(name, run, weighted=weighted))
    np.testing.assert_allclose(np.ravel(served(name, run, weighted=weighted)), expected, rtol=1e-7, atol=1e-7)


@settings(max_examples=15)
@given(run=runs(max_steps=5))
def test_torch_gives_what_numpy_gives(run):
    values = served("kae_eb", run, kind=as_torch)
    assert isinstance(values, torch.Tensor)
    np.testing.assert_allclose(np.ravel(values.numpy()), np.ravel(served("kae_eb", run)), rtol=1e-9, atol=1e-9)


def random_steps(seed, n_steps=14, every=1):
    """Steps of ids and rewards: six prompts, four of them at each step."""
    rng = np.random.default_rng(seed)
    return [
        (t * every, np.repeat(rng.permutation(6)[:4], 3).tolist(), (rng.random(12) < 0.5).astype(float))
        for t in range(n_steps)
    ]


def stream(estimator, steps):
    answers = []
    for step, ids, rewards in steps:
        estimator.step(ids, rewards, step)
        answers.append(estimator.values.copy())
    return answers


def test_a_long_run_keeps_a_bounded_history():
    estimator = AdvantageEstimator("kae", bandwidth="auto")
    stream(estimator, [(t, [0, 0], np.array([0.0, t % 2])) for t in range(90)])
    assert estimator.history.width == 64


def test_a_grid_of_ones_own_is_all_there_is():
    baseline = make_baseline("kae", bandwidth=Auto(grid=(5.0,)))
    steps = random_steps(6)
    ours = stream(AdvantageEstimator(baseline), steps)
    for mine, fixed in zip(ours, stream(AdvantageEstimator("kae", bandwidth=5.0), steps), strict=True):
        np.testing.assert_allclose(mine, fixed, rtol=1e-12)


def test_the_mixture_that_is_reported_is_the_one_that_is_used():
    steps = random_steps(7)
    estimator = AdvantageEstimator("kae", bandwidth="auto")
    stream(estimator, steps[:9])
    record = estimator.record
    mixture = record.baseline.bandwidths(record.groups, record.visits, step=record.step)
    assert 1 < len(mixture) < 40
    expected = sum(
        share
        * make_baseline("kae", bandwidth=float(np.squeeze(b))).values(record.groups, record.visits, step=record.step)
        for b, share in mixture
    )
    np.testing.assert_allclose(record.values, expected, rtol=1e-4, atol=1e-4)  # negligible shares are left out
    mixed = record.baseline.values(record.groups, record.visits, step=record.step)
    np.testing.assert_allclose(mixed, expected, rtol=1e-9)
