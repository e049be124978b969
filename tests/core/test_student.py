import numpy as np
import pytest
from scipy.special import stdtrit

from kaestat.core.student import student_quantile


@pytest.mark.parametrize(("level", "error"), [(0.9, 1e-11), (0.975, 1e-11), (0.995, 1e-8)])
def test_quantiles_equal_scipys_for_any_number_of_degrees_of_freedom(level, error):
    freedom = np.concatenate([np.arange(1, 330), np.geomspace(2, 1e7, 200)])
    np.testing.assert_allclose(student_quantile(freedom, level), stdtrit(freedom, level), rtol=error)


def test_a_quantile_has_the_shape_of_the_degrees_of_freedom():
    assert student_quantile(3).shape == ()
    assert student_quantile(np.full((2, 3), 4.5)).shape == (2, 3)
