"""AdvantageEstimator takes specifications as the tables of risk do, and shows what it is."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, make_baseline


def advantages(estimator):
    steps = [estimator.step(["a", "a", "b"], [1.0, 0.0, step % 2], step=step) for step in range(6)]
    return np.concatenate(steps)


@pytest.mark.parametrize(
    ("specification", "name", "params"),
    [
        ("kae:bandwidth=3", "kae", {"bandwidth": 3}),
        ("kae_eb:bandwidth=3,kernel=exponential", "kae_eb", {"bandwidth": 3, "kernel": "exponential"}),
        ("spo:rho=0.5", "spo", {"rho": 0.5}),
    ],
)
def test_a_specification_means_its_parameters(tmp_path, specification, name, params):
    estimator, expected = AdvantageEstimator(specification), AdvantageEstimator(name, **params)
    assert (estimator.method, estimator.baseline) == (name, expected.baseline)
    np.testing.assert_array_equal(advantages(estimator), advantages(expected))
    assert not np.array_equal(advantages(AdvantageEstimator(specification)), advantages(AdvantageEstimator(name)))
    estimator.save(tmp_path / "state")
    assert AdvantageEstimator.load(tmp_path / "state").baseline == expected.baseline


def test_a_specification_and_keywords_go_together_but_not_twice():
    estimator = AdvantageEstimator("kae:bandwidth=3", kernel="exponential")
    assert estimator.baseline == make_baseline("kae", bandwidth=3, kernel="exponential")
    with pytest.raises(ValueError, match="'bandwidth' is given twice: in 'kae:bandwidth=3', and as bandwidth="):
        AdvantageEstimator("kae:bandwidth=3", bandwidth=3)
    with pytest.raises(ValueError, match="unknown name 'nope'"):
        AdvantageEstimator("nope:bandwidth=3")


def test_repr_says_what_was_changed_and_how_far_it_is():
    estimator = AdvantageEstimator("kae:bandwidth=3", kernel="triangular", scale="batch_std")
    start = "AdvantageEstimator('kae', bandwidth=3, scale='batch_std')"  # triangular is the default
    assert repr(estimator) == f"{start} before its first step"
    estimator.step(["a", "b"], [1.0, 0.0], step=4)
    assert repr(estimator) == f"{start} after step 4, 2 prompts known"
    assert repr(AdvantageEstimator("rloo")) == "AdvantageEstimator('rloo') before its first step"
    assert "Kae(" in repr(AdvantageEstimator(make_baseline("kae")))
