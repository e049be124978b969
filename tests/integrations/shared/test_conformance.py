"""The conformance kit: a right adapter passes every check, and each typical fault is found by the check for it."""

from dataclasses import replace

import numpy as np
import pytest

from kaestat.integrations.shared import conformance
from kaestat.integrations.shared.prompt_ids import IdentityCheck, hash_prompt


class ByText:
    """Right: prompts known by their text."""

    def __init__(self, estimator):
        self.estimator = estimator

    def keys(self, rows):
        return rows.prompts

    def advantages(self, rows):
        return self.estimator.step(self.keys(rows), rows.rewards, rows.step, mask=~rows.padding)

    def advantages_on_ranks(self, parts):
        rows = conformance.Rows(
            step=parts[0].step,
            prompts=sum((part.prompts for part in parts), ()),
            ids=sum((part.ids for part in parts), ()),
            uids=sum((part.uids for part in parts), ()),
            rewards=np.concatenate([part.rewards for part in parts]),
            padding=np.concatenate([part.padding for part in parts]),
        )
        return np.split(self.advantages(rows), np.cumsum([len(part.ids) for part in parts])[:-1])

    def state(self):
        return self.estimator.state_dict()

    def restore(self, state):
        self.estimator.load_state_dict(state)


class ById(ByText):
    """Right: prompts known by the data set's ids, which are watched."""

    def __init__(self, estimator):
        super().__init__(estimator)
        self.watch = IdentityCheck()

    def keys(self, rows):
        keep = np.flatnonzero(~rows.padding)
        ids, hashes = [rows.ids[k] for k in keep], [hash_prompt(rows.prompts[k]) for k in keep]
        self.watch.check(ids, hashes, rows.step)
        return rows.ids


class Whole(ByText):
    """Right: with a filter, late rows, drawn prompts and states of earlier steps."""

    def __init__(self, estimator):
        super().__init__(estimator)
        self.states, self.sampler = {}, None

    def advantages(self, rows):
        found = self.estimator.step(self.keys(rows), rows.rewards, rows.step, mask=~rows.padding, version=rows.version)
        if self.sampler is not None:
            found = found * self.factor(rows)
            self.sampler.observe(rows.prompts, rows.rewards, rows.step)
        self.states[rows.step] = self.estimator.state_dict()
        return found

    def factor(self, rows):
        return self.sampler.last_draw.correction_of(rows.prompts)

    late_advantages = advantages

    def advantages_beside(self, rows, dropped):
        found = self.advantages(rows)
        untrained = [prompt not in rows.prompts for prompt in dropped.prompts]
        self.estimator.observe(dropped.prompts, dropped.rewards, dropped.step, mask=untrained)
        return found

    def names(self, prompts):
        return list(prompts)

    def draw_from(self, sampler):
        self.sampler = sampler

    def drawn(self, step):
        return self.sampler.draw(step).rows()

    def state(self):
        return self.estimator.state_dict(), None if self.sampler is None else self.sampler.state_dict()

    def state_after(self, step):
        return self.states[step], None

    def restore(self, state):
        self.estimator.load_state_dict(state[0])
        if self.sampler is not None:
            self.sampler.load_state_dict(state[1])


class ForgetsDropped(Whole):
    def advantages_beside(self, rows, dropped):
        return self.advantages(rows)


class RecordsUnderTheStep(Whole):
    def late_advantages(self, rows):
        return self.advantages(replace(rows, version=None))


class ForgetsTheCorrection(Whole):
    def factor(self, rows):
        return 1.0


class ForgetsTheDraws(Whole):
    def restore(self, state):
        self.estimator.load_state_dict(state[0])


class TellsTheSamplerNothing(Whole):
    def draw_from(self, sampler):
        self.sampler = sampler
        sampler.observe = lambda *rows: None


class SavesTheNewest(Whole):
    def state_after(self, step):
        return self.state()


class ByUid(ByText):
    def keys(self, rows):
        return rows.uids


class TrustsIds(ByText):
    def keys(self, rows):
        return [str(key) for key in rows.ids]


class AssumesGroupsOfFour(ByText):
    def keys(self, rows):
        return [rows.prompts[4 * (k // 4)] for k in range(len(rows.prompts))]


class IgnoresPadding(ByText):
    def advantages(self, rows):
        return self.estimator.step(rows.prompts, rows.rewards, rows.step)


class EachRankAlone(ByText):
    def advantages_on_ranks(self, parts):
        step = parts[0].step
        return [
            self.estimator.step([(rank, p) for p in part.prompts], part.rewards, step)
            for rank, part in enumerate(parts)
        ]


class RecordsReplays(ByText):
    calls = 0

    def advantages(self, rows):
        self.calls += 1
        return self.estimator.step(rows.prompts, rows.rewards, self.calls, mask=~rows.padding)


class ForgetsTheState(ByText):
    def restore(self, state):
        pass


class CountsGroups(ByText):
    """Waits for as many prompts as it saw first."""

    expected = None

    def advantages(self, rows):
        self.expected = self.expected or len(set(rows.prompts))
        advantages = super().advantages(rows)
        return advantages if len(set(rows.prompts)) == self.expected else np.zeros(len(rows.ids))


class RefusesOtherIds(ByText):
    """Has every text keep the id that it came with first."""

    def __init__(self, estimator):
        super().__init__(estimator)
        self.known = {}

    def keys(self, rows):
        for prompt, key in zip(rows.prompts, rows.ids, strict=True):
            if self.known.setdefault(prompt, key) != key:
                raise ValueError("a prompt came back under another id")
        return rows.prompts


class SilentMessage(ById):
    def keys(self, rows):
        try:
            return super().keys(rows)
        except ValueError:
            raise ValueError("bad batch") from None


@pytest.mark.parametrize("adapter", [ByText, ById, Whole])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_a_right_adapter_passes(check, adapter):
    check(adapter)


FAULTS = [
    (ByUid, "changing_batches"),
    (ByUid, "repeated_prompt"),
    (TrustsIds, "one_id_for_all"),
    (TrustsIds, "missing_ids"),
    (TrustsIds, "new_id_at_each_visit"),
    (AssumesGroupsOfFour, "reordered_rows"),
    (AssumesGroupsOfFour, "ragged_groups"),
    (IgnoresPadding, "padded_rows"),
    (EachRankAlone, "split_over_ranks"),
    (RecordsReplays, "replayed_step"),
    (ForgetsTheState, "resumed_run"),
    (CountsGroups, "dropped_group"),
    (RefusesOtherIds, "one_text_in_many_rows"),
    (SilentMessage, "one_id_for_all"),
    (ForgetsDropped, "filtered_groups"),
    (RecordsUnderTheStep, "late_rows"),
    (ForgetsTheCorrection, "drawn_prompts"),
    (ForgetsTheDraws, "drawn_prompts"),
    (TellsTheSamplerNothing, "drawn_prompts"),
    (SavesTheNewest, "earlier_state"),
]


@pytest.mark.parametrize(("adapter", "found_by"), FAULTS)
def test_a_fault_is_found_by_its_check(adapter, found_by):
    with pytest.raises(conformance.NotConforming):
        getattr(conformance, found_by)(adapter)
    assert found_by in conformance.run_checks(adapter)


def test_every_check_finds_some_fault():
    """Else a check could pass anything."""
    assert {found_by for _, found_by in FAULTS} == {check.__name__ for check in conformance.CHECKS}
