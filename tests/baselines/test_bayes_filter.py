"""The filter against the same filter in plain loops, its corners, and what it is robust to."""

import math
import warnings

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, Groups, RewardHistory, Visits, make_baseline
from kaestat.baselines import bayes_filter as module
from kaestat.baselines import filter_rates, filter_shock
from kaestat.baselines.filter_arrays import together
from kaestat.baselines.filter_group import evidence
from kaestat.baselines.filter_population import first_dispersion, moments, prior_of
from kaestat.baselines.filter_rates import plain_rates
from kaestat.estimator.state import EstimatorState
from tests.helpers import slow_filter
from tests.helpers.slow_filter import SlowFilter


@pytest.fixture
def in_double(monkeypatch):
    """Beliefs in double precision, in which rounding cannot hide an error."""
    monkeypatch.setattr(filter_rates, "PRECISION", "float64")
    return monkeypatch


def random_run(seed, *, rewards=(0.0, 1.0), n_steps=7, largest=4):
    """Prompts that come and go, ragged groups, gaps between steps."""
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.integers(1, 4, n_steps)).tolist()
    return [
        (
            step,
            {
                f"p{k}": rng.choice(rewards, rng.integers(1, largest + 1)).tolist()
                for k in rng.permutation(9)[: 2 + step % 7]
            },
        )
        for step in steps
    ]


def streamed(estimator, run):
    answers = []
    for step, groups in run:
        ids = [name for name, rewards in groups.items() for _ in rewards]
        estimator.step(ids, [z for rewards in groups.values() for z in rewards], step)
        answers.append(np.array(estimator.values))
    return answers


def flat(answer):
    return np.array([value for values in answer.values() for value in values])


def slow_values(run, lgamma=slow_filter.stirling):
    slow = SlowFilter(lgamma)
    return [flat(slow.step(step, groups)) for step, groups in run]


@pytest.mark.parametrize("largest", [1, 4])
@pytest.mark.parametrize("rewards", [(0.0, 1.0), (0.0, 0.25, 0.5, 1.0)], ids=["binary", "other"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_estimator_gives_the_values_of_the_filter_in_plain_loops(seed, rewards, largest, monkeypatch):
    monkeypatch.setattr(filter_shock, "SHOCK", 0.0)
    run = random_run(seed, rewards=rewards, largest=largest)
    for mine, slow in zip(streamed(AdvantageEstimator("bayes_filter"), run), slow_values(run), strict=True):
        np.testing.assert_allclose(mine, slow, rtol=0, atol=5e-5)  # states are kept in single precision


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize("soft", [0.1, 1.0])
def test_no_value_depends_on_its_own_reward_not_even_by_what_that_tells_the_others_of_the_dispersion(soft):
    rng, run, ids = np.random.default_rng(0), AdvantageEstimator("bayes_filter"), list(range(12))
    for step in range(4):
        reward = np.where(rng.random(12) < soft, rng.random(12), rng.integers(0, 2, 12))
        before = run.state_dict()
        run.step(ids, reward, step)
        for k, own in [(k, own) for k in ids for own in (0.0, 0.37, 1.0)]:
            other = AdvantageEstimator("bayes_filter")
            other.load_state_dict(before)
            other.step(ids, np.where(np.arange(12) == k, own, reward), step)
            assert other.values[k] == pytest.approx(run.values[k], abs=1e-9)


def test_stirlings_formula_moves_no_value_by_more_than_a_thousandth():
    run = random_run(3, n_steps=10)
    for mine, exact in zip(slow_values(run), slow_values(run, math.lgamma), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=0, atol=1e-3)


@pytest.mark.usefixtures("in_double")
def test_beliefs_in_double_precision_give_them_to_the_last_digits_and_torch_the_same():
    run = [(2 * k, {"a": [1.0, 0.0, float(k % 2)], "b": [0.0, 0.0, float(k == 3)]}) for k in range(6)]
    baseline, expected = make_baseline("bayes_filter"), slow_values(run)
    for convert in (np.asarray, torch.as_tensor):
        carry, state, past = baseline.initial_carry(), None, None
        for (step, groups), slow in zip(run, expected, strict=True):
            reward = convert(np.array(list(groups.values())))
            visits = Visits.empty(Groups(reward)) if past is None else past
            if past is not None:
                visits = Visits(*(convert(np.full((2, 1), c)) for c in (2.0, 3.0, 1.0, 1.0)), state=state)
            served = baseline.serve(Groups(reward), visits, step=step, carry=carry)
            np.testing.assert_allclose(np.asarray(served.values).reshape(-1), slow, rtol=1e-9)
            assert type(served.values) is type(reward)
            carry, state, past = served.carry, served.state, visits


def test_groups_that_tell_no_dispersion_are_of_zeros_and_ones_also_where_their_prompt_had_others():
    sums = together(moments(np.array([4.0, 1.0]), np.array([2.0, 0.5])))  # 0, 0, then 1, 1; and a single 1/2
    assert first_dispersion(sums).tolist() == [1.0, 0.01]


def test_first_group_by_hand():
    # No past, one prompt: Beta(.35, .35), and the other completion: (.35 + z) / 1.7.
    values = make_baseline("bayes_filter").values(
        Groups(np.array([[1.0, 0.0]])), Visits.empty(Groups(np.zeros((1, 2)))), step=0
    )
    np.testing.assert_allclose(values, [[0.35 / 1.7, 1.35 / 1.7]], rtol=1e-6)


def test_a_state_of_the_filter_on_a_grid_is_refused_with_what_to_do():
    estimator = AdvantageEstimator("bayes_filter")
    estimator.step(["a", "a"], [0.0, 1.0], 0)
    state = estimator.state_dict()
    AdvantageEstimator("bayes_filter").load_state_dict(state)
    old = RewardHistory(max_visits=1, state_size=350)
    old.record(["a"], step=0, count=[2], total=[1.0], total_sq=[1.0])
    state = estimator.content()["state"] | {"history": old.state_dict()}
    with pytest.raises(ValueError, match=r"350 numbers of a prompt.*with the parameters that were saved"):
        EstimatorState.of(state, "bayes_filter", estimator.baseline)


def test_the_order_of_prompts_and_the_unit_of_time_do_not_matter():
    run = random_run(8)
    plain = streamed(AdvantageEstimator("bayes_filter"), run)
    backwards = [(step, dict(reversed(groups.items()))) for step, groups in run]
    for (_, groups), a, b in zip(run, plain, streamed(AdvantageEstimator("bayes_filter"), backwards), strict=True):
        names = [name for name, rewards in groups.items() for _ in rewards]
        names_back = [name for name, rewards in reversed(groups.items()) for _ in rewards]
        for name in groups:
            np.testing.assert_allclose(
                a[[n == name for n in names]], b[[n == name for n in names_back]], rtol=0, atol=1e-5
            )
    rare = streamed(AdvantageEstimator("bayes_filter"), [(60 * step, groups) for step, groups in run])
    for a, b in zip(plain, rare, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_rewards_beyond_the_range_widen_it_once_audibly_and_never_by_their_own_value():
    estimator = AdvantageEstimator("bayes_filter")
    ids = ["a", "a", "b", "b", "c", "c"]
    with pytest.warns(UserWarning, match=r"made for rewards in \[0, 1\], and they reach from -2 to 3"):
        estimator.step(ids, [3.0, 0.0, -2.0, 1.0, 0.5, 1.0], 0)
    first = estimator.values.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.step(ids, [3.0, 2.0, -2.0, -1.0, 0.5, 5.0], 1)
    assert estimator.values[0] > 1 > 0 > estimator.values[3]
    other = AdvantageEstimator("bayes_filter")
    with pytest.warns(UserWarning, match="reach from -2 to 300"):
        other.step(ids, [300.0, 0.0, -2.0, 1.0, 0.5, 1.0], 0)
    assert other.values[0] == first[0]


def test_without_kept_states_the_visits_are_filtered_anew():
    """With the same knowledge of all prompts throughout, visits can be filtered one by one or at once."""
    baseline, group = make_baseline("bayes_filter"), Groups(np.array([[1.0, 0.0], [0.0, 0.0]]))
    past = Visits(
        *(np.array(c, dtype=float) for c in ([[2, 1], [2, 1]], [[2, 2], [0, 2]], [[2, 1], [0, 0]], [[2, 1], [0, 0]]))
    )
    anew = baseline.values(group, past, step=2)
    one = Visits(*(np.array(c, dtype=float) for c in ([[1], [1]], [[2], [2]], [[1], [0]], [[1], [0]])))
    newest = baseline.values(group, one, step=2)
    assert (anew[0] > newest[0]).all()  # the older visit of the first prompt had two successes
    alone = [Visits(*(getattr(v, f)[1:] for f in ("lag", "count", "total", "total_sq"))) for v in (past, one)]
    values = [baseline.values(Groups(group.reward[1:]), visits, step=2) for visits in alone]
    np.testing.assert_array_equal(*values)  # a visit without completions is none


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_the_evidence_is_that_of_a_beta_distribution(convert):
    a, b, n, s = (
        np.array(c) for c in zip(*[(0.05, 3, 8, 1), (2, 500, 8, 0), (1, 1, 1, 1), (40, 3, 6, 2.5)], strict=True)
    )
    case = np.stack([a, b])[:, None], n[None], s[None, None]
    log, factor = evidence(*(convert(c.astype(float)) for c in case))
    found = (np.asarray(log) + np.log(np.asarray(factor)))[0, 0]
    exact = [slow_filter.log_evidence(*case, math.lgamma) for case in zip(a, b, n, s, strict=True)]
    np.testing.assert_allclose(found, exact, atol=4e-3)
    np.testing.assert_allclose(found, [slow_filter.log_evidence(*case) for case in zip(a, b, n, s, strict=True)])


def test_single_precision_keeps_the_evidence_of_beliefs_that_count_as_millions():
    case = [np.array(c) for c in ([[[1e6, 3.0, 4e8]], [[2.0, 5e4, 6e8]]], [[8.0, 7, 8]], [[[7.0, 1, 3]]])]
    found = [np.log(factor) + log for log, factor in (evidence(*case), evidence(*(c.astype(np.float32) for c in case)))]
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)


def test_the_ways_are_distributions_and_the_state_is_as_large_as_stated():
    rates = plain_rates()
    assert rates.first.sum() == pytest.approx(1)
    assert rates.mixture_prior.sum() == pytest.approx(1)
    assert make_baseline("bayes_filter").state_size == 4 * len(slow_filter.MOVES)


def carried_run(reward):
    """Values of a run in which all prompts come at each step, and its last carry; rewards and values (T, P, G)."""
    baseline = make_baseline("bayes_filter")
    carry, state, out = baseline.initial_carry(), None, []
    for t, now in enumerate(reward):
        seen = np.ones((now.shape[0], min(t, 1)))
        visits = Visits(seen, seen * now.shape[1], seen, seen, state=state)
        served = baseline.serve(Groups(now), visits, step=t, carry=carry)
        carry, state = served.carry, served.state
        out.append(served.values)
    return np.stack(out), carry


def values_of_run(reward):
    return carried_run(reward)[0]


def drawn(value, size, seed):
    return (np.random.default_rng(seed).random((*value.shape, size)) < value[..., None]).astype(float)


@pytest.mark.parametrize(("size", "seed"), [(1, 0), (2, 2), (8, 1)])
def test_values_that_are_all_alike_stay_where_the_rewards_are(size, seed):
    """A prior that counts as much as thousands of completions pulled beliefs along with drifts, to errors of .01."""
    value = 1 / (1 + np.exp(-0.03 * np.random.default_rng(seed).standard_normal((24, 256)).cumsum(axis=0)))
    values = values_of_run(drawn(value, size, seed + 100))
    assert ((values - value[..., None])[2:] ** 2).mean() < 0.002  # the values' own variance is up to .0014


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize(("visits", "every"), [(1, 1), (10, 1), (1, 8)])
def test_after_soft_rewards_zeros_and_ones_are_at_once_taken_for_what_they_are(visits, every, size):
    """Quarters tell more than the zeros and ones that they are means of, and what they tell is kept."""
    rng = np.random.default_rng(17)
    value = 1 / (1 + np.exp(-1.5 * rng.standard_normal(128) - 0.15 * rng.standard_normal((24, 128)).cumsum(axis=0)))
    clean = drawn(value, size, 18)
    soft = clean.copy()
    soft[:visits, ::every] = sum(drawn(value[:visits, ::every], size, seed) for seed in range(19, 23)) / 4
    errors = [((values_of_run(r) - value[..., None])[visits : visits + 10] ** 2).mean() for r in (clean, soft)]
    assert errors[1] < 1.02 * errors[0]


def test_single_continuous_rewards_have_the_dispersion_that_they_were_drawn_with():
    value, kappa = np.tile(np.linspace(0.1, 0.9, 200), (16, 1)), 20
    reward = np.random.default_rng(24).beta(kappa * value, kappa * (1 - value))[..., None]
    values, carry = carried_run(reward)
    assert np.square(values[1, :, 0] - value[1]).mean() < 0.012  # told by the other prompts, where the first return
    within, mixed = carry["dispersion"]
    assert within / (within + mixed) == pytest.approx(1 / (kappa + 1), rel=0.08)  # .03 is the spread over seeds


def test_jumps_of_nearly_certain_rewards_leave_every_value_a_number():
    """Two jumps in turn make all other hypotheses unlikelier than the smallest number of single precision."""
    rng = np.random.default_rng(25)
    fresh, jumped = rng.random((30, 64)), rng.random((30, 64)) < 0.05
    jumped[0] = True
    value = np.take_along_axis(fresh, np.maximum.accumulate(np.where(jumped, np.arange(30)[:, None], 0)), axis=0)
    reward = rng.beta(*(np.repeat(200 * p[..., None] + 1e-3, 8, axis=2) for p in (value, 1 - value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = values_of_run(reward)
    assert np.abs(values[1:] - value[1:, :, None]).max() < 0.3


def test_right_and_wrong_answers_are_treated_alike():
    rng = np.random.default_rng(15)
    logit = rng.standard_normal(40) + 1.25 * (np.arange(12) >= 8)[:, None]  # a shock that only 40 prompts show
    reward = drawn(1 / (1 + np.exp(-logit)), 2, 16)
    np.testing.assert_allclose(values_of_run(1 - reward), 1 - values_of_run(reward), atol=1e-4)


def test_after_a_jump_of_one_prompt_its_value_is_there_at_the_next_visit():
    value = np.full((20, 60), 0.3)
    value[:, ::2] = 0.7
    value[15:, 0] = 0.02
    values = values_of_run(drawn(value, 8, 15))
    assert values[14, 0].mean() > 0.5
    assert values[16, 0].mean() < 0.15


@pytest.mark.parametrize("leading", [(), (3,)])
@pytest.mark.usefixtures("in_double")
def test_blocks_of_prompts_give_what_all_prompts_at_once_give(leading, monkeypatch):
    rng, baseline = np.random.default_rng(2), make_baseline("bayes_filter")
    rewards = (rng.random((4, *leading, 40, 5)) < 0.4).astype(float)
    rewards[0] /= 2  # soft rewards, so each prompt gets a dispersion of its own
    rewards[2:] = 1.0  # a shock
    answers = []
    for block in (16, 10_000):
        monkeypatch.setattr(module, "BLOCK", block)
        monkeypatch.setattr(filter_shock, "TOGETHER", block)
        carry, state, served = baseline.initial_carry(), None, None
        for step, reward in enumerate(rewards):
            groups = Groups(reward)
            seen = np.broadcast_to(np.arange(40) % 2 < step, (*leading, 40))[..., None].astype(float)
            before = rewards[step - 1].sum(axis=-1, keepdims=True) * seen
            visits = Visits(lag=seen, count=5 * seen, total=before, total_sq=before, state=state)
            served = baseline.serve(groups, Visits.empty(groups) if step == 0 else visits, step=step, carry=carry)
            carry, state = served.carry, served.state
        answers.append(served)
    np.testing.assert_allclose(answers[0].values, answers[1].values, rtol=1e-9)
    np.testing.assert_allclose(answers[0].state, answers[1].state, rtol=1e-9)
    np.testing.assert_allclose(answers[0].carry["mixture"], answers[1].carry["mixture"], atol=1e-9)


CASES = []  # its slow reference takes chains of visits, and stands above


def test_a_prompt_that_does_not_count_leaves_its_prior_a_number():
    """Of no other prompts its own is taken away: what is not a number would spread to those that count."""
    shape = prior_of(np.array([[-1.0, -0.5, -0.25, -0.25, 0.0, -1.0]]), np.array(1.0))
    assert np.isfinite(shape).all()


def test_prompts_that_are_never_or_always_solved_may_come_back_for_ever():
    """A drift keeps the precision of a logit, so it takes an ever greater count for an ever smaller rate."""
    values = values_of_run(np.tile([[0.0] * 4, [1.0] * 4, [0.0, 1.0] * 2], (520, 1, 1)))
    assert np.isfinite(values).all()
    np.testing.assert_allclose(values[-1, :2, 0], [0.0, 1.0], atol=2e-3)
