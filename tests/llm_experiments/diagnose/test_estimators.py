"""Which methods the diagnostics compare, and the values they assign."""

import numpy as np
import pytest

from kaestat import make_baseline
from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.estimators import (
    EXCLUDED,
    PLAIN,
    WEIGHTED,
    WEIGHTINGS,
    make_estimator,
    plain_estimators,
    weighted_estimators,
)
from llm_experiments.diagnose.pool_rewards import PoolRewards
from tests.helpers.statistical import generator


def some_pool(salt: int = 920, **shape) -> PoolRewards:
    rng = generator(salt)
    size = {"prompts": 6, "past": 3, "target": 12, "history": 8} | shape
    target = (rng.random((size["prompts"], size["target"])) < 0.5).astype(float)
    history = (rng.random((size["prompts"], size["past"], size["history"])) < 0.5).astype(float)
    return PoolRewards(7, target, history)


def with_weights(pool: PoolRewards, kind: str = "exact", salt: int = 921) -> PoolRewards:
    rng = generator(salt)
    return pool.with_weights(kind, rng.gamma(2, size=pool.target.shape), rng.gamma(2, size=pool.history.shape))


def drawn_from(pool: PoolRewards, **drawing):
    return Drawing(**{"group_size": 4, "seed": 2} | drawing).draw(pool, range(3))


def test_duplicates_and_methods_that_lack_something_are_left_out():
    assert {"none", "reinforce++", "grpo", "ebpo", "krpo", "kae", "kae_eb", "kalman"} <= set(PLAIN)
    assert EXCLUDED["maxrl"] == "has the value of grpo here" and "no mean" in EXCLUDED["mc_grpo"]


@pytest.mark.parametrize("name", [name for name, why in EXCLUDED.items() if why == "has the value of grpo here"])
def test_methods_left_out_as_duplicates_are_grpo_here(name):
    drawn = drawn_from(some_pool())
    other = make_baseline(name).leave_one_out().values(drawn.groups(), drawn.visits(), step=7)
    np.testing.assert_allclose(other, make_estimator("grpo").values(drawn), rtol=1e-12)


@pytest.mark.parametrize("name", WEIGHTED)
def test_equal_weights_give_the_plain_form_back(name):
    pool = some_pool()
    pool = pool.with_weights("length", np.full_like(pool.target, 3.0), np.full_like(pool.history, 3.0))
    drawn = drawn_from(pool)
    np.testing.assert_allclose(
        make_estimator(f"{name}@length").values(drawn), make_estimator(name).values(drawn), atol=1e-12
    )


def test_weighted_kae_is_the_kernel_mean_of_weighted_rewards_by_hand():
    pool = with_weights(some_pool())
    drawn = drawn_from(pool)
    values = make_estimator("kae:bandwidth=8@exact").values(drawn)
    r, b, g = 1, 4, 2
    top = bottom = 0.0
    for k in range(4):
        if k != g:
            h = drawn.indices[r, b, k]
            top += pool.target_weight["exact"][b, h] * pool.target[b, h]
            bottom += pool.target_weight["exact"][b, h]
    for t, lag in enumerate((3, 2, 1)):
        for h in drawn.history_indices[r, b, t]:
            weight = (1 - lag / 8) * pool.history_weight["exact"][b, t, h]
            top += weight * pool.history[b, t, h]
            bottom += weight
    assert values[r, b, g] == pytest.approx(top / bottom, rel=1e-12)


def test_weighted_forms_are_offered_where_their_weights_are_known():
    pool = some_pool()
    assert weighted_estimators(pool) == []
    names = [e.name for e in weighted_estimators(with_weights(with_weights(pool), "logit_norm"))]
    assert names == [f"{name}@{kind}" for kind in ("exact", "logit_norm") for name in WEIGHTED]
    assert set(WEIGHTINGS) == {"exact", "length", "logit_norm"}


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("remax", "no place in the diagnostics: needs greedy"),
        ("kae@mass", "choose one of exact, length, logit_norm"),
        ("kalman@exact", "takes no weights"),
        ("nothing", "unknown name"),
    ],
)
def test_what_cannot_be_estimated_is_refused_with_the_reason(specification, message):
    with pytest.raises(ValueError, match=message):
        make_estimator(specification)


def test_groups_without_replacement_hold_distinct_completions_in_random_order():
    pool = some_pool(prompts=40, target=6)
    drawn = Drawing(4, first=1, seed=0).draw(pool, range(200))
    assert drawn.indices.min() == 1 and drawn.indices.max() == 5
    assert (np.diff(np.sort(drawn.indices, axis=-1)) > 0).all()
    share = np.stack([(drawn.indices == h).mean(axis=(0, 1)) for h in range(1, 6)])
    np.testing.assert_allclose(share, 0.2, atol=0.03)  # every position of the group, 8,000 draws


def test_repeat_r_is_the_same_whatever_is_drawn_with_it():
    pool = some_pool()
    whole, alone = Drawing(4, seed=5).draw(pool, range(6)), Drawing(4, seed=5).draw(pool, range(4, 5))
    np.testing.assert_array_equal(whole.indices[4:5], alone.indices)
    np.testing.assert_array_equal(whole.history_indices[4:5], alone.history_indices)
    for other in (Drawing(4, seed=5, purpose=1), Drawing(4, seed=6)):
        assert (other.draw(pool, range(6)).indices != whole.indices).any()


def test_pools_without_a_past_serve_every_estimator():
    pool = some_pool(past=0)
    drawn = drawn_from(pool)
    for estimator in plain_estimators():
        assert np.isfinite(estimator.values(drawn)).all()
    np.testing.assert_allclose(make_estimator("kae").values(drawn), make_estimator("grpo").values(drawn), atol=1e-12)
