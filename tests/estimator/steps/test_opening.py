"""A prior is a visit: what follows is as if the estimator had made it itself, at its date."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import AdvantageEstimator, AsynchronousEstimator, Prior
from tests.helpers.arrivals import METHODS, WEIGHTED, run

SERVED = {"bayes_filter": ("bayes_filter", {})}
STRICT = METHODS | SERVED | {"spo, adaptive": ("spo", {"scale": "none"})}

KINDS = [(order, {given: "weight"}) for order in ("strict", "any") for given in ("weights", "importance")]
PAIRS = [(name, *KINDS[kind]) for k, name in enumerate(WEIGHTED) for kind in ((0, 3), (1, 2))[k % 2]]
seeds = st.integers(0, 2**32 - 1)


def make(name: str, order: str = "strict", **options) -> AdvantageEstimator:
    method, params = STRICT[name]
    kind = AsynchronousEstimator if order == "any" else AdvantageEstimator
    return kind(method, **params, **options)


def values(estimator: AdvantageEstimator, steps, first: int, **columns: str) -> list[np.ndarray]:
    """Values of steps from one on, their columns given under other names."""
    found = []
    for step, part in enumerate(steps, start=first):
        estimator.step(part.ids, part.reward, step, **{name: getattr(part, column) for name, column in columns.items()})
        found.append(estimator.values)
    return found


def everybody(steps):
    """The first arrival with at least one completion of every prompt that ever comes."""
    ids = np.unique(np.concatenate([part.ids for part in steps]))
    missing = ids[~np.isin(ids, steps[0].ids)]
    extra = np.arange(len(missing)) % 2
    first = steps[0]
    return [
        replace(
            first,
            ids=np.concatenate([first.ids, missing]),
            reward=np.concatenate([first.reward, extra]),
            version=np.zeros(len(first) + len(missing), int),
            weight=np.concatenate([first.weight, 1.0 + extra]),
        ),
        *steps[1:],
    ]


@pytest.mark.parametrize(
    ("name", "order", "columns"),
    [*((name, "strict", {}) for name in STRICT), *((name, "any", {}) for name in METHODS), *PAIRS],
)
@settings(max_examples=8)
@given(seed=seeds, binary=st.booleans(), several=st.booleans(), shift=st.integers(0, 1))
def test_priors_are_visits_made_at_their_dates(name, order, columns, seed, binary, several, shift):
    """However they come, with ratios of 1; and only the time since them matters."""
    several = several and not columns and (order == "any" or "learned" not in name)  # their steps have no scores
    shift = 0 if name == "kae, fraction" else shift  # of the steps' number
    early, late, *later = everybody(run(seed, 9, binary=binary or name in SERVED))
    dates = {0: early, 2: late} if several else {0: early}
    visited, known = make(name, order=order), make(name, order=order)

    for step, part in dates.items():
        own = part.weight if "weights" in columns else np.ones(len(part))
        visited.observe(part.ids, part.reward, step, **dict.fromkeys(columns, own))
    for step, part in reversed(dates.items()):
        weights = part.weight if columns else None
        known.add_prior(Prior.of_samples(part.ids, part.reward, weights=weights, step=step - shift))

    expected, found = values(visited, later, 3, **columns), values(known, later, 3 - shift, **columns)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_rates_between_whole_numbers_of_completions_are_no_partial_credit():
    """The filter would take rewards for less dispersed than zeros and ones are, for the rest of the run."""
    estimator = AdvantageEstimator("bayes_filter", prior={key: (0.37, 4) for key in range(50)})
    estimator.step(np.repeat(np.arange(50), 2), np.tile([0.0, 1.0], 50), 0)
    squares, excess = estimator.state.carry["squares"]
    assert squares > 50 and excess == 0
    assert estimator.predict([0], 1).value == pytest.approx(0.4, abs=0.05)
