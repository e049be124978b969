"""`TrainerSession`: what every adapter stands on, through the conformance kit and by hand."""

import numpy as np
import pytest

from kaestat import AdvantageEstimator, AsynchronousEstimator
from kaestat.baselines.registry import METHODS
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.shared.session import LostState, TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler

PROMPTS = ["a", "a", "b", "b"]


def kae(order="strict"):
    return (AsynchronousEstimator if order == "any" else AdvantageEstimator)("kae", bandwidth=5.0)


class Wrapped:
    """A session in the kit's words, with all that the kit can ask for."""

    def __init__(self, estimator):
        self.session = TrainerSession(estimator, states_kept=3)

    def columns(self, rows):
        return {"prompts": rows.prompts, "groups": rows.uids, "mask": ~rows.padding, "version": rows.version}

    def advantages(self, rows):
        return self.session.advantages(rows.rewards, rows.step, **self.columns(rows))

    late_advantages = advantages

    def advantages_on_ranks(self, parts):
        columns = {name: sum((getattr(part, name) for part in parts), ()) for name in ("prompts", "ids", "uids")}
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("rewards", "padding")}
        found = self.advantages(conformance.Rows(parts[0].step, **columns, **arrays))
        return np.split(found, np.cumsum([len(part.ids) for part in parts])[:-1])

    def advantages_beside(self, rows, dropped):
        found = self.advantages(rows)
        self.session.observe(dropped.rewards, dropped.step, **self.columns(dropped))
        return found

    def names(self, prompts):
        return [hash_prompt(prompt) for prompt in prompts]

    def draw_from(self, sampler):
        ids = [*sampler._ids, sampler._ids[0]]  # a data set in which a prompt stands twice
        self.session.drawn = TrackedSampler(sampler, ids)

    def drawn(self, step):
        return self.session.drawn.draw_of(step).rows()

    def state(self):
        return self.session.state_dict()

    def state_after(self, step):
        return self.session.state_dict(step)

    def restore(self, state):
        self.session.load_state_dict(state)


class ById(Wrapped):
    """The same with the data set's ids."""

    def columns(self, rows):
        return super().columns(rows) | {"ids": rows.ids}

    def names(self, prompts):
        return list(range(len(prompts)))


@pytest.mark.parametrize("adapter", [Wrapped, ById])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_integration_session_conforms(check, adapter):
    """By way of files it does so in slime's tests."""
    check(adapter)


def drawing(ids=("a", "b", "c")):
    session = TrainerSession(kae())
    sampler = session.sampler("neyman", ids, budget=4, group_size=2, seed=1)
    session.drawn = TrackedSampler(sampler, ids)
    return session


def test_integration_session_of_several_rows_with_one_prompt_the_first_stands_for_all():
    session = drawing(ids=("a", "b", "a", "c", "b"))
    assert session.drawn.row == {"a": 0, "b": 1, "c": 3}
    assert session.drawn.sampler.draw(0).plan.share.tolist() == [0.4, 0.4, 0.2]


def test_integration_session_prompts_that_were_not_drawn_for_the_step_are_refused_and_nothing_is_recorded():
    session = drawing()
    drawn = session.drawn.draw(0).rows()
    for prompts, ids in ((["z"] * 4, ["z"] * 4), ([*drawn, drawn[0]], [*drawn, drawn[0]])):
        with pytest.raises(ValueError, match="not those that were drawn"):
            session.advantages(np.ones(len(ids)), 0, prompts=prompts, ids=ids)
    with pytest.raises(ValueError, match="step 1 are not those"):
        session.advantages(np.ones(4), 1, prompts=drawn, ids=drawn)
    with pytest.raises(ValueError, match="draw belongs to a training step"):
        session.advantages(np.ones(4), None, prompts=drawn, ids=drawn)
    assert session.estimator.history is None
    assert session.advantages(np.ones(3), 0, prompts=drawn[:3], ids=drawn[:3]).shape == (3,)  # one was masked


def test_integration_session_corrections_that_travel_with_the_rows_are_taken():
    session, plain = drawing(), kae()
    ids, rewards = ["a", "a", "b", "b"], np.array([1.0, 0.0, 1.0, 1.0])
    factor = np.array([2.0, 2.0, 0.5, 0.5])
    mask = np.array([True, True, True, False])
    found = session.advantages(rewards, 0, prompts=ids, ids=ids, correction=factor, mask=mask)
    assert found.tolist() == (plain.step(ids, rewards, 0, mask=mask) * factor).tolist()


def test_integration_session_answer_of_the_estimator_is_not_changed_by_a_correction():
    session, ids = drawing(), ["a", "a", "b", "b"]
    found = session.advantages(np.arange(4.0), 0, prompts=ids, ids=ids, correction=np.full(4, 2.0))
    assert (2 * session.estimator.record.advantages.ravel()).tolist() == found.tolist() == [-2.0, 2.0, -2.0, 2.0]


@pytest.mark.parametrize("make", [AdvantageEstimator, lambda name: SeveralRewards.of(name, ["r"])])
@pytest.mark.parametrize("name", METHODS)
def test_integration_session_groups_of_one_are_refused_by_methods_that_need_more(name, make):
    if METHODS[name].needs is not None:
        return
    session = TrainerSession(make(name))
    if not METHODS[name].default.alone or name == "pooled":  # a prompt may have several groups
        session.check_group_size("rollout.n", 1)
        return
    with pytest.raises(ValueError, match=f"rollout.n=1: {name}: no group .* 'kae_eb'"):
        session.check_group_size("rollout.n", 1)
    rewards = np.ones(2) if make is AdvantageEstimator else np.ones((2, 1))
    with pytest.raises(ValueError, match=f"completions of a prompt=1: {name}"):
        session.advantages(rewards, 0, prompts=["a", "a"], groups=["g", "h"])
    assert session.estimator.last_step == -1
    session.advantages(rewards, 0, prompts=["a", "a"])
    with pytest.warns(UserWarning, match="no group has more"):
        session.advantages(rewards, 1, prompts=["a", "b"])  # of later steps it may be chance


@pytest.mark.parametrize("order", ["strict", "any"])
def test_integration_session_dropped_rows_of_a_trained_prompt_count_in_any_order_alone(order):
    session = TrainerSession(kae(order=order))
    session.advantages([1.0, 0.0], 0, prompts=["a", "a"], version=[0, 0] if order == "any" else None)
    session.observe([1.0, 1.0, 0.0, 0.0], 0, prompts=PROMPTS, version=[0] * 4 if order == "any" else None)
    session.observe([], 0, prompts=[])
    visits = session.estimator.history.visits([hash_prompt("a"), hash_prompt("b")], 1)
    assert visits.count.sum(-1).tolist() == [4 if order == "any" else 2, 2]


def test_integration_session_weights_are_one_choice_for_the_run():
    weighted, plain = TrainerSession(AdvantageEstimator("opo"), weights="length"), AdvantageEstimator("opo")
    given = [1.0, 0.0, 1.0, 0.0], [3.0, 1.0, 2.0, 2.0]
    found = weighted.advantages(given[0], 0, prompts=PROMPTS, weights=given[1])
    assert found.tolist() == plain.step(PROMPTS, given[0], 0, weights=given[1]).tolist()
    with pytest.raises(ValueError, match="weights=length: the trainer gave no weights"):
        weighted.advantages(given[0], 1, prompts=PROMPTS)
    with pytest.raises(ValueError, match=r"my\.option=none: method 'opo'"):
        TrainerSession(AdvantageEstimator("opo"), option="my.option")
    with pytest.raises(ValueError, match="given to a session made with weights='none'"):
        TrainerSession(kae()).advantages(given[0], 0, prompts=PROMPTS, weights=given[1])


def test_integration_session_of_several_rewards():
    several = TrainerSession(SeveralRewards({"x": kae(), "y": kae()}))
    several.advantages([[1.0, 0.0], [0.0, 0.0]], 0, prompts=["a", "a"])
    assert {"baseline/x/error", "baseline/y/error"} <= set(several.metrics)
    with pytest.raises(ValueError, match="not a SeveralRewards"):
        several.sampler("neyman", ["a", "b"], budget=4, group_size=2, seed=0)
    with pytest.raises(TypeError, match="AdvantageEstimator, got str"):
        TrainerSession("kae")


def test_integration_session_lost_states_are_refused_or_begin_with_a_warning(tmp_path):
    session, files = drawing(), (tmp_path / "history", tmp_path / "sampler")
    with pytest.raises(LostState, match=r"history: this checkpoint was saved without the history of 'kae'.*or say so"):
        session.load(*files, remedy="say so")
    with pytest.warns(UserWarning, match="history does not exist: the history of 'kae' begins here"):
        session.load(*files, anew=True)
    session.save(*files)
    files[1].unlink()
    with pytest.raises(LostState, match="without a prompt sampler"):
        session.load(*files)
    with pytest.raises(LostState, match="without a prompt sampler"):
        session.load_state_dict(TrainerSession(kae()).state_dict())
    TrainerSession(AdvantageEstimator("rloo")).load(tmp_path / "nothing", files[1])  # needs neither
    assert issubclass(LostState, FileNotFoundError) and issubclass(LostState, ValueError)
