"""The logit filter against the same filter in plain loops; leave-one-out, causality, resumption, other rewards."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kaestat import AdvantageEstimator, Groups, RewardLog, Visits, make_baseline
from kaestat.baselines import BayesFilter, logit_grid
from kaestat.baselines import bayes_filter as module
from kaestat.baselines.logit_grid import LogitGrid, rates_of_change, transition
from kaestat.logs.replay import replay

GRID = [-7 + 14 * k / 48 for k in range(49)]
P = [1 / (1 + math.exp(-x)) for x in GRID]
RATES = [(q, 0.0, 0.15) for q in (0.03, 0.08, 0.2, 0.5, 1.2)] + [(0.1, -0.03, 0.125), (0.1, 0.03, 0.125)]


@pytest.fixture
def in_double(monkeypatch):
    """Messages in double precision, in which rounding cannot hide an error."""
    monkeypatch.setattr(logit_grid, "PRECISION", "float64")
    return monkeypatch


def normalised(weights):
    total = math.fsum(weights)
    return [w / total for w in weights]


def variance(distribution, points):
    mean = math.fsum(w * x for w, x in zip(distribution, points, strict=True))
    return max(math.fsum(w * (x - mean) ** 2 for w, x in zip(distribution, points, strict=True)), 1e-3)


def move(q, d):
    """Row k: where logit k goes."""
    h, rows = GRID[1] - GRID[0], []
    for k, x in enumerate(GRID):
        row = [0.0] * 49
        if q >= 0.8 * h:
            row = normalised([math.exp(-0.5 * ((y - x - d) / q) ** 2) for y in GRID])
        else:
            up, square = d / h, (q * q + d * d) / h**2
            for to, share in ((k - 1, (square - up) / 2), (k, 1 - square), (k + 1, (square + up) / 2)):
                row[min(max(to, 0), 48)] += share
        rows.append(row)
    return rows


MOVES = [move(q, d) for q, d, _ in RATES]
FIRST = normalised([math.exp(-0.5 * (x / 2) ** 2) for x in GRID])


def slow_filter(run):
    """Values of every step of a run, [(step, {prompt: rewards in [0, 1]})], as {prompt: values}."""
    log_w, counts, last, sums = [math.log(p) for *_, p in RATES], [8 * f for f in FIRST], None, [0.0, 0.0]
    kept, newest, answers = {}, {}, []
    for step, groups in run:
        lags = [step - newest[name] for name in groups if name in newest]
        elapsed = (step - last) / (sum(lags) / len(lags)) if lags and last is not None else 0.0
        w = normalised([math.exp(v - max(log_w)) for v in log_w])
        prior = normalised(counts)
        phi = min(max(sums[0] / (sums[0] + sums[1]), 0.01), 1.0) if sums[0] > 0 else 1.0
        beliefs = {name: walked(*kept[name], w, prior) if name in kept else new_prompt() for name in groups}
        stay = 0.98**elapsed
        w = [stay * v + (1 - stay) * p for v, (_, _, p) in zip(w, RATES, strict=True)]
        answers.append({name: loo_values(rewards, beliefs[name], w, prior, phi) for name, rewards in groups.items()})

        evidence = [0.0] * len(RATES)
        for name, rewards in groups.items():
            like = likelihood(rewards, phi)
            messages, shares = beliefs[name]
            if name in kept:
                for j, (message, share) in enumerate(zip(messages, shares, strict=True)):
                    posterior = normalised([m * f**share for m, f in zip(message, prior, strict=True)])
                    evidence[j] += math.log(math.fsum(b * v for b, v in zip(posterior, like, strict=True)))
            messages = [normalised([m * v for m, v in zip(message, like, strict=True)]) for message in messages]
            kept[name] = messages, shares
        discount = 0.9**elapsed
        log_w = [
            discount * math.log(v) + (1 - discount) * math.log(p) + e
            for v, (_, _, p), e in zip(w, RATES, evidence, strict=True)
        ]
        counts = prompts_after([kept[name] for name in groups], w, prior, counts, 0.8**elapsed)
        for name, rewards in groups.items():
            if len(rewards) > 1:
                mean = sum(rewards) / len(rewards)
                sums[0] += sum((z - mean) ** 2 for z in rewards)
                sums[1] += (len(rewards) - 1) / len(rewards) * sum(z * (1 - z) for z in rewards)
            newest[name] = step
        last = step if lags else last
    return answers


def new_prompt():
    return [[1 / 49] * 49 for _ in RATES], [1.0] * len(RATES)


def walked(messages, shares, w, prior):
    moved, faded = [], []
    for to, (q, _, p) in enumerate(RATES):
        source = normalised([(0.98 * (j == to) + 0.02 * p) * w[j] for j in range(len(RATES))])
        mixed = [math.fsum(s * m[k] for s, m in zip(source, messages, strict=True)) for k in range(49)]
        share = math.fsum(s * v for s, v in zip(source, shares, strict=True))
        precision, left = 1 / variance(mixed, GRID), share / variance(prior, GRID)
        faded.append(share / ((1 + q * q * precision) * (1 + q * q * (precision + left))))
        moved.append([math.fsum(mixed[k] * MOVES[to][k][y] for k in range(49)) for y in range(49)])
    return moved, faded


def likelihood(rewards, phi):
    return [math.prod((p**z * (1 - p) ** (1 - z)) ** (1 / phi) for z in rewards) for p in P]


def loo_values(rewards, belief, w, prior, phi):
    values = []
    for g in range(len(rewards)):
        like, value = likelihood(rewards[:g] + rewards[g + 1 :], phi), 0.0
        for share_of_rate, message, share in zip(w, *belief, strict=True):
            posterior = normalised([m * f**share * v for m, f, v in zip(message, prior, like, strict=True)])
            value += share_of_rate * math.fsum(b * p for b, p in zip(posterior, P, strict=True))
        values.append(value)
    return values


def prompts_after(beliefs, w, prior, counts, kept):
    base = [kept * c + (1 - kept) * 8 * f for c, f in zip(counts, FIRST, strict=True)]
    total = base
    for _ in range(3):
        total = list(base)
        for messages, shares in beliefs:
            message = [math.fsum(v * m[k] for v, m in zip(w, messages, strict=True)) for k in range(49)]
            share = math.fsum(v * s for v, s in zip(w, shares, strict=True))
            posterior = normalised([m * f**share for m, f in zip(message, prior, strict=True)])
            total = [t + share * b for t, b in zip(total, posterior, strict=True)]
        prior = normalised(total)
    return total


def random_run(seed, *, rewards=(0.0, 1.0), n_steps=7):
    """Prompts that come and go, ragged groups, gaps between steps."""
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.integers(1, 4, n_steps)).tolist()
    return [
        (step, {f"p{k}": rng.choice(rewards, rng.integers(1, 5)).tolist() for k in rng.permutation(4)[: 1 + step % 4]})
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


@pytest.mark.parametrize("rewards", [(0.0, 1.0), (0.0, 0.25, 0.5, 1.0)], ids=["binary", "other"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_estimator_gives_the_values_of_the_filter_in_plain_loops(seed, rewards):
    run = random_run(seed, rewards=rewards)
    for mine, slow in zip(streamed(AdvantageEstimator("bayes_filter"), run), slow_filter(run), strict=True):
        np.testing.assert_allclose(mine, flat(slow), rtol=0, atol=2e-6)  # states are kept in single precision


@pytest.mark.usefixtures("in_double")
def test_messages_in_double_precision_give_them_to_the_last_digits_and_torch_the_same():
    run = [(2 * k, {"a": [1.0, 0.0, float(k % 2)], "b": [0.0, 0.0, float(k == 3)]}) for k in range(6)]
    baseline = make_baseline("bayes_filter")
    for convert in (np.asarray, torch.as_tensor):
        carry, state, past = baseline.initial_carry(), None, None
        for (step, groups), slow in zip(run, slow_filter(run), strict=True):
            reward = convert(np.array(list(groups.values())))
            visits = Visits.empty(Groups(reward)) if past is None else past
            if past is not None:
                visits = Visits(*(convert(np.full((2, 1), c)) for c in (2.0, 3.0, 1.0, 1.0)), state=state)
            served = baseline.serve(Groups(reward), visits, step=step, carry=carry)
            np.testing.assert_allclose(np.asarray(served.values).reshape(-1), flat(slow), rtol=1e-9)
            assert type(served.values) is type(reward)
            carry, state, past = served.carry, served.state, visits


@pytest.mark.usefixtures("in_double")
def test_first_group_by_hand():
    # No past, G = 2: the other completion is the only evidence, prior N(0, 2^2) on the grid.
    values = make_baseline("bayes_filter").values(
        Groups(np.array([[1.0, 0.0]])), Visits.empty(Groups(np.zeros((1, 2)))), step=0
    )
    mean = math.fsum(f * p for f, p in zip(FIRST, P, strict=True))
    square = math.fsum(f * p * p for f, p in zip(FIRST, P, strict=True))
    assert mean == pytest.approx(0.5)
    np.testing.assert_allclose(values, [[(mean - square) / (1 - mean), square / mean]], rtol=1e-12)


@pytest.mark.parametrize("seed", [4, 5])
def test_a_value_depends_neither_on_its_own_reward_nor_on_later_ones(seed):
    run = random_run(seed)
    cut = len(run) // 2
    step, groups = run[cut]
    name = next(iter(groups))
    other = dict(groups) | {name: [1 - groups[name][0], *groups[name][1:]]}
    changed = [*run[:cut], (step, other), *run[cut + 1 :]]
    before, after = (streamed(AdvantageEstimator("bayes_filter"), r) for r in (run, changed))
    assert before[cut][0] == after[cut][0]
    for k in range(cut):
        np.testing.assert_array_equal(before[k], after[k])
    assert any(not np.array_equal(a, b) for a, b in zip(before[cut + 1 :], after[cut + 1 :], strict=True))


def test_a_saved_run_goes_on_bit_for_bit(tmp_path):
    run = random_run(6, n_steps=8)
    whole = streamed(AdvantageEstimator("bayes_filter"), run)
    estimator = AdvantageEstimator("bayes_filter")
    streamed(estimator, run[:4])
    estimator.save(tmp_path / "state")
    for mine, expected in zip(streamed(AdvantageEstimator.load(tmp_path / "state"), run[4:]), whole[4:], strict=True):
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.usefixtures("in_double")
def test_replaying_a_log_gives_the_estimators_values():
    run = random_run(7)
    rows = [(step, name, z) for step, groups in run for name, rewards in groups.items() for z in rewards]
    steps, names, rewards = zip(*rows, strict=True)
    log = RewardLog(names, steps, rewards)
    frame = log.frame.assign(value=replay(log, make_baseline("bayes_filter"))[0])
    for (step, groups), mine in zip(run, streamed(AdvantageEstimator("bayes_filter"), run), strict=True):
        here = frame[frame["step"] == step]
        expected = np.concatenate([here["value"][here["prompt"] == log.prompts.index(name)] for name in groups])
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-12)


def test_the_order_of_prompts_and_the_unit_of_time_do_not_matter():
    run = random_run(8)
    plain = streamed(AdvantageEstimator("bayes_filter"), run)
    backwards = [(step, dict(reversed(groups.items()))) for step, groups in run]
    for (_, groups), a, b in zip(run, plain, streamed(AdvantageEstimator("bayes_filter"), backwards), strict=True):
        names = [name for name, rewards in groups.items() for _ in rewards]
        names_back = [name for name, rewards in reversed(groups.items()) for _ in rewards]
        for name in groups:
            np.testing.assert_allclose(
                a[[n == name for n in names]], b[[n == name for n in names_back]], rtol=0, atol=1e-6
            )
    rare = streamed(AdvantageEstimator("bayes_filter"), [(60 * step, groups) for step, groups in run])
    for a, b in zip(plain, rare, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_rewards_in_another_range_give_the_same_values_in_that_range():
    run = random_run(9)
    moved = [(step, {name: [10 * z - 4 for z in rewards] for name, rewards in groups.items()}) for step, groups in run]
    plain = streamed(AdvantageEstimator("bayes_filter"), run)
    for a, b in zip(plain, streamed(AdvantageEstimator("bayes_filter", low=-4, high=6), moved), strict=True):
        np.testing.assert_allclose(10 * a - 4, b, rtol=0, atol=1e-5)


def test_without_kept_states_the_visits_are_filtered_anew():
    """With the same weights and prior throughout, it is the same whether visits are filtered one by one or at once."""
    baseline, group = make_baseline("bayes_filter"), Groups(np.array([[1.0, 0.0], [0.0, 0.0]]))
    past = Visits(
        *(np.array(c, dtype=float) for c in ([[2, 1], [2, 1]], [[2, 2], [0, 2]], [[2, 1], [0, 0]], [[2, 1], [0, 0]]))
    )
    carry, state = baseline.initial_carry(), None
    first = baseline.serve(Groups(np.array([[1.0, 1.0]])), Visits.empty(Groups(np.zeros((1, 2)))), step=0, carry=carry)
    state = np.concatenate([first.state, np.zeros_like(first.state)])
    visits = Visits(*(np.array(c, dtype=float) for c in ([[1], [1]], [[2], [0]], [[2], [0]], [[2], [0]])), state=state)
    second = baseline.serve(Groups(np.array([[1.0, 0.0], [0.0, 0.0]])), visits, step=1, carry=carry)
    newest = Visits(
        *(np.array(c, dtype=float) for c in ([[1], [1]], [[2], [2]], [[1], [0]], [[1], [0]])), state=second.state
    )
    np.testing.assert_allclose(
        baseline.values(group, past, step=2, carry=carry),
        baseline.values(group, newest, step=2, carry=carry),
        rtol=1e-12,
    )


@pytest.mark.parametrize(("q", "d"), [(q, d) for q, d, _ in RATES])
def test_moves_have_the_mean_and_variance_of_the_walk(q, d):
    row = transition(q, d)[24]
    logits = np.array(GRID)
    assert row.sum() == pytest.approx(1)
    assert row @ logits == pytest.approx(d, abs=1e-9)
    assert row @ logits**2 - (row @ logits) ** 2 == pytest.approx(q * q, rel=1e-3)
    np.testing.assert_allclose(transition(q, d), move(q, d), atol=1e-14)


def test_the_rates_are_a_distribution_and_the_state_is_as_large_as_stated():
    assert rates_of_change().prior.sum() == pytest.approx(1)
    assert make_baseline("bayes_filter").state_size == 7 * 50


def test_too_fine_a_walk_with_a_drift_is_refused():
    with pytest.raises(ValueError, match="too fine"):
        transition(0.03, 0.1)


def test_rewards_out_of_range_and_empty_ranges_are_refused():
    with pytest.raises(ValueError, match=r"in \[0, 1\]; state their range with low= and high="):
        AdvantageEstimator("bayes_filter").step(["a", "a"], [0.0, 2.0], 0)
    with pytest.raises(ValueError, match="low must be less than high"):
        BayesFilter(low=1.0, high=1.0)


def test_a_state_with_an_impossible_prior_is_refused():
    estimator = AdvantageEstimator("bayes_filter")
    estimator.step(["a", "a"], [0.0, 1.0], 0)
    baseline, carry = estimator.baseline, estimator.baseline.initial_carry()
    assert baseline.accepts_carry(carry)
    assert not baseline.accepts_carry(carry | {"prompts": -carry["prompts"]})
    assert not baseline.accepts_carry(None)


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_likelihoods_by_hand_are_relative_to_the_largest(convert):
    outcomes = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 16.0], [2.5, 0.5], [1e6, 2e6]])
    found = LogitGrid.as_type_of(convert(outcomes)).likelihood(convert(outcomes))
    for (s, f), each in zip(outcomes, np.asarray(found), strict=True):
        logs = [s * math.log(p) + f * math.log(1 - p) for p in P]
        np.testing.assert_allclose(each, np.exp(np.array(logs) - max(logs)), rtol=1e-5, atol=1e-30)


def long_run(n_prompts, n_steps=30):
    """Values of many prompts over many steps, and the last of both sides of a flipped reward of each prompt."""
    rng, baseline = np.random.default_rng(3), make_baseline("bayes_filter")
    logit = 4 * rng.standard_normal(n_prompts)
    carry, state, values = baseline.initial_carry(), None, []
    past = np.zeros((n_prompts, 0))
    for step in range(n_steps):
        logit += 0.3 * rng.standard_normal(n_prompts)
        reward = (rng.random((n_prompts, 8)) < 1 / (1 + np.exp(-logit))[:, None]).astype(float)
        visits = Visits(*(np.ones_like(past), np.full_like(past, 8), past, past), state=state)
        if step == n_steps - 1:
            flipped = reward.copy()
            flipped[:, 3] = 1 - flipped[:, 3]
            other = baseline.values(Groups(flipped), visits, step=step, carry=carry)
        served = baseline.serve(Groups(reward), visits, step=step, carry=carry)
        carry, state, past = served.carry, served.state, reward.sum(axis=1, keepdims=True)
        values.append(served.values)
    return np.stack(values), other


def test_single_precision_is_enough(in_double):
    precise, _ = long_run(200)
    in_double.undo()
    np.testing.assert_allclose(long_run(200)[0], precise, rtol=0, atol=2e-6)


def test_leave_one_out_is_exact_for_many_prompts():
    values, other = long_run(200)
    np.testing.assert_array_equal(other[:, 3], values[-1, :, 3])
    assert not np.array_equal(other[:, 4], values[-1, :, 4])


@pytest.mark.parametrize("leading", [(), (3,)])
def test_blocks_of_prompts_give_what_all_prompts_at_once_give(leading, in_double):
    rng, baseline = np.random.default_rng(2), make_baseline("bayes_filter")
    rewards = (rng.random((4, *leading, 40, 5)) < 0.4).astype(float)
    answers = []
    for block in (16, 10_000):
        in_double.setattr(module, "BLOCK", block)
        carry, state, served = baseline.initial_carry(), None, None
        for step, reward in enumerate(rewards):
            groups = Groups(reward)
            seen = np.broadcast_to(np.arange(40) % 2 < step, (*leading, 40))[..., None].astype(float)
            before = rewards[step - 1].sum(axis=-1, keepdims=True) * seen
            visits = Visits(lag=seen, count=5 * seen, total=before, total_sq=before, state=state)
            served = baseline.serve(groups, Visits.empty(groups) if step == 0 else visits, step=step, carry=carry)
            carry, state = served.carry, served.state
        answers.append(served)
    np.testing.assert_allclose(answers[0].values, answers[1].values, rtol=1e-12)
    np.testing.assert_allclose(answers[0].state, answers[1].state, rtol=1e-9)
    np.testing.assert_allclose(answers[0].carry["prompts"], answers[1].carry["prompts"], rtol=1e-9)


CASES = []  # its slow reference takes chains of visits, and stands above
