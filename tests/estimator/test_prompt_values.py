"""Priors of an estimator: predictions before the first step, resumes, workers, and what is refused."""

import numpy as np
import pytest

from kaestat import (
    AdvantageEstimator,
    AsynchronousEstimator,
    Prior,
    make_baseline,
    methods,
)
from kaestat.baselines import Kae
from tests.helpers.estimators import PARAMETERS

PRIOR = {"a": (0.25, 8), "b": (1.0, 8), "c": (0.5, 4)}
WITH_HISTORY = [name for name in methods() if name not in PARAMETERS and make_baseline(name).horizon > 0]
IDS, REWARDS = ["a", "b", "c"], [1.0, 1.0, 0.0]


def advantages(estimator: AdvantageEstimator, steps, first: int = 0) -> np.ndarray:
    rng = np.random.default_rng(first)
    return np.array([estimator.step(IDS, rng.integers(0, 2, 3).astype(float), step) for step in range(first, steps)])


@pytest.mark.parametrize("name", WITH_HISTORY)
def test_every_method_with_a_history_starts_from_its_prior(name):
    warm = AdvantageEstimator(name, prior=PRIOR)

    before = warm.predict(IDS, 0)
    assert (np.argsort(before.value) == [0, 2, 1]).all() and (before.effective_completions > 0).all()
    assert before.lag.tolist() == [1.0, 1.0, 1.0]
    warm.step(["a"], [1.0], 0)
    assert warm.values[0] == pytest.approx(before.value[0], abs=0.35) and warm.values[0] < 0.45
    assert warm.priors == () and len(warm.history) == 3


def test_a_mapping_a_prior_and_a_file_are_the_same(tmp_path):
    path = tmp_path / "prior.csv"
    path.write_text("prompt_id,prior_mean,prior_count\n" + "\n".join(f"{k},{m},{n}" for k, (m, n) in PRIOR.items()))
    found = [advantages(AdvantageEstimator("kae_eb", prior=p), 4) for p in (PRIOR, Prior.of_mapping(PRIOR), path)]
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, AdvantageEstimator) for name in ("kae_eb", "kalman", "bayes_filter")] + [("kae_eb", AsynchronousEstimator)],
)
def test_a_state_holds_the_prior_once_whether_or_not_it_is_given_again(name, kind, begun, tmp_path):
    whole = kind(name, prior=PRIOR)
    first = kind(name, prior=PRIOR)
    if begun:
        advantages(whole, 2), advantages(first, 2)
    first.save(tmp_path / "state")

    again = kind(name, prior=PRIOR)
    again.load_state_dict(first.state_dict())
    loaded = kind.load(tmp_path / "state")

    expected = advantages(whole, 6, 2)
    np.testing.assert_array_equal(advantages(again, 6, 2), expected)
    np.testing.assert_array_equal(advantages(loaded, 6, 2), expected)


@pytest.mark.parametrize(
    ("method", "prior", "word"),
    [
        ("grpo", PRIOR, "keeps no history"),
        ("spo", Prior.of_rewards({"a": [1.5]}), "spo tracks success probabilities"),
        ("bayes_filter", Prior.of_rewards({"a": [0.5]}), "for rewards other than 0 and 1 a prior has only sums"),
        ("bayes_filter", Prior.of_rates(["a"], [0.5], [2], low=-1), "for rewards other than 0 and 1"),
        (Kae(bandwidth=10, normalization="algorithm1"), PRIOR, 'normalization="algorithm1"'),
    ],
)
def test_priors_that_a_method_cannot_use_are_refused(method, prior, word):
    estimator = AdvantageEstimator(method)
    with pytest.raises(ValueError, match=f"prior: .*{word}"):
        estimator.add_prior(prior)
    assert estimator.priors == ()


def test_bayes_filter_takes_rates_in_its_own_range():
    plain, wide = AdvantageEstimator("bayes_filter"), AdvantageEstimator("bayes_filter", low=-1, high=3)
    plain.add_prior({"a": (1 / 3, 3)})
    wide.add_prior(Prior.of_rates(["a"], [1 / 3], [3], low=-1, high=3))
    value = plain.predict(["a"], 0).value[0]
    assert 1 / 3 < value < 0.5
    assert wide.predict(["a"], 0).value[0] == pytest.approx(4 * value - 1, abs=1e-5)


def test_a_prompt_has_one_prior_of_a_date_before_the_first_step_with_weights_if_steps_have_them():
    estimator = AdvantageEstimator("kae_eb", prior=PRIOR)
    with pytest.raises(ValueError, match="prior: prompt 'b' has one of step -1"):
        estimator.add_prior({"d": (0.5, 2), "b": (0.5, 2)})
    with pytest.raises(ValueError, match=r"weights: .*Prior\.of_samples"):
        estimator.step(IDS, REWARDS, 0, weights=[1.0, 2.0, 3.0])
    assert estimator.history is None and len(estimator.priors) == 1
    priors = estimator.state_dict()["priors"]
    estimator.step(IDS, REWARDS, 3)
    with pytest.raises(ValueError, match=r"prior: .*observe"):
        estimator.add_prior({"d": (0.5, 2)})
    with pytest.raises(ValueError, match="state: there are priors only before a history"):
        estimator.load_state_dict(estimator.state_dict() | {"priors": priors})


def test_a_state_without_a_prior_leaves_out_that_of_the_estimator_which_loads_it():
    plain, warm = AdvantageEstimator("kae"), AdvantageEstimator("kae", prior=PRIOR)
    advantages(plain, 2)
    warm.load_state_dict(plain.state_dict())
    np.testing.assert_array_equal(advantages(warm, 5, 2), advantages(plain, 5, 2))
