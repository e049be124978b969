"""The critic: recursive ridge regression on prompt features, past steps only."""

from fractions import Fraction

import numpy as np
import pytest

from kaestat import AdvantageEstimator, Groups, make_baseline
from kaestat.baselines import Critic
from tests.helpers.cases import NO_PAST
from tests.helpers.method_case import MethodCase
from tests.helpers.references import per_completion


def test_ridge_by_hand():
    # x = 0 with reward 0, x = 1 with reward 1, penalty 1 on the slope: [[2, 1], [1, 2]] (a, b) = (1, 1), so a = b = 1/3
    estimator = AdvantageEstimator("critic", features={"p": [0.0], "q": [1.0]})
    estimator.step(["p", "q"], [0.0, 1.0], 0)
    np.testing.assert_array_equal(estimator.values, [0, 0])
    estimator.step(["p", "q"], [0.0, 1.0], 1)
    np.testing.assert_allclose(estimator.values, [1 / 3, 2 / 3], rtol=1e-8)


def test_a_prompt_without_features_is_refused_and_nothing_is_learnt():
    estimator = AdvantageEstimator("critic", features={"a": [1.0]})
    with pytest.raises(ValueError, match="no features given for prompt 'b'"):
        estimator.step(["a", "b"], [1.0, 0], 0)
    estimator.step(["a"], [1.0], 0)
    assert estimator.values.tolist() == [0.0]


def test_a_change_in_the_number_of_features_is_refused():
    estimator = AdvantageEstimator("critic", features={"a": [1.0], "b": [1.0, 2.0]})
    estimator.step(["a"], [1.0], 0)
    with pytest.raises(ValueError, match="1 features before, now 2"):
        estimator.step(["b"], [1.0], 1)


@pytest.mark.parametrize("parameters", [{"forgetting": 0}, {"forgetting": 1.1}, {"forgetting": "1"}, {"ridge": 0}])
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises((ValueError, TypeError), match=next(iter(parameters))):
        make_baseline("critic", **parameters)


def test_values_have_the_precision_of_the_rewards():
    assert Critic().values(Groups(np.ones((2, 3), dtype=np.float32)), NO_PAST, step=0).dtype == np.float32


@pytest.mark.parametrize("as_function", [False, True], ids=["mapping", "function"])
def test_exact_fractions_are_features(as_function):
    vectors = {"p": [Fraction(1, 3)], "q": [Fraction(1, 2)]}
    features = (lambda prompts: [vectors[prompt] for prompt in prompts]) if as_function else vectors
    plain = {prompt: [float(x) for x in vector] for prompt, vector in vectors.items()}
    exact, floating = (AdvantageEstimator("critic", features=given) for given in (features, plain))
    for step in range(3):
        np.testing.assert_array_equal(exact.step(["p", "q"], [1.0, 0], step), floating.step(["p", "q"], [1.0, 0], step))


@pytest.mark.parametrize("shape", [(2,), (3, 1), (2, 1, 1)])
def test_features_must_be_one_vector_per_prompt(shape):
    estimator = AdvantageEstimator("critic", features=lambda prompts: np.ones(shape))
    with pytest.raises(ValueError, match=r"features must have shape \(2, F\)"):
        estimator.step(["a", "b"], [1.0, 0], 0)


@pytest.mark.parametrize(
    "altered",
    [
        {},
        {"gram": np.eye(2)},
        {"moment": np.ones(2)},
        {"gram": np.eye(2), "moment": np.ones(2), "more": np.ones(2)},
        {"gram": np.eye(3), "moment": np.ones(2)},
        {"gram": np.ones(2), "moment": np.ones(2)},
        {"gram": np.eye(2), "moment": np.ones((2, 1))},
        {"gram": np.ones((1, 1)), "moment": np.array(1.0)},
        {"gram": np.zeros((0, 0)), "moment": np.zeros(0)},
        {"gram": np.array([[1.0, 0.5], [0.0, 1.0]]), "moment": np.ones(2)},
        {"gram": np.array([[1.0, 2.0], [2.0, 1.0]]), "moment": np.ones(2)},
        {"gram": np.array([[1.0, 1.5e-9], [0.0, 1.0]]), "moment": np.ones(2)},
        {"gram": np.diag([1e3, -1.5e-6]), "moment": np.ones(2)},
        {"gram": np.array([[1e308, -1e308], [1e308, 1e308]]), "moment": np.ones(2)},
    ],
)
def test_arrays_that_are_no_sums_of_a_regression_are_no_carry(altered):
    assert Critic().accepts_carry(altered) is False


@pytest.mark.parametrize(
    "gram",
    [
        np.zeros((2, 2)),
        np.ones((1, 1)),
        np.diag([3.0, 0.0]),
        np.array([[2.0, 1.0], [1.0, 2.0]]),
        np.array([[1e300, 1e300], [1e300, 1e300]]),
        np.array([[1.0, 1e-9], [0.0, 1.0]]),  # as unsymmetric as rounding may make it,
        np.diag([1.0, -1e-9]),  # and as far below 0,
        np.array([[1e3, 1.0], [1.0 + 1e-7, 1e3]]),  # beside its largest number
    ],
)
def test_sums_of_a_regression_are_a_carry_up_to_rounding(gram):
    assert Critic().accepts_carry({"gram": gram, "moment": np.ones(len(gram))}) is True
    assert Critic().accepts_carry(None) is True


def test_the_carry_of_a_run_is_taken_over_whatever_the_features():
    # One feature on scales eight orders apart, and one that says nothing: a Gram matrix as good as singular.
    rng = np.random.default_rng(0)
    column = rng.normal(size=(8, 1))
    features = dict(enumerate(np.concatenate([1e4 * column, 1e-4 * column, 0 * column, column], axis=1)))
    estimator = AdvantageEstimator("critic", features=features, ridge=1e-9)
    for step in range(30):
        estimator.load_state_dict(estimator.state_dict())
        estimator.step(list(rng.choice(8, size=5)), list(rng.random(5)), step)


def critic(case, *, features, forgetting=0.98, ridge=1.0):
    """Ridge regression over every earlier completion, each weighted by its age in training steps taken."""
    size = len(next(iter(features.values()))) + 1
    gram, moment = np.diag([1e-9] + [ridge] * (size - 1)), np.zeros(size)
    for age, step in enumerate(reversed(case.earlier)):
        for prompt, rewards in step:
            x = np.array([1.0, *features[prompt]])
            for z in rewards:
                gram = gram + forgetting**age * np.outer(x, x)
                moment = moment + forgetting**age * z * x
    coefficients = np.linalg.solve(gram, moment)
    return per_completion(case, lambda p, g: float(np.array([1.0, *features[case.prompts[p]]]) @ coefficients))


FEATURES = {f"p{k}": [0.5 * k, (-1.0) ** k] for k in range(4)}
CASES = [MethodCase("critic", critic, {"features": FEATURES, "forgetting": 0.8})]
