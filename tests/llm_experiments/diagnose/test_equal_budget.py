"""The gradient's noise at an equal budget, from pools, against gradients drawn outright and slow references."""

from itertools import permutations

import numpy as np
import pytest

from kaestat.theory import within_noise
from llm_experiments.diagnose.drawn_gradients import StepDraws, formula_noise
from llm_experiments.diagnose.draws import Drawing
from llm_experiments.diagnose.equal_budget import (
    DESIGN_COLUMNS,
    PURPOSE,
    Design,
    DesignNoise,
    design_noise,
    designs_for,
    reference_design,
)
from llm_experiments.diagnose.estimators import make_estimator
from llm_experiments.diagnose.gradient_mse_debiased import squared_gradient_norm, value_noise
from llm_experiments.diagnose.gradient_signal import (
    QUANTITIES,
    between_prompts,
    mean_coefficients,
    reward_spread,
    signal_table,
    squared_mean,
)
from llm_experiments.diagnose.pool_rewards import PoolRewards
from simulations.bandits.softmax import SoftmaxBandit
from tests.helpers.statistical import Discrepancy, check_mean, generator

PROMPTS, ACTIONS, DIMENSION, STEP, PAST, PAST_POOL = 4, 2, 3, 5, 2, 8
BUDGET = 4
THETA = np.array([0.4, -0.6, 0.5])


class Policy:
    """A bandit with parameters shared by its prompts, whose pools of all steps come from the same policy."""

    def __init__(self):
        rng = np.random.default_rng(161)
        reward = np.tile([0.0, 1.0], (PROMPTS, 1))
        features = rng.normal(size=(PROMPTS, ACTIONS, DIMENSION)) + 0.7 * reward[..., None]  # gradients point one way
        self.bandit = SoftmaxBandit(features, reward)
        self.cumulative = np.cumsum(self.bandit.policy(THETA), axis=-1)
        self.scores = self.bandit.scores(THETA)
        self.gradients = self.bandit.prompt_gradients(THETA)
        # One history for all pools, as the past of a run is.
        self.history, self.history_weight = self._pool(np.random.default_rng(162), (PAST, PAST_POOL))[:2]

    def _pool(self, rng, shape):
        row = np.arange(PROMPTS).reshape(-1, *[1] * len(shape))
        edges = self.cumulative.reshape(PROMPTS, *[1] * len(shape), ACTIONS)
        action = (rng.random((PROMPTS, *shape, 1)) > edges[..., :-1]).sum(axis=-1)
        score = self.scores[row, action]
        return self.bandit.success[row, action], (score**2).sum(axis=-1), score

    def pool(self, rng, n):
        """A pool with exact weights, and the scores of its target completions."""
        reward, weight, score = self._pool(rng, (n,))
        return PoolRewards(STEP, reward, self.history, {"exact": weight}, {"exact": self.history_weight}), score


def across(score, reward):
    """``sum_{y != x} <u_x, u_y>``."""
    u = np.einsum("ph,phd->pd", mean_coefficients(reward), score)
    return u @ u.sum(axis=0) - (u**2).sum(axis=1)


def estimate(policy, rng, designs, *, n=16, repeats=6):
    pool, score = policy.pool(rng, n)
    return design_noise(
        pool,
        score @ score.swapaxes(1, 2),
        across(score, pool.target),
        designs,
        budget=BUDGET,
        repeats=repeats,
        seed=int(rng.integers(2**31)),
    )


@pytest.fixture(scope="module")
def policy():
    return Policy()


# --- against gradients drawn outright

QUICK = Design("kae", 2, 2)
SLOW = (
    Design("none", 1), Design("none", 2), Design("grpo", 2), Design("grpo@exact", 2), Design("kae", 1, 2),
    Design("kae_eb", 2, 2), Design("kae@exact", 2, 4),
)  # fmt: skip
EACH = [QUICK, *(pytest.param(design, marks=pytest.mark.slow) for design in SLOW)]


@pytest.fixture(scope="module", params=EACH, ids=lambda design: f"{design.method}-{design.group_size}")
def both(policy, request):
    """A design's noise by the formula from 500 pools of 16, and 60,000 of its gradients."""
    rng, design = generator(1640), request.param
    parts = [estimate(policy, rng, [design]) for _ in range(500)]
    size = design.group_size
    steps = StepDraws.of((size,), n_prompts=PROMPTS, budget=BUDGET, draws=60_000, seed=int(rng.integers(2**31)))
    pool, score = policy.pool(rng, steps.size)
    groups = steps.groups(pool, size, design.past, seed=1)
    advantage = groups.reward - make_estimator(design.method).values(groups)
    chosen = score[groups.rows[..., None], groups.indices]
    return design, parts, np.einsum("rpg,rpgd->rd", advantage, chosen) / BUDGET


def test_the_noise_is_that_of_gradients_drawn_outright(policy, both):
    design, parts, gradients = both
    formula, formula_se = (array[0] for array in formula_noise(parts, budget=BUDGET))
    found = BUDGET * ((gradients - policy.gradients.mean(axis=0)) ** 2).sum(axis=-1)
    drawn_se = found.std(ddof=1) / len(found) ** 0.5
    detect = max(0.12, 0.25 * found.mean())
    check_mean(estimate=formula, se=np.hypot(formula_se, drawn_se), target=found.mean(), detect=detect)
    if design.group_size > 1:  # negative control: two prompts a step, and what they differ in left out
        alone = np.array([part.within.mean() for part in parts])
        se = np.hypot(alone.std(ddof=1) / len(alone) ** 0.5, drawn_se)
        with pytest.raises(Discrepancy):
            check_mean(estimate=alone.mean(), se=se, target=found.mean(), detect=detect)


def test_the_gradients_drawn_outright_are_unbiased(policy, both):
    _, _, gradients = both
    for coordinate, target in enumerate(policy.gradients.mean(axis=0)):
        check_mean(gradients[:, coordinate], target=target, detect=0.05)


def test_signal_and_closed_forms_are_the_exact_ones(policy):
    """Unbiased from 1,500 pools of 8; so is what `within_noise` makes of the parts for the group's mean."""
    product = policy.gradients @ policy.gradients.T
    norm, mean = np.diagonal(product).mean(), (product.sum() - np.trace(product)) / (PROMPTS * (PROMPTS - 1))
    probability, weight = policy.bandit.policy(THETA), (policy.scores**2).sum(axis=-1)
    value, reward = policy.bandit.values(THETA), policy.bandit.success
    spread = (probability * weight).sum(axis=-1) * value * (1 - value)
    noise = (probability * weight * (reward - value[:, None]) ** 2).sum(axis=-1)
    exact = {
        "prompt_norm2": norm,
        "total_norm2": mean,
        "between": norm - mean,
        "value_noise": noise.mean() - norm,
        "estimation": spread.mean() + norm,
    }
    closed = within_noise(noise + spread / 2, np.diagonal(product), group_size=3, own_derivative=0.5)
    assert closed == pytest.approx(exact["value_noise"] + exact["estimation"] / 2)
    rng, found = generator(1641), []
    for _ in range(1500):
        pool, score = policy.pool(rng, 8)
        gram = score @ score.swapaxes(1, 2)
        found.append(
            {
                "prompt_norm2": (own := squared_gradient_norm(gram, pool.target)).mean(),
                "total_norm2": (total := squared_mean(across(score, pool.target))[0]),
                "between": own.mean() - total,
                "value_noise": (value_noise(gram, pool.target) - own).mean(),
                "estimation": (reward_spread(gram, pool.target) + own).mean(),
            }
        )
    for name in QUANTITIES:
        check_mean(np.array([each[name] for each in found]), target=exact[name], detect=0.2 * norm)
    table = signal_table(STEP, gram, pool.target, across(score, pool.target)).set_index("quantity")
    assert table["mean"].to_dict() == pytest.approx(found[-1])
    assert (table["se"] > 0).all() and (table["n_prompts"] == PROMPTS).all()


# --- by loops


def test_the_noise_within_prompts_is_its_definition_written_as_loops(policy):
    rng = generator(1642)
    pool, score = policy.pool(rng, 9)
    gram = score @ score.swapaxes(1, 2)
    designs = [Design("grpo", 2), Design("kae_eb@exact", 2, 3), Design("reinforce++", 1)]
    found = design_noise(pool, gram, np.zeros(PROMPTS), designs, budget=BUDGET, repeats=3, seed=7)
    for column, design in enumerate(designs):
        size = design.group_size
        drawing = Drawing(size, seed=7, purpose=PURPOSE, past_size=design.past or None)
        drawn = drawing.draw(pool, range(3))
        order = np.argsort(np.random.default_rng([7, STEP, PURPOSE, size]).random((3, PROMPTS)), axis=1)
        squares = [[] for _ in range(PROMPTS)]
        for repeat in range(3):
            for first in range(0, PROMPTS, BUDGET // size):
                batch = order[repeat, first : first + BUDGET // size]
                alone = Drawing(size, past_size=design.past or None).draw(pool.take(batch), range(1))
                alone = type(alone)(
                    alone.pool, drawn.indices[[repeat]][:, batch], drawn.history_indices[[repeat]][:, batch]
                )
                advantage = (alone.reward - make_estimator(design.method).values(alone))[0]
                for row, prompt in enumerate(batch):
                    vector = advantage[row] @ score[prompt, drawn.indices[repeat, prompt]] / size
                    squares[prompt].append(vector @ vector)
        expected = size * (np.array([np.mean(each) for each in squares]) - squared_gradient_norm(gram, pool.target))
        np.testing.assert_allclose(found.within[:, column], expected, rtol=1e-10)


def test_the_spread_of_rewards_is_its_u_statistic_over_triples():
    rng = generator(1643)
    score, reward = rng.normal(size=(1, 6, 3)), rng.random((1, 6))
    gram = score @ score.swapaxes(1, 2)
    z, w = reward[0], np.diag(gram[0])
    terms = [w[h] * (z[k] - z[m]) ** 2 / 2 for h, k, m in permutations(range(6), 3)]
    assert reward_spread(gram, reward)[0] == pytest.approx(np.mean(terms), rel=1e-10)


def test_the_squared_mean_and_what_prompts_differ_in_without_each_prompt():
    rng = generator(1644)
    u, norm = rng.normal(size=(5, 3)), rng.random(5)
    product = u @ u.T

    def mean_of(rows):
        part = product[np.ix_(rows, rows)]
        return (part.sum() - np.trace(part)) / (len(rows) * (len(rows) - 1))

    given = product.sum(axis=1) - np.diagonal(product)
    whole, without = squared_mean(given)
    assert whole == pytest.approx(mean_of(range(5)))
    between, between_without = between_prompts(norm, given)
    assert between == pytest.approx(norm.mean() - whole)
    for x in range(5):
        others = [y for y in range(5) if y != x]
        assert without[x] == pytest.approx(mean_of(others))
        assert between_without[x] == pytest.approx(norm[others].mean() - mean_of(others))


# --- the table


def test_the_table_by_hand():
    designs = (Design("grpo", 2), Design("none", 1))
    within = np.array([[4.0, 2.0], [6.0, 2.0], [8.0, 5.0]])
    squared_norm, given = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0])  # signal 9 / 6
    table = DesignNoise(7, designs, within, squared_norm, given).table(designs[0])
    assert table.columns.tolist() == DESIGN_COLUMNS
    group, none = table.to_dict("records")
    assert (group["within"], none["within"]) == (6.0, 3.0)
    assert group["noise"] == pytest.approx(6 + 2 * 0.5) and none["noise"] == pytest.approx(3.5)
    assert group["relative"] == group["relative_low"] == group["relative_high"] == 1.0
    assert none["relative"] == pytest.approx(0.5) and none["relative_low"] < 0.5 < none["relative_high"]
    assert none["to_signal"] == pytest.approx(3.5 / 1.5)
    assert none["within_se"] == pytest.approx(1.0)
    assert table["n_prompts"].tolist() == [3, 3]
    # Jackknife by recomputation, two prompts at a time.
    pairs = [(1, 2), (0, 2), (0, 1)]
    signal = [(given.sum() - 2 * given[3 - a - b]) / 2 for a, b in pairs]
    noise = [
        within[[a, b], 1].mean() + squared_norm[[a, b]].mean() - s for (a, b), s in zip(pairs, signal, strict=True)
    ]
    assert none["noise_se"] == pytest.approx(np.std(noise) * 2**0.5)


def test_designs_are_paired_with_weighted_kae_eb_of_their_own_size_and_the_longest_past():
    designs = (Design("kae_eb@exact", 1, 8), Design("kae_eb@exact", 1, 1), Design("none", 1), Design("grpo", 2))
    within = np.array([[1.0, 2.0, 4.0, 9.0], [2.0, 2.0, 4.0, 9.0], [3.0, 5.0, 7.0, 9.0]])
    squared_norm, given = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0])  # between 0.5, as above
    best, short, none, group = DesignNoise(7, designs, within, squared_norm, given).table(designs[3]).to_dict("records")
    assert best["to_weighted"] == best["to_weighted_low"] == best["to_weighted_high"] == 1.0
    assert short["to_weighted"] == pytest.approx(3.5 / 2.5) and none["to_weighted"] == pytest.approx(5.5 / 2.5)
    assert none["to_weighted_low"] < 5.5 / 2.5 < none["to_weighted_high"]
    assert np.isnan([group["to_weighted"], group["to_weighted_low"], group["to_weighted_high"]]).all()


def test_nothing_is_said_relative_to_a_signal_that_is_not_there():
    design = Design("none", 1)
    found = DesignNoise(7, (design,), np.ones((3, 1)), np.ones(3), np.array([1.0, -2.0, 0.5])).table(design)
    assert np.isnan(found["to_signal"].item()) and np.isfinite(found["noise"].item())


def test_designs_that_cannot_be_are_left_out(policy):
    pool, _ = policy.pool(generator(1645), 6)
    found = designs_for(pool, group_sizes=(1, 2, 4, 8), past_sizes=(1, 4, 99), budget=3)
    assert {design.group_size for design in found} == {1, 2}
    assert Design("grpo", 2) in found and Design("grpo", 1) not in found and Design("grpo@exact", 1) not in found
    assert {design.past for design in found if design.method == "kae"} == {1, 4}
    assert {design.past for design in found if design.method in ("none", "grpo", "oracle")} == {0}
    plain = designs_for(PoolRewards(pool.step, pool.target, pool.history), group_sizes=(2,), past_sizes=(1,), budget=4)
    assert not any("@" in design.method for design in plain)
    assert reference_design(found, 8) == Design("grpo", 2)
    with pytest.raises(ValueError, match="no design has the method grpo with 2 to 8"):
        reference_design([Design("none", 1)], 8)


def test_pools_that_do_not_fit_are_refused(policy):
    pool, score = policy.pool(generator(1646), 6)
    gram = score @ score.swapaxes(1, 2)
    sizes = {"repeats": 2, "seed": 0}
    with pytest.raises(ValueError, match="budget = 9 makes 9 groups of 1"):
        design_noise(pool, gram, np.zeros(PROMPTS), [Design("none", 1)], budget=9, **sizes)
    with pytest.raises(ValueError, match="holds 6 completions; give at least 8"):
        design_noise(pool, gram, np.zeros(PROMPTS), [Design("none", 8)], budget=8, **sizes)
    with pytest.raises(ValueError, match="gram has shape"):
        design_noise(pool, gram[:, 1:, 1:], np.zeros(PROMPTS), [Design("none", 1)], budget=4, **sizes)
    with pytest.raises(ValueError, match="repeats = 1 are too few"):
        design_noise(pool, gram, np.zeros(PROMPTS), [Design("none", 1)], budget=3, repeats=1, seed=0)


def test_no_completion_is_drawn_twice():
    steps = StepDraws.of((1, 2), n_prompts=5, budget=4, draws=50, seed=0)
    used = set()
    for size in (1, 2):
        assert steps.prompts[size].shape == (50, 4 // size)
        for prompts, indices in zip(steps.prompts[size], steps.indices[size], strict=True):
            assert len(set(prompts)) == len(prompts)
            for prompt, row in zip(prompts, indices, strict=True):
                pairs = {(prompt, index) for index in row}
                assert len(pairs) == size and not pairs & used
                used |= pairs
    assert max(index for _, index in used) == steps.size - 1
    with pytest.raises(ValueError, match="budget = 9 makes 9 groups of 1, of 5 prompts"):
        StepDraws.of((1,), n_prompts=5, budget=9, draws=2, seed=0)
