"""slime's numbers of weights as steps of policies, and what the reward hook records under them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.slime import RewardPostProcess
from kaestat.integrations.slime_versions import policy_steps
from tests.fakes.slime_source import RolloutFnTrainOutput, Sample, base_types


def arguments(**changes):
    defaults = {"reward_key": None, "advantage_estimator": "grpo", "update_weights_interval": 1, "release_train": False}
    return SimpleNamespace(**defaults | changes)


def hook_at(first=0, method="kae:bandwidth=10,order=any"):
    """A hook in a process whose first rollout is that of the number given."""
    hook = RewardPostProcess()
    hook.with_step(lambda *args, **options: [])(arguments(), first, None)
    return hook, arguments(kaestat_method=method)


def rollout(hook, args, number, rows):
    """A rollout through the hook; rows of (group, prompt, reward, weight versions)."""
    samples = [
        Sample(group, 100 * number + k, prompt=prompt, reward=reward, weight_versions=list(versions))
        for k, (group, prompt, reward, versions) in enumerate(rows)
    ]
    hook.with_step(lambda *_, **options: RolloutFnTrainOutput(samples))(args, number, None)
    return hook(args, samples)[1]


@given(first=st.integers(0, 9), interval=st.integers(1, 4), release=st.booleans(), n_rollouts=st.integers(1, 12))
def test_slime_weights_are_numbered_as_its_loop_pushes_them(first, interval, release, n_rollouts):
    args, pushed = arguments(update_weights_interval=interval, release_train=release), [first]
    for number in range(first, first + n_rollouts):  # the loop of train_async.py
        if release or (number + 1) % interval == 0:
            pushed.append(number + 1)
    samples = [Sample(weight_versions=[str(k)]) for k in range(1, len(pushed) + 1)]
    every, last = np.arange(len(pushed)), first + n_rollouts
    assert policy_steps(args, samples, every, every >= 0, last, first).tolist() == pushed


def test_slime_late_and_mixed_groups_are_those_of_an_estimator_told_the_policies():
    hook, args = hook_at(first=3)
    plain = AdvantageEstimator("kae", bandwidth=10, order="any")
    batches = {
        3: [(0, "a", 1.0, "1"), (0, "a", 0.0, "1"), (1, "b", 1.0, "1")],
        4: [(2, "a", 0.0, "1"), (2, "a", 1.0, "12"), (3, "b", 0.0, "2"), (4, "c", 1.0, "1")],
        6: [(5, "c", 0.0, "4"), (6, "a", 1.0, "2"), (6, "a", 1.0, "2"), (7, "a", 0.0, "3")],
    }
    for number, rows in batches.items():
        found = rollout(hook, args, number, rows)
        ids, policies = [hash_prompt(row[1]) for row in rows], [3 + int(row[3][-1]) - 1 for row in rows]
        groups = [row[0] for row in rows]
        expected = plain.step(ids, [row[2] for row in rows], number, version=policies, stream_ids=groups)
        np.testing.assert_array_equal(found, expected)
    keys = [hash_prompt(prompt) for prompt in "abc"]
    found, expected = (e.history.visits(keys, 7) for e in (hook.session(args).estimator, plain))
    assert found.lag.tolist() == expected.lag.tolist() and found.count.tolist() == expected.count.tolist()
    assert sorted({7 - lag for lag, count in zip(found.lag.flat, found.count.flat, strict=True) if count}) == [
        3,
        4,
        5,
        6,
    ]


def test_slime_segments_and_resumed_completions_are_of_the_newest_policy_among_them():
    hook, args = hook_at()
    rows = [("1", 0), ("3", 0), ("2", 1), ("12", 2)]
    samples = [
        Sample(0, k, rollout_id=rollout_id, prompt="p", reward=1.0, weight_versions=list(versions))
        for k, (versions, rollout_id) in enumerate(rows)
    ]
    hook.with_step(lambda *_, **options: samples)(args, 5, None)
    hook(args, samples)
    visits = hook.session(args).estimator.history.visits([hash_prompt("p")], 6)
    assert [(6 - lag, n) for lag, n in zip(visits.lag[0], visits.count[0], strict=True) if n] == [(1, 2), (2, 1)]


def test_slime_dropped_groups_are_recorded_under_their_policies_beside_kept_ones_of_the_prompt():
    hook, args = hook_at()
    args.dynamic_sampling_filter_path = "some.filter"
    every = [
        Sample(k // 2, k, prompt=f"p{k // 4}", reward=float(k in (1, 2, 3)), weight_versions=[str(1 + k // 2)])
        for k in range(8)
    ]
    every[7].reward, every[7].weight_versions, every[7].remove_sample = None, [], True
    kept = every[:2]
    hook.with_step(lambda *_, **options: kept)(args, 5, None)
    for sample in every:
        sample.metadata = dict(kept[0].metadata)
    hook.observe_all(args, [every[:2], every[2:4], every[4:6], every[6:]], None)
    hook(args, kept)
    visits = hook.session(args).estimator.history.visits([hash_prompt("p0"), hash_prompt("p1")], 6)
    held = [
        [(6 - lag, n, total) for lag, n, total in zip(*rows, strict=True) if n]
        for rows in zip(visits.lag, visits.count, visits.total, strict=True)
    ]
    assert held == [[(0, 2, 1.0), (1, 2, 2.0)], [(2, 2, 0.0), (3, 1, 0.0)]]


def test_slime_completions_of_unknown_policies_are_refused_and_nothing_is_recorded():
    hook, args = hook_at()
    for versions, message in (
        ([], "1 completions have no weight_versions"),
        (["default"], "'default' is not a number of weights"),
        (["4"], r"weights 4 are those after 3 rollouts.*rollout 2 is processed"),
    ):
        with pytest.raises(ValueError, match=message):
            rollout(hook, args, 2, [(0, "a", 1.0, ["1"]), (0, "a", 1.0, versions)])
    assert hook.session(args).estimator.history is None
    with pytest.raises(ValueError, match="counted from the first rollout"):
        fresh = RewardPostProcess()
        fresh(args, [Sample(0, 0, prompt="a", reward=1.0, weight_versions=["1"], metadata={"kaestat_step": 0})])


def test_slime_strict_order_takes_no_notice_of_weight_versions():
    hook, args = hook_at(method="kae:bandwidth=10")
    plain = AdvantageEstimator("kae", bandwidth=10)
    for number in range(3):
        rows = [(0, "a", 1.0, ["default"]), (0, "a", float(number == 1), [])]
        expected = plain.step([hash_prompt("a")] * 2, [row[2] for row in rows], number)
        assert rollout(hook, args, number, rows) == expected.tolist()


def test_slime_plain_list_of_a_rollout_function_gets_the_metrics_of_the_step_before(monkeypatch):
    for name, module in base_types().items():
        monkeypatch.setitem(sys.modules, name, module)
    hook, args = hook_at()
    rollout(hook, args, 0, [(0, "a", 1.0, "1"), (0, "a", 0.0, "1")])
    samples = [[Sample(1, 2, prompt="a", reward=1.0, weight_versions=["1"])]]
    output = hook.with_step(lambda *_, **options: samples)(args, 1, None)
    assert isinstance(output, RolloutFnTrainOutput) and output.samples is samples
    assert output.metrics["baseline/nonzero_advantages"] == 1.0
