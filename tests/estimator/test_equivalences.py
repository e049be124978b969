"""What must agree: library = slow reference, streaming = batch, NumPy = torch; and the estimators' invariances."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, Groups, Visits, make_baseline
from tests.helpers.method_table import carry_before, every_method, flat, only, present, values_of
from tests.helpers.strategies import Step, case_at, groups_of, runs, visits_of


@every_method
@given(run=runs(), scatter_padding=st.booleans(), spare=st.integers(0, 2))
def test_values_are_those_of_the_slow_reference_and_padding_never_matters(method, run, scatter_padding, spare):
    values, groups = values_of(method, run, scatter_padding=scatter_padding, spare=spare, padding=1.0)

    assert np.isfinite(values).all()
    expected = flat(method.expected(case_at(run, len(run) - 1)))
    np.testing.assert_allclose(present(values, groups), expected, rtol=1e-9, atol=1e-9)


@only(lambda method: method.weighted)
@given(run=runs(weighted=True), scatter_padding=st.booleans())
def test_weighted_values_are_those_of_the_slow_reference(method, run, scatter_padding):
    values, groups = values_of(method, run, weighted=True, scatter_padding=scatter_padding, padding=0.5)

    expected = flat(method.expected(case_at(run, len(run) - 1)))
    np.testing.assert_allclose(present(values, groups), expected, rtol=1e-9, atol=1e-9)


@only(lambda method: make_baseline(method.name, **method.params).takes_weights)
@given(run=runs(weighted=True), factor=st.sampled_from([1e-3, 8.0, 1e4]))
def test_multiplying_all_weights_by_a_constant_changes_nothing(method, run, factor):
    scaled = [
        replace(step, groups=[replace(group, weights=[factor * w for w in group.weights]) for group in step.groups])
        for step in run
    ]

    values, groups = values_of(method, run, weighted=True)
    np.testing.assert_allclose(
        present(values_of(method, scaled, weighted=True)[0], groups), present(values, groups), rtol=1e-9, atol=1e-9
    )


def as_torch(container):
    arrays = {name: torch.from_numpy(value) for name, value in vars(container).items() if isinstance(value, np.ndarray)}
    return replace(container, **arrays)


@every_method
@given(run=runs())
def test_torch_tensors_give_the_same_values_as_numpy_and_stay_tensors(method, run):
    baseline, case = method.baseline(), case_at(run, len(run) - 1)
    groups, visits = groups_of(case, weighted=method.needs_weights), visits_of(case)
    carry = carry_before(method, method.baseline(), run)
    values = baseline.values(groups, visits, step=case.step, carry=carry)
    tensor = baseline.values(as_torch(groups), as_torch(visits), step=case.step, carry=carry)

    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64
    np.testing.assert_allclose(tensor.numpy(), values, rtol=1e-9, atol=1e-9)
    own = baseline.own_derivative(as_torch(groups), as_torch(visits), step=case.step, carry=carry)
    np.testing.assert_allclose(
        np.asarray(own), baseline.own_derivative(groups, visits, step=case.step, carry=carry), rtol=1e-12, atol=1e-12
    )


@only(lambda method: method.name != "critic")  # it learns step by step and refuses leading axes
@given(run=runs())
def test_leading_axes_are_a_loop_over_replicates(method, run):
    baseline, case = method.baseline(), case_at(run, len(run) - 1)
    groups, visits = groups_of(case, weighted=method.needs_weights), visits_of(case)
    carry = carry_before(method, method.baseline(), run)

    def swapped(k):  # replicate k: successes and failures swapped in the second one
        flip = replace(
            visits, total=visits.count - visits.total, total_sq=visits.count - 2 * visits.total + visits.total_sq
        )
        return (groups, visits) if k == 0 else (replace(groups, reward=1 - groups.reward), flip)

    one_by_one = np.stack([baseline.values(*swapped(k), step=case.step, carry=carry) for k in (0, 1)])
    stacked_groups = replace(groups, reward=np.stack([swapped(k)[0].reward for k in (0, 1)]))
    stacked_visits = replace(
        visits, **{name: np.stack([getattr(swapped(k)[1], name) for k in (0, 1)]) for name in ("total", "total_sq")}
    )
    np.testing.assert_allclose(
        baseline.values(stacked_groups, stacked_visits, step=case.step, carry=carry), one_by_one, rtol=1e-12, atol=1e-12
    )
    of_many_groups = baseline.values(stacked_groups, visits, step=case.step, carry=carry)
    np.testing.assert_allclose(of_many_groups[0], one_by_one[0], rtol=1e-12, atol=1e-12)


def with_reward(run: list[Step], row: int, place: int, reward: float) -> list[Step]:
    """The run with one completion of its last step given another reward."""
    last = run[-1]
    group = last.groups[row]
    rewards = [reward if g == place else z for g, z in enumerate(group.rewards)]
    groups = [replace(group, rewards=rewards) if p == row else other for p, other in enumerate(last.groups)]
    return [*run[:-1], replace(last, groups=groups)]


@only(lambda method: not method.sees_own)
@given(run=runs(), data=st.data())
def test_a_value_never_depends_on_its_own_reward(method, run, data):
    row = data.draw(st.integers(0, len(run[-1].groups) - 1))
    place = data.draw(st.integers(0, len(run[-1].groups[row].rewards) - 1))
    values = [values_of(method, with_reward(run, row, place, reward))[0][row, place] for reward in (0.0, 1.0)]

    # Rewards are dyadic, so sums are exact. Not so rewards less an outside value; the other two take means of prompts
    # out of sums over all prompts.
    rounded = method.name in ("james_stein", "kae_eb", "outside_value")
    assert math.isclose(*values, rel_tol=0, abs_tol=1e-12 if rounded else 0)
    case, baseline = case_at(run, len(run) - 1), method.baseline()
    assert baseline.own_derivative(groups_of(case), visits_of(case), step=case.step) == 0


@only(lambda method: method.sees_own and method.name != "ebpo" and not method.by_rank)
@given(run=runs(), data=st.data())
def test_own_weight_is_the_derivative_of_the_value_in_its_own_reward(method, run, data):
    row = data.draw(st.integers(0, len(run[-1].groups) - 1))
    place = data.draw(st.integers(0, len(run[-1].groups[row].rewards) - 1))
    low, high = (values_of(method, with_reward(run, row, place, reward))[0][row, place] for reward in (0.0, 1.0))
    case, baseline = case_at(run, len(run) - 1), method.baseline()
    own = baseline.own_derivative(groups_of(case), visits_of(case), step=case.step) + np.zeros_like(
        groups_of(case).reward
    )

    assert own[row, place] > 0
    np.testing.assert_allclose(own[row, place], high - low, rtol=1e-9, atol=1e-12)


@only(lambda method: method.averages or method.name in ("james_stein",))
@given(run=runs(), scale=st.sampled_from([2.0, -3.0, 0.125]), shift=st.sampled_from([0.0, 10.0, -1.0]))
def test_values_move_with_any_affine_change_of_the_rewards(method, run, scale, shift):
    def changed(group):
        return replace(group, rewards=[scale * z + shift for z in group.rewards])

    # A lone prompt's lone first completion has no information, and value 0 in any units; another prompt gives it some.
    run = [
        replace(
            step, groups=[*step.groups, replace(step.groups[0], prompt="p9", rewards=[0.0, 1.0], weights=[1.0, 1.0])]
        )
        for step in run
    ]
    moved = [replace(step, groups=[changed(group) for group in step.groups]) for step in run]
    if method.name == "james_stein":  # eps breaks scale equivariance by design; without it, it is exact
        method = replace(method, params={**method.params, "eps": 0.0})
    values, groups = values_of(method, run)
    np.testing.assert_allclose(
        present(values_of(method, moved)[0], groups), scale * present(values, groups) + shift, rtol=1e-7, atol=1e-7
    )


def step_through(
    estimator: AdvantageEstimator, step: Step, *, weighted: bool = False, interleave: bool = False
) -> np.ndarray:
    """One step of a run through the estimator; values in prompt-major order."""
    samples = [
        (p, group.prompt, z, w, group.divergence)
        for p, group in enumerate(step.groups)
        for z, w in zip(group.rewards, group.weights, strict=True)
    ]
    order = list(range(len(samples)))
    if interleave:
        # Prompts take turns; the order of prompts and of completions within each prompt stays.
        order = sorted(order, key=lambda k: ([s[0] for s in samples[:k]].count(samples[k][0]), samples[k][0]))
    _, prompts, rewards, weights, divergence = zip(*(samples[k] for k in order), strict=True)
    extra = {"weights": weights} if weighted or estimator.baseline.needs_weights else {}
    if estimator.baseline.takes_divergence:
        extra["divergence"] = divergence
    advantages = estimator.step(prompts, rewards, step.number, **extra)
    np.testing.assert_array_equal(estimator.values.shape, advantages.shape)
    values = np.empty(len(samples))
    values[order] = estimator.values
    return values


@every_method
@given(run=runs(max_steps=9))
def test_streaming_gives_the_slow_references_values_at_every_step(method, run):
    estimator = AdvantageEstimator(method.name, **method.params)

    for index, step in enumerate(run):
        expected = flat(method.expected(case_at(run, index)))
        np.testing.assert_allclose(step_through(estimator, step, interleave=True), expected, rtol=1e-9, atol=1e-9)


@only(lambda method: method.weighted)
@given(run=runs(weighted=True))
def test_weighted_streaming_gives_the_slow_references_values_at_every_step(method, run):
    estimator = AdvantageEstimator(method.name, scale="none", **method.params)

    for index, step in enumerate(run):
        expected = flat(method.expected(case_at(run, index)))
        np.testing.assert_allclose(step_through(estimator, step, weighted=True), expected, rtol=1e-9, atol=1e-9)


def test_empty_visits_fit_any_groups():
    groups = Groups(reward=np.zeros((2, 3, 4)))

    assert Visits.empty(groups).lag.shape == (2, 3, 0)
