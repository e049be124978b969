"""Squared norms of scores by kind of problem."""

import numpy as np
import pandas as pd
import pytest

from llm_experiments.study.noise.score_norms import _row, score_norms
from llm_experiments.training.stacked.model import StackedDecoder


def test_every_kind_has_its_row(folder, codec, pool):
    model, parameters = StackedDecoder.load([folder])
    found = score_norms(model, parameters, pool, codec, tokens=2, times=3, seed=0).set_index("kind")
    kinds = [problem.level for problem in pool.problems]
    assert found["completions"].to_dict() == {kind: 3 * kinds.count(kind) for kind in set(kinds)}
    assert (found["wrong"] > 0).all()


def test_how_many_answers_are_held_together_does_not_matter(folder, codec, pool, monkeypatch):
    model, parameters = StackedDecoder.load([folder])
    whole = score_norms(model, parameters, pool, codec, tokens=2, times=3, seed=0)
    monkeypatch.setattr("llm_experiments.study.noise.score_norms.AT_ONCE", 5)
    pd.testing.assert_frame_equal(
        score_norms(model, parameters, pool, codec, tokens=2, times=3, seed=0), whole, rtol=1e-5
    )


def test_the_best_baseline_lies_below_the_value_where_wrong_answers_weigh_more():
    row = _row("solved", np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 6.0]))
    assert (row["value"], row["right"], row["wrong"], row["best_baseline"]) == (0.75, 1.0, 6.0, pytest.approx(1 / 3))
