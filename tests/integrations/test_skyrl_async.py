"""SkyRL's fully asynchronous trainer, as far as the adapter stands around it, written out from its source."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from kaestat import AdvantageEstimator
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.skyrl import register
from tests.fakes import skyrl_source

NUMBER = itertools.count()


@pytest.fixture(autouse=True)
def skyrl(monkeypatch):
    for name, module in skyrl_source.modules().items():
        monkeypatch.setitem(sys.modules, name, module)


def make_trainer(estimator, *, step_wise=False, weights="none"):
    name = f"kaestat{next(NUMBER)}"
    register(estimator, name, weights=weights)
    trainer = object.__new__(importlib.import_module("kaestat.integrations.skyrl_async").AsyncBaselineTrainer)
    algorithm = SimpleNamespace(advantage_estimator=name, gamma=1.0, lambd=1.0, grpo_norm_by_std=True)
    trainer.cfg = SimpleNamespace(
        trainer=SimpleNamespace(algorithm=algorithm), generator=SimpleNamespace(step_wise_trajectories=step_wise)
    )
    trainer.tokenizer, trainer.dispatch, trainer.train_dataloader = SimpleNamespace(pad_token_id=0), MagicMock(), None
    trainer.dispatch.get_lcm_dp_size.return_value = 5
    trainer.global_step, trainer.all_metrics = 1, {}
    return trainer


def group(uid, rewards, scheduled, *, lengths=None, last_steps=None, prompts=None, **more):
    lengths = lengths or [2] * len(rewards)
    output = {
        "prompt_token_ids": [[int(uid) + 1]] * len(rewards) if prompts is None else prompts,
        "response_ids": [[9] * length for length in lengths],
        "rewards": [[0.0] * (length - 1) + [reward] for length, reward in zip(lengths, rewards, strict=True)],
        "loss_masks": [[1] * length for length in lengths],
    }
    if last_steps is not None:
        output["is_last_step"] = last_steps
    return SimpleNamespace(uid=uid, global_step_when_scheduled=scheduled, generator_output=output | more)


def train(trainer, step, groups, dropped=None):
    trainer.global_step = step
    data = trainer.convert_generation_group_mini_batch_to_training_input(groups, dropped)
    data["values"] = None
    return trainer.compute_advantages_and_returns(data)


def advantages(data, size):
    mask = data["response_mask"].numpy() > 0
    return np.where(mask, data["advantages"].numpy(), 0.0)[:size, -1]


class AsyncAdapter:
    """Conformance rows as the groups of a step, each begun under a policy; there are no padding rows."""

    def __init__(self, estimator):
        self.trainer = make_trainer(estimator)

    def groups(self, rows):
        """Groups, and the rows of each, in the order of the groups."""
        members = {}
        for row in np.flatnonzero(~rows.padding).tolist():
            members.setdefault(rows.uids[row], []).append(row)
        version = np.full(len(rows.ids), rows.step) if rows.version is None else rows.version
        found = [
            group(
                str(rows.ids[own[0]]),
                rows.rewards[own].tolist(),
                1 + int(version[own[0]]),
                prompts=[list(rows.prompts[row].encode()) for row in own],
            )
            for own in members.values()
        ]
        return found, [row for own in members.values() for row in own]

    def advantages(self, rows):
        return self.advantages_beside(rows, rows.take(np.arange(0)))

    late_advantages = advantages

    def advantages_beside(self, rows, dropped):
        (kept, order), (gone, _), found = self.groups(rows), self.groups(dropped), np.zeros(len(rows.ids))
        found[order] = advantages(train(self.trainer, rows.step + 1, kept, gone), len(order))
        return found

    def state(self):
        return self.trainer.baseline.session.state_dict()

    def restore(self, state):
        self.trainer.baseline.session.load_state_dict(state)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_skyrl_async_conforms(check):
    check(AsyncAdapter)


@pytest.mark.parametrize("weights", ["none", "length"])
def test_skyrl_async_groups_are_recorded_under_the_policy_they_were_begun_with(weights):
    trainer = make_trainer(AdvantageEstimator("kae", bandwidth=9, order="any"), weights=weights)
    plain = AdvantageEstimator("kae", bandwidth=9, order="any")
    steps = {
        1: ([group("0", [1.0, 0.0], 1, lengths=[1, 3]), group("1", [1.0, 1.0], 1)], None),
        3: ([group("0", [0.0, 0.0], 2, lengths=[4, 2])], [group("2", [1.0, 1.0], 3, lengths=[5, 6])]),
        4: ([group("2", [0.0, 1.0], 4), group("1", [1.0, 0.0], 2)], [group("0", [0.0, 0.0], 1)]),
    }
    for step, (kept, dropped) in steps.items():
        data = train(trainer, step, kept, dropped)
        told = [
            ([g.uid] * 2, [sum(r) for r in g.generator_output["rewards"]], [g.global_step_when_scheduled - 1] * 2)
            for g in kept
        ]
        ids, rewards, version = (list(itertools.chain(*column)) for column in zip(*told, strict=True))
        tokens = [len(r) for g in kept for r in g.generator_output["rewards"]]
        options = {"weights": tokens} if weights == "length" else {}
        expected = plain.step(ids, rewards, step - 1, version=version, **options)
        np.testing.assert_allclose(advantages(data, len(ids)), expected, rtol=1e-6, atol=1e-6)
        for g in dropped or ():
            tokens = [len(r) for r in g.generator_output["rewards"]]
            options = {"weights": tokens} if weights == "length" else {}
            rewards = [sum(r) for r in g.generator_output["rewards"]]
            version = [g.global_step_when_scheduled - 1] * 2
            plain.observe([g.uid] * 2, rewards, step - 1, version=version, **options)
    found, expected = (e.history.visits(["0", "1", "2"], 5) for e in (trainer.baseline.session.estimator, plain))
    assert found.lag.tolist() == expected.lag.tolist() and found.total.tolist() == expected.total.tolist()
    assert weights == "none" or found.weight.tolist() == expected.weight.tolist()


def test_skyrl_async_trajectory_of_several_steps_counts_once_dropped_or_not():
    trainer = make_trainer(AdvantageEstimator("kae", bandwidth=9, order="any"), step_wise=True, weights="length")
    last_steps, prompts = [False, True, True], [[1], [1, 9], [1]]
    one = group("0", [0.5, 1.0, 0.0], 1, lengths=[2, 3, 1], last_steps=last_steps, prompts=prompts)
    other = group("4", [0.5, 1.0, 1.0], 2, lengths=[1, 2, 4], last_steps=last_steps, prompts=[[5], [5, 9], [5]])
    train(trainer, 2, [one], [other])
    visits = trainer.baseline.session.estimator.history.visits(["0", "4"], 2)
    seen = np.stack([2 - visits.lag, visits.count, visits.total, visits.weight], axis=-1)[:, -1]
    assert seen.tolist() == [[0, 2, 1.0, 6.0], [1, 2, 2.0, 7.0]]


def test_skyrl_async_groups_left_over_at_the_end_of_an_epoch_are_recorded_in_any_order_alone():
    left = [group("0", [1.0, 0.0], 2)], [group("1", [1.0, 1.0], 1)]
    for order, count in (("any", 4), ("strict", 0)):
        trainer = make_trainer(AdvantageEstimator("kae", bandwidth=9, order=order))
        trainer.global_step = 3
        for exhausted in (False, True):
            assert asyncio.run(trainer._collect_generation_mini_batch((*left, exhausted), None)) == (*left, exhausted)
        history = trainer.baseline.session.estimator.history
        assert (0 if history is None else history.visits(["0", "1"], 4).count.sum()) == count


def test_skyrl_async_without_a_history_nothing_is_kept_and_prompts_may_change_where_they_may():
    trainer = make_trainer(AdvantageEstimator("rloo"))
    data = train(trainer, 1, [group("0", [1.0, 0.0], 1)], [group("1", [1.0, 1.0], 1)])
    assert advantages(data, 2).tolist() == [1.0, -1.0]
    trainer = make_trainer(AdvantageEstimator("kae", bandwidth=9, order="any"))
    trainer.check_prompts = False
    for step in (1, 2):
        train(trainer, step, [group("0", [1.0, 0.0], step)], [group("1", [1.0, 1.0], step, prompts=[[step], [9]])])
    assert trainer.baseline.session.estimator.history.visits([hash_prompt("1")], 2).count.sum() == 4
