"""What must agree: library = slow reference, streaming = batch, NumPy = torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from tests.helpers.method_table import METHODS, carry_before, every_method, flat, present, values_of
from tests.helpers.strategies import Step, case_at, groups_of, runs, visits_of
from tests.helpers.tensors import as_torch

pytestmark = pytest.mark.filterwarnings("ignore:bnpo:", "ignore:.*no group has more than one completion")


with_and_without_weights = pytest.mark.parametrize(
    ("method", "weighted"),
    [(method, weighted) for method in METHODS for weighted in (False, True)[: 1 + method.weighted]],
    ids=lambda given: getattr(given, "id", "weighted" if given is True else "plain"),
)


@with_and_without_weights
@given(data=st.data(), scatter_padding=st.booleans(), spare=st.integers(0, 2), padding=st.sampled_from([0.5, 1.0]))
def test_values_are_those_of_the_slow_reference_and_padding_never_matters(method, weighted, data, **layout):
    run = data.draw(runs(weighted=weighted))
    values, groups = values_of(method, run, weighted=weighted, **layout)

    assert np.isfinite(values).all()
    expected = flat(method.expected(case_at(run, len(run) - 1)))
    np.testing.assert_allclose(present(values, groups), expected, rtol=1e-9, atol=1e-9)


@every_method
@given(run=runs())
def test_torch_tensors_give_the_same_values_as_numpy_and_stay_tensors(method, run):
    baseline, case = method.baseline(), case_at(run, len(run) - 1)
    groups, visits = groups_of(case, weighted=method.needs_weights), visits_of(case)
    carry = carry_before(method.baseline(), run)
    values = baseline.values(groups, visits, step=case.step, carry=carry)
    tensor = baseline.values(as_torch(groups), as_torch(visits), step=case.step, carry=carry)

    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float64
    np.testing.assert_allclose(tensor.numpy(), values, rtol=1e-9, atol=1e-9)
    own = baseline.own_derivative(as_torch(groups), as_torch(visits), step=case.step, carry=carry)
    np.testing.assert_allclose(
        np.asarray(own), baseline.own_derivative(groups, visits, step=case.step, carry=carry), rtol=1e-12, atol=1e-12
    )


def step_through(estimator: AdvantageEstimator, step: Step, weighted: bool) -> np.ndarray:
    """One step of a run, whose prompts take turns, through the estimator; values in prompt-major order."""
    samples = [
        (p, group.prompt, z, w, group.divergence)
        for p, group in enumerate(step.groups)
        for z, w in zip(group.rewards, group.weights, strict=True)
    ]
    number = [k for group in step.groups for k in range(len(group.rewards))]
    order = sorted(range(len(samples)), key=lambda k: (number[k], samples[k][0]))
    _, prompts, rewards, weights, divergence = zip(*(samples[k] for k in order), strict=True)
    extra = {"weights": weights} if weighted or estimator.baseline.needs_weights else {}
    if estimator.baseline.takes_divergence:
        extra["divergence"] = divergence
    advantages = estimator.step(prompts, rewards, step.number, **extra)
    np.testing.assert_array_equal(estimator.values.shape, advantages.shape)
    values = np.empty(len(samples))
    values[order] = estimator.values
    return values


@with_and_without_weights
@given(data=st.data())
def test_streaming_gives_the_slow_references_values_at_every_step(method, weighted, data):
    run = data.draw(runs(max_steps=9, weighted=weighted))
    estimator = AdvantageEstimator(method.name, **method.params, scale="none")

    for index, step in enumerate(run):
        expected = flat(method.expected(case_at(run, index)))
        np.testing.assert_allclose(step_through(estimator, step, weighted), expected, rtol=1e-9, atol=1e-9)
