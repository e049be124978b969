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


@pytest.mark.parametrize("adapter", [ByText, ById, Whole])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_a_right_adapter_passes(check, adapter):
    check(adapter)


def faulty(right, **methods):
    return type("Faulty", (right,), methods)


def each_rank_alone(self, parts):
    ranked = [[(rank, prompt) for prompt in part.prompts] for rank, part in enumerate(parts)]
    return [self.estimator.step(keys, part.rewards, part.step) for keys, part in zip(ranked, parts, strict=True)]


def records_replays(self, rows):
    self.calls = getattr(self, "calls", 0) + 1
    return self.estimator.step(rows.prompts, rows.rewards, self.calls, mask=~rows.padding)


def waits_for_as_many_prompts_as_it_saw_first(self, rows):
    found, size = ByText.advantages(self, rows), len(set(rows.prompts))
    self.expected = getattr(self, "expected", size)
    return found if size == self.expected else np.zeros(len(rows.ids))


def has_every_text_keep_its_first_id(self, rows):
    known = vars(self).setdefault("known", {})
    if any(known.setdefault(*pair) != pair[1] for pair in zip(rows.prompts, rows.ids, strict=True)):
        raise ValueError("a prompt came back under another id")
    return rows.prompts


def says_nothing(self, rows):
    try:
        return ById.keys(self, rows)
    except ValueError:
        raise ValueError("bad batch") from None


def tells_the_sampler_nothing(self, sampler):
    self.sampler, sampler.observe = sampler, lambda *rows: None


BY_UID = faulty(ByText, keys=lambda self, rows: rows.uids)
TRUSTS_IDS = faulty(ByText, keys=lambda self, rows: [str(key) for key in rows.ids])
GROUPS_OF_FOUR = faulty(ByText, keys=lambda self, rows: [rows.prompts[4 * (k // 4)] for k in range(len(rows.prompts))])
NO_MASK = faulty(ByText, advantages=lambda self, rows: self.estimator.step(rows.prompts, rows.rewards, rows.step))
FAULTS = [
    (BY_UID, "changing_batches"),
    (BY_UID, "repeated_prompt"),
    (TRUSTS_IDS, "one_id_for_all"),
    (TRUSTS_IDS, "missing_ids"),
    (TRUSTS_IDS, "new_id_at_each_visit"),
    (GROUPS_OF_FOUR, "reordered_rows"),
    (GROUPS_OF_FOUR, "ragged_groups"),
    (NO_MASK, "padded_rows"),
    (faulty(ByText, advantages_on_ranks=each_rank_alone), "split_over_ranks"),
    (faulty(ByText, advantages=records_replays), "replayed_step"),
    (faulty(ByText, restore=lambda self, state: None), "resumed_run"),
    (faulty(ByText, advantages=waits_for_as_many_prompts_as_it_saw_first), "dropped_group"),
    (faulty(ByText, keys=has_every_text_keep_its_first_id), "one_text_in_many_rows"),
    (faulty(ById, keys=says_nothing), "one_id_for_all"),
    (faulty(Whole, advantages_beside=lambda self, rows, dropped: self.advantages(rows)), "filtered_groups"),
    (faulty(Whole, late_advantages=lambda self, rows: self.advantages(replace(rows, version=None))), "late_rows"),
    (faulty(Whole, factor=lambda self, rows: 1.0), "drawn_prompts"),
    (faulty(Whole, restore=lambda self, state: self.estimator.load_state_dict(state[0])), "drawn_prompts"),
    (faulty(Whole, draw_from=tells_the_sampler_nothing), "drawn_prompts"),
    (faulty(Whole, state_after=lambda self, step: self.state()), "earlier_state"),
]


@pytest.mark.parametrize(("adapter", "found_by"), FAULTS)
def test_a_fault_is_found_by_its_check(adapter, found_by):
    with pytest.raises(conformance.NotConforming):
        getattr(conformance, found_by)(adapter)
    assert found_by in conformance.run_checks(adapter)


def test_every_check_finds_some_fault():
    """Else a check could pass anything."""
    assert {found_by for _, found_by in FAULTS} == {check.__name__ for check in conformance.CHECKS}
