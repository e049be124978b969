"""Rows of one prompt are one prior."""

import pytest

from kaestat.integrations.shared.prior_columns import prior_of_columns

COLUMNS = ("mean", "count")


def test_equal_rows_of_a_prompt_count_once_and_rows_without_a_number_not_at_all():
    table = {"mean": [0.5, 0.5, 1.0, None], "count": [4, 4, None, 8], "other": [0, 0, 0, 0]}
    prior = prior_of_columns(["a", "a", "b", "c"], table, COLUMNS)
    assert (prior.prompt_ids, prior.sums["count"].tolist(), prior.step) == (["a"], [4.0], -1)


def test_rows_of_a_prompt_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"prior_columns: rows of prompt 'a' say \(0.5, 4.0\) and \(1.0, 4.0\)"):
        prior_of_columns(["a", "a"], {"mean": [0.5, 1.0], "count": [4, 4]}, COLUMNS)
