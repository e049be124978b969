"""Bad input gets an error that names the argument and says what to do, and leaves the state untouched."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, make_baseline, methods
from kaestat.baselines import Kae

GOOD = {"prompt_ids": ["a", "a", "b"], "rewards": [1.0, 0.0, 1.0], "step": 6}

BAD_STEPS = {
    "an integer beyond any float": (TypeError, "rewards must be numbers", {"rewards": [10**400, 0, 1]}),
    "NaN reward": (ValueError, "rewards must be finite", {"rewards": [1.0, np.nan, 0.0]}),
    "rewards whose squares overflow": (ValueError, "at most 1e", {"rewards": [1e200, 0.0, 0.0]}),
    "text among rewards": (TypeError, "rewards must be numbers", {"rewards": ["1", "0", "1"]}),
    "complex tensor": (TypeError, "rewards must be numbers", {"rewards": torch.tensor([1j, 0, 1])}),
    "2-D rewards": (ValueError, r"rewards must have one axis, got shape \(3, 1\)", {"rewards": np.ones((3, 1))}),
    "fewer ids than rewards": (ValueError, "prompt_ids has 2 entries for 3", {"prompt_ids": ["a", "b"]}),
    "one string as ids": (TypeError, "prompt_ids must be a sequence .* got str", {"prompt_ids": "abc"}),
    "a NaN id": (ValueError, "prompt_ids: None or NaN is not an id", {"prompt_ids": ["a", math.nan, "b"]}),
    "unhashable ids": (TypeError, "prompt_ids must be hashable .* tuples", {"prompt_ids": [["a"], ["a"], ["b"]]}),
    "tensors as ids": (TypeError, "prompt_ids holds arrays .Tensor.*tolist", {"prompt_ids": list(torch.arange(3))}),
    "short mask": (ValueError, "mask has 2 entries for 3", {"mask": [True, False]}),
    "mask of other numbers": (ValueError, "mask must be boolean", {"mask": [1, 2, 0]}),
    "backwards step": (ValueError, "step went backwards: got 4 after 5", {"step": 4}),
    "negative step": (ValueError, "step must be a whole number from 0", {"step": -1}),
    "half a step": (ValueError, "step must be a whole number", {"step": 6.5}),
    "huge step": (ValueError, "step must be a whole number", {"step": 2**31}),
    "step as a flag": (ValueError, "step must be a whole number", {"step": True}),
    "negative weight": (ValueError, "weights must be finite and non-negative", {"weights": [1.0, -1, 1]}),
    "divergence for a method without": (ValueError, "divergence: method 'kae'", {"divergence": [0.1] * 3}),
    "NaN divergence": (ValueError, "divergence must be finite", {"divergence": [0.1, math.nan, 0.1]}),
    "a prompt twice in a step": (ValueError, "prompt 'a' was already recorded at step 5", {"step": 5}),
}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("reason", BAD_STEPS)
def test_a_bad_step_is_refused_by_name_and_changes_nothing(reason):
    error, message, change = BAD_STEPS[reason]
    estimator, twin = AdvantageEstimator("kae", bandwidth=10), AdvantageEstimator("kae", bandwidth=10)
    for one in (estimator, twin):
        one.step(["a", "b"], [1.0, 0.0], 5)
    before, values = estimator.state_dict(), estimator.values

    with pytest.raises(error, match=message):
        estimator.step(**{**GOOD, **change})
    np.testing.assert_equal(estimator.state_dict(), before)
    assert estimator.values is values
    np.testing.assert_array_equal(estimator.step(**GOOD), twin.step(**GOOD))


@pytest.mark.parametrize("name", ["kae", "spo", "kalman", "kae_stream", "ebpo"])
def test_no_stateful_method_counts_a_prompt_twice_in_a_step(name):
    estimator = AdvantageEstimator(name)
    estimator.step(["a", "b"], [1.0, 0.0], 0)
    estimator.step(["c"], [1.0], 0)
    resumed = AdvantageEstimator(name)
    resumed.load_state_dict(estimator.state_dict())
    before = estimator.state_dict()
    for one in (estimator, resumed):
        for prompt in "abc":
            with pytest.raises(ValueError, match=f"prompt '{prompt}' was already recorded at step 0"):
                one.step(["d", prompt], [1.0, 0.0], 0)
        np.testing.assert_equal(one.state_dict(), before)
        one.step(["a"], [1.0], 1)


@pytest.mark.parametrize("first", [True, False], ids=["first with", "first without"])
@pytest.mark.parametrize(
    ("name", "extra"),
    [("kae", {"weights": [1.0]}), ("spo", {"divergence": [0.01]}), ("kae_stream", {"stream_ids": [0]})],
)
def test_what_the_history_is_kept_by_must_come_at_every_step_or_at_none(name, extra, first):
    estimator = AdvantageEstimator(name)
    estimator.step(["a"], [1.0], 0, **(extra if first else {}))
    before = estimator.state_dict()
    with pytest.raises(ValueError, match=f"{next(iter(extra))} must be given at every step or at none"):
        estimator.step(["a"], [1.0], 1, **({} if first else extra))
    np.testing.assert_equal(estimator.state_dict(), before)


def test_divergence_must_be_one_number_per_prompt():
    with pytest.raises(ValueError, match="divergence must be the same for all samples of a prompt"):
        AdvantageEstimator("spo").step(["a", "b", "a"], [1.0, 0, 1], 0, divergence=[0.1, 0.1, 0.2])


@pytest.mark.parametrize("name", ["krpo", "ebpo", "spo", "kalman"])
def test_weights_for_a_method_that_does_not_average_are_refused(name):
    with pytest.raises(ValueError, match=f"weights: method '{name}' does not average"):
        AdvantageEstimator(name).step(["a"], [1.0], 0, weights=[1.0])


BAD_PARAMETERS = [
    (ValueError, "scale: unknown", ("kae",), {"scale": np.array([1.0, 2.0])}),
    (ValueError, "scale: unknown 'deviation'", ("krpo",), {"scale": "deviation"}),
    (ValueError, "bandwidth must be positive, from 1e-70", ("kae",), {"bandwidth": 5e-324}),
    (ValueError, "bandwidth must be positive", ("kae",), {"bandwidth": 10**400}),
    (ValueError, "drift_variance must be .* to 1e.70", ("kalman",), {"drift_variance": 1e300}),
    (TypeError, "drift_variance must be a", ("kalman",), {"drift_variance": Fraction(1, 3)}),
    (TypeError, "bandwidth must be a", ("kae",), {"bandwidth": torch.tensor(True)}),
    (TypeError, "method must be a name or a Baseline, got int", (3,), {}),
    (TypeError, "method must be a name or a Baseline", (Kae,), {}),
    (ValueError, r"'bandwith' \(did you mean 'bandwidth'\?\); it takes kernel", ("kae",), {"bandwith": 3}),
    (ValueError, "bandwidth: a Baseline object has", (Kae(),), {"bandwidth": 3}),
    (ValueError, "selector: unknown name", ("kae",), {"bandwidth": "10"}),
]


@pytest.mark.parametrize(("error", "message", "arguments", "params"), BAD_PARAMETERS)
def test_bad_parameters_are_named_with_the_choices(error, message, arguments, params):
    with pytest.raises(error, match=message):
        AdvantageEstimator(*arguments, **params)


@pytest.mark.parametrize("name", methods())
def test_every_numeric_parameter_refuses_nan(name):
    baseline = make_baseline(name)
    numeric = [key for key, value in vars(baseline).items() if type(value) is float]
    for key in numeric:
        with pytest.raises(ValueError, match=key):
            make_baseline(name, **{key: math.nan})


def test_a_state_of_another_method_or_bandwidth_is_refused_and_nothing_taken_over():
    saved = AdvantageEstimator("kae", bandwidth=10)
    saved.step(["a"], [1.0], 0)
    state = saved.state_dict()
    for other, message in (
        (AdvantageEstimator("kalman"), "saved by method 'kae', this estimator is 'kalman'"),
        (AdvantageEstimator("kae", bandwidth=20), "reaches 10 steps back, this estimator needs 20"),
    ):
        before = other.state_dict()
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)
        np.testing.assert_equal(other.state_dict(), before)
