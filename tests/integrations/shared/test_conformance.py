"""The conformance kit: each typical fault is found by the check for it. Right adapters are those of `test_session`."""

from dataclasses import replace

import pytest

from kaestat.integrations.shared import conformance
from tests.integrations.shared.test_session import ById, Wrapped


def faulty(right, **methods):
    return type("Faulty", (right,), methods)


def known_by(prompts):
    """The history kept by what is given instead of the prompt."""
    return faulty(Wrapped, columns=lambda self, rows: Wrapped.columns(self, rows) | {"prompts": prompts(rows)})


def steps_alone(self, rows):
    return self.session.estimator.step(rows.prompts, rows.rewards, rows.step)


def records_replays(self, rows):
    self.calls = getattr(self, "calls", 0) + 1
    return Wrapped.advantages(self, replace(rows, step=self.calls))


def has_every_text_keep_its_first_id(self, rows):
    known = vars(self).setdefault("known", {})
    if any(known.setdefault(*pair) != pair[1] for pair in zip(rows.prompts, rows.ids, strict=True)):
        raise ValueError("a prompt came back under another id")
    return Wrapped.columns(self, rows)


def says_nothing(self, rows):
    try:
        return ById.advantages(self, rows)
    except ValueError:
        raise ValueError("bad batch") from None


BY_UID = known_by(lambda rows: rows.uids)
TRUSTS_IDS = known_by(lambda rows: [str(key) for key in rows.ids])
GROUPS_OF_FOUR = known_by(lambda rows: [rows.prompts[4 * (k // 4)] for k in range(len(rows.prompts))])
NO_MASK = faulty(Wrapped, columns=lambda self, rows: Wrapped.columns(self, rows) | {"mask": None})
FAULTS = [
    (BY_UID, "changing_batches"),
    (BY_UID, "repeated_prompt"),
    (TRUSTS_IDS, "one_id_for_all"),
    (TRUSTS_IDS, "missing_ids"),
    (TRUSTS_IDS, "new_id_at_each_visit"),
    (GROUPS_OF_FOUR, "reordered_rows"),
    (GROUPS_OF_FOUR, "ragged_groups"),
    (NO_MASK, "padded_rows"),
    (faulty(Wrapped, advantages=steps_alone), "lone_completions"),
    (faulty(Wrapped, advantages=records_replays), "replayed_step"),
    (faulty(Wrapped, restore=lambda self, state: None), "resumed_run"),
    (faulty(Wrapped, columns=has_every_text_keep_its_first_id), "one_text_in_many_rows"),
    (faulty(ById, advantages=says_nothing), "one_id_for_all"),
]


@pytest.mark.parametrize(("adapter", "found_by"), FAULTS)
def test_a_fault_is_found_by_its_check(adapter, found_by):
    with pytest.raises(conformance.NotConforming):
        getattr(conformance, found_by)(adapter)
    assert found_by in conformance.run_checks(adapter)
