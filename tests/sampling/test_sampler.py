"""The sampler that a training loop holds."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.core.storage import dump_state
from kaestat.estimator.prediction import Population
from kaestat.sampling import POLICIES, PromptSampler, systematic
from tests.helpers.tiers import slow_after

IDS = [f"p{k}" for k in range(12)]
VALUES = np.linspace(0.0, 1.0, 12)
CASES = [(name, None) for name in POLICIES] + [(name, 4) for name, kind in POLICIES.items() if kind.takes_groups]

ONCE = [(name, 4 if k % 2 and kind.takes_groups else None) for k, (name, kind) in enumerate(POLICIES.items())]
PAIRED = slow_after(len(ONCE), [*ONCE, *(case for case in CASES if case not in ONCE)])


def train(sampler: PromptSampler, steps: int, seed: int = 0, start: int = 0) -> list:
    """Draws of a run whose prompts keep their values."""
    draws = []
    for step in range(start, start + steps):
        rng = np.random.default_rng([seed, step])
        draw = sampler.draw(step)
        ids = draw.rows()
        value = VALUES[[IDS.index(key) for key in ids]]
        sampler.observe(ids, (rng.random(len(ids)) < value).astype(float), step)
        draws.append(draw)
    return draws


@pytest.mark.parametrize(("policy", "group_size"), CASES)
def test_budgets_are_exact_and_corrections_bounded_by_the_floor(policy, group_size):
    sampler = PromptSampler(IDS, 16, policy=policy, group_size=group_size, floor=0.2)
    for draw in train(sampler, 20):
        assert draw.counts.sum() == draw.n_completions == 16 == len(draw.rows())
        assert (draw.correction <= 5 + 1e-9).all() and (draw.inclusion > 0).all()
        np.testing.assert_allclose(draw.correction, 16 / 12 / draw.expected)
        if group_size:
            assert set(draw.counts.tolist()) == {4}


@pytest.mark.parametrize(("policy", "group_size"), PAIRED)
def test_the_corrected_mean_is_unbiased_under_every_policy(policy, group_size):
    """Sum over prompts of count times correction times f(prompt) has the expectation B times the mean of f.

    1,000 draws of one state; within five standard errors. Without the correction the same sum must miss.
    """
    most = 4 if policy in ("mopps", "near_half") and group_size is None else None  # or they select all
    sampler = PromptSampler(IDS, 16, policy=policy, group_size=group_size, most=most, floor=0.25, seed=3)
    train(sampler, 30)
    f = dict(zip(IDS, (VALUES - 0.3) ** 2, strict=True))
    corrected, plain = np.empty(1_000), np.empty(1_000)
    for k in range(1_000):
        draw = sampler.draw(30)
        of = np.array([f[key] for key in draw.prompt_ids])
        corrected[k] = np.sum(draw.counts * draw.correction * of) / 16
        plain[k] = np.sum(draw.counts * of) / 16
    truth = np.mean(list(f.values()))
    assert abs(corrected.mean() - truth) < 5 * corrected.std() / np.sqrt(1_000) + 1e-12
    if policy not in ("uniform", "dapo"):
        assert abs(plain.mean() - truth) > 5 * plain.std() / np.sqrt(1_000)


@pytest.mark.parametrize("group_size", [None, 4])
def test_greso_is_corrected_exactly_for_unequal_shares_whichever_prompts_it_keeps(group_size):
    """Given the prompts kept, expected completions times corrections are the budget times the shares.

    Expectations are exact: numbers change where the start passes a fraction of the cumulative expectations alone.
    """

    class At:
        def __init__(self, start: float):
            self.random, self.permutation = (lambda: start), np.arange

    share = np.random.default_rng(0).dirichlet(np.ones(12))
    unit = group_size or 1
    sampler = PromptSampler(IDS, 16, policy="greso", group_size=group_size, share=share, floor=0.1, seed=3)
    train(sampler, 6)
    kept = set()
    for _ in range(100):
        draw = sampler.draw(6)
        expected = draw.plan.expected
        kept.add(tuple(expected > 0.1 * 16 * share * (1 + 1e-9)))
        assert (expected >= 0.1 * 16 * share * (1 - 1e-9)).all()
        here = [IDS.index(key) for key in draw.prompt_ids]
        np.testing.assert_allclose(draw.correction * expected[here], 16 * share[here], rtol=1e-12)
        starts = np.unique(np.r_[0, 1 - np.cumsum(expected / unit) % 1, 1])
        counts = [systematic(expected / unit, At(start)) for start in (starts[1:] + starts[:-1]) / 2]
        np.testing.assert_allclose(unit * np.diff(starts) @ np.array(counts), expected, atol=1e-9)
    assert len(kept) > 3


@pytest.mark.parametrize(("policy", "shared"), [(name, k % 2 == 1) for k, name in enumerate(POLICIES)])
def test_a_resumed_sampler_draws_the_same_to_the_last_bit(policy, shared, tmp_path):
    def make():
        predictor = AdvantageEstimator("kae_eb") if shared else "kae_eb"
        return PromptSampler(IDS, 16, policy=policy, predictor=predictor, seed=5)

    whole, first = make(), make()
    train(whole, 6)
    train(first, 6)
    first.save(tmp_path / "sampler")
    second = make()
    if shared:
        second.predictor.load_state_dict(first.predictor.state_dict())
    second.load(tmp_path / "sampler")
    third = make()
    if shared:
        third.predictor.load_state_dict(first.predictor.state_dict())
    third.load_state_dict(first.state_dict())
    for resumed in (second, third):
        assert resumed.last_draw.rows() == whole.last_draw.rows() and resumed.last_draw.step == 5
        assert resumed.last_draw.correction.tobytes() == whole.last_draw.correction.tobytes()
    after = train(whole, 6, start=6)
    for resumed in (second, third):
        for draw, other in zip(after, train(resumed, 6, start=6), strict=True):
            assert draw.prompt_ids == other.prompt_ids
            for name in ("counts", "expected", "correction"):
                assert getattr(draw, name).tobytes() == getattr(other, name).tobytes()


@pytest.mark.parametrize("policy", ["greso", "mopps"])  # they keep counts of their own
def test_an_interrupted_call_that_comes_again_counts_once(policy, monkeypatch):
    whole, torn = (PromptSampler(IDS, 16, policy=policy, seed=5) for _ in range(2))
    train(whole, 3)
    train(torn, 2)
    draw, rng = torn.draw(2), np.random.default_rng([0, 2])
    rewards = (rng.random(16) < VALUES[[IDS.index(key) for key in draw.rows()]]).astype(float)
    remember = torn._remember

    def interrupt(population):
        remember(population)
        raise KeyboardInterrupt

    monkeypatch.setattr(torn, "_remember", interrupt)
    with pytest.raises(KeyboardInterrupt):
        torn.observe(draw.rows(), rewards, 2)
    monkeypatch.undo()
    torn.observe(draw.rows(), rewards, 2)
    assert dump_state(torn._plain()["own"]) == dump_state(whole._plain()["own"])
    assert torn.draw(3).counts.tobytes() == whole.draw(3).counts.tobytes()


def test_an_estimator_that_trains_is_given_nothing_twice():
    estimator = AdvantageEstimator("kae")
    sampler = PromptSampler(IDS, 8, predictor=estimator)
    draw = sampler.draw(0)
    ids, half = draw.rows(), draw.rows()[:4]
    estimator.step(half, [1.0] * 4, 0)
    state = estimator.history.state_dict()
    sampler.observe(ids, [1.0] * 4 + [0.0] * 4, 0)
    assert len(estimator.history) == len(set(ids)) > len(set(half))
    assert state["last_step"] == estimator.history.last_step == 0
    assert estimator.predict(half[:1], 1).value[0] == 1.0


def test_a_predictor_that_takes_any_order_records_for_itself():
    predictor = AdvantageEstimator("kae", bandwidth=10, order="any")
    sampler = PromptSampler(["a", "b"], budget=4, predictor=predictor)
    predictor.step(["a", "a", "b"], [1.0, 0.0, 1.0], 3, version=[2, 2, 3])
    sampler.observe(["a", "a", "b"], [1.0, 0.0, 1.0], 3)
    assert predictor.history.as_delta().sums["count"].sum() == 3
    assert sampler.draw(4).plan.prediction.value.tolist() == predictor.predict(["a", "b"], 4).value.tolist()


def test_prompts_may_vanish_and_appear():
    sampler = PromptSampler(IDS, 8)
    train(sampler, 3)
    draw = sampler.draw(3, among=IDS[4:8])
    assert set(draw.prompt_ids) <= set(IDS[4:8]) and draw.counts.sum() == 8
    np.testing.assert_allclose(draw.correction, 2 / draw.expected)
    sampler.add(["new"])
    assert len(sampler) == 13
    assert any("new" in sampler.draw(3).prompt_ids for _ in range(10))


def test_shares_and_costs_move_the_allocation():
    share = np.full(12, 0.5 / 11)
    share[3] = 0.5
    weighted = PromptSampler(IDS, 12, share=share, policy="uniform")
    draw = weighted.draw(0)
    assert draw.counts[draw.prompt_ids.index("p3")] == 6
    cost = np.ones(12)
    cost[0] = 16.0
    dear = PromptSampler(IDS, 45, cost=cost)
    draw = dear.draw(0)
    np.testing.assert_allclose(draw.expected[draw.prompt_ids.index("p0")], 1.0)
    np.testing.assert_allclose(draw.expected[draw.prompt_ids.index("p1")], 4.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(budget=10, group_size=4), "not a multiple of group_size=4"),
        (dict(budget=52, group_size=4), "more than 12 prompts can take"),
        (dict(budget=8, floor=1), "uniform sampling"),
        (dict(budget=8, policy="best"), "unknown 'best'"),
        (dict(budget=8, policy="near_half:width=3"), "unknown parameter 'width'"),
        (dict(budget=8, correction="half"), "unknown 'half'"),
        (dict(budget=8, predictor="rloo"), "keeps no history"),
        (dict(budget=8, policy="near_half", floor=0), "gives some prompts no chance"),
        (dict(budget=8, share=[1.0]), "share has 1 entries"),
        (dict(budget=8, cost=[0.0] * 12), "cost must be positive"),
        (dict(budget=8, group_size=4, most=3), "leave most or group_size out"),
        (dict(budget=8, group_size=4, policy="knapsack"), "leave group_size out, or take another policy"),
        (dict(budget=0), "budget"),
    ],
)
def test_what_can_never_work_is_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        PromptSampler(IDS, **arguments)


def test_a_refused_call_changes_nothing():
    sampler = PromptSampler(IDS, 8, group_size=4)
    train(sampler, 2)
    before = repr(sampler.state_dict())
    for call, message in (
        (lambda: sampler.draw(2, among=["p1", "nobody"]), "'nobody' is not one of the sampler's"),
        (lambda: sampler.draw(2, among=["p1"]), "more than 1 prompts can take"),
        (lambda: sampler.draw(2, among=["p1", "p1", "p2"]), "each prompt once"),
        (lambda: sampler.observe(["nobody"], [1.0], 2), "'nobody' is not one of the sampler's"),
        (lambda: sampler.observe(["p1"], [np.nan], 2), "finite"),
        (lambda: sampler.observe(["p1"], [1.0], 0), "backwards"),
        (lambda: sampler.add(["p1"]), "comes twice"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
        assert repr(sampler.state_dict()) == before


def test_states_of_another_policy_or_other_prompts_are_refused():
    state = PromptSampler(IDS, 8).state_dict()
    with pytest.raises(ValueError, match="saved by policy Neyman"):
        PromptSampler(IDS, 8, policy="uniform").load_state_dict(state)
    with pytest.raises(ValueError, match="other prompts"):
        PromptSampler(IDS[::-1], 8).load_state_dict(state)
    with pytest.raises(ValueError, match="not a state_dict"):
        PromptSampler(IDS, 8).load_state_dict({})


def test_where_all_prompts_were_right_neyman_is_nearly_uniform_and_leaves_none_out():
    ids = list(range(20))
    sampler = PromptSampler(ids, 8, floor=0)
    for step in range(40):
        rows = sampler.draw(step).rows()
        sampler.observe(rows, [1.0] * 8, step)
    # Those that were seen less often are less certain, and are drawn more often.
    np.testing.assert_allclose(sampler.draw(40).plan.expected, 0.4, rtol=0.15)


def test_a_prompt_that_began_as_all_others_is_found_out_without_a_floor():
    """One prompt of twenty is a coin, and one always wrong; both may have begun like the others, all right."""
    ids = list(range(20))
    sampler, rng = PromptSampler(ids, 8, floor=0), np.random.default_rng(5)
    for step in range(80):
        rows = np.array(sampler.draw(step).rows())
        rewards = np.where((rows == 3) & (step > 10), 0.0, np.where(rows == 4, rng.random(8) < 0.5, 1.0))
        sampler.observe(rows, rewards, step)
    expected = sampler.draw(80).plan.expected
    assert expected[4] > 2 * np.delete(expected, [3, 4]).mean() and expected.min() > 0.05


@pytest.mark.parametrize("policy", ["mopps", "near_half"])
def test_a_policy_that_selects_spends_one_completion_on_each_where_numbers_are_free(policy):
    draw = PromptSampler(list(range(20)), 8, policy=policy, floor=0, correction="none").draw(0)
    assert draw.counts.tolist() == [1] * 8


def test_groups_that_do_not_fit_are_told_in_groups():
    ids = list(range(20))
    with pytest.raises(ValueError, match="budget=168 is 21 groups of 8, more than 20 prompts can take"):
        PromptSampler(ids, 168, group_size=8)
    share = [0.81] + [0.01] * 19
    with pytest.raises(ValueError, match=r"share 0.81 1.62 groups a step, .* lower the floor to 0.308"):
        PromptSampler(ids, 32, group_size=8, floor=0.5, share=share)
    assert PromptSampler(ids, 32, group_size=8, floor=0.308, share=share).draw(0).n_completions == 32


def test_the_population_is_summarised_once_for_each_state_of_the_history(monkeypatch):
    made, of = [], Population.of
    monkeypatch.setattr(Population, "of", classmethod(lambda cls, history: made.append(1) or of(history)))
    sampler = PromptSampler(list("abcd"), 4)
    for step in range(5):
        made.clear()
        rows = sampler.draw(step).rows()
        sampler.observe(rows, [1.0, 0.0, 1.0, 1.0], step)
        assert len(made) == 1  # by the prediction of what was observed
    sampler.predictor.observe(["a"], [0.0], 9)
    assert sampler.draw(10).plan.prediction.population == of(sampler.predictor.history)
