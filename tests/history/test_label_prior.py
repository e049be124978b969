"""Priors from difficulty labels count for what labels tell."""

import numpy as np
import pytest

from kaestat import Prior


def made(spread, n_prompts=900, seed=0):
    """Labels of three levels whose values are Beta distributed around them with that size, and some measured rates."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, n_prompts)
    middle = np.array([0.2, 0.5, 0.8])[level]
    value = rng.beta(middle * spread, (1 - middle) * spread)
    labels = {f"p{k}": f"level {label}" for k, label in enumerate(level)}
    measured = {f"p{k}": (rng.binomial(8, value[k]) / 8, 8) for k in range(300)}
    return labels, measured, value


@pytest.mark.parametrize("size", [2.0, 20.0])
def test_a_label_counts_as_the_completions_that_tell_as_much(size):
    labels, measured, _ = made(size)
    prior = Prior.of_labels(labels, measured)
    counts = {
        label: count
        for key, label, count in zip(prior.prompt_ids, labels.values(), prior.sums["count"], strict=True)
        if key not in measured
    }
    assert len(counts) == 3
    for count in counts.values():
        assert 0.5 * size <= count <= 2 * size


def test_measured_prompts_have_their_own_rate_and_unknown_labels_that_of_all():
    labels, measured, _ = made(5.0)
    prior = Prior.of_labels(labels | {"new": "never measured"}, measured | {"unlabelled": (0.25, 4)})
    of = dict(zip(prior.prompt_ids, zip(prior.sums["total"], prior.sums["count"], strict=True), strict=True))
    assert of["p0"] == (8 * measured["p0"][0], 8)
    assert of["unlabelled"] == (1.0, 4)
    assert of["new"][0] / of["new"][1] == pytest.approx(np.mean([rate for rate, _ in measured.values()]))


def test_what_cannot_be_used_is_refused():
    with pytest.raises(ValueError, match="2 of these prompts have a label"):
        Prior.of_labels({"a": 1, "b": 1}, {"a": (0.5, 8), "b": (0.5, 8)})
    with pytest.raises(ValueError, match="of two or more"):
        Prior.of_labels({"a": 1}, {"a": (0.5, 1)})
