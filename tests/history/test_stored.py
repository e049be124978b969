"""Histories as plain data and as files: what comes back, what is refused."""

import numpy as np
import pytest

from kaestat import RewardHistory
from kaestat.core.storage import save_state
from tests.helpers.records import LAST_STEP, record, seen


def test_saved_and_loaded_it_goes_on_bit_for_bit(tmp_path):
    rng = np.random.default_rng(0)
    history = RewardHistory(horizon=6)

    def go_on(history, step, sums):
        history.record(
            list(range(step % 3, 9)), step=step, **{name: column[step % 3 :] for name, column in sums.items()}
        )

    columns = [
        {name: rng.integers(1, 9, 9) / (1 if name == "count" else 7) for name in ("count", "total", "total_sq")}
        for _ in range(40)
    ]
    for step in range(20):
        go_on(history, step, columns[step])
    history.save(tmp_path / "history")
    resumed = RewardHistory.load(tmp_path / "history")
    for step in range(20, 40):
        go_on(history, step, columns[step])
        go_on(resumed, step, columns[step])
    np.testing.assert_equal(resumed.state_dict(), history.state_dict())


ALTERED = {
    "a field missing": lambda state: state["fields"].pop("total"),
    "an unknown field": lambda state: state["fields"].update(extra=state["fields"]["total"]),
    "fields of different shapes": lambda state: state["fields"].update(total=state["fields"]["total"][:, 1:]),
    "a row missing": lambda state: state.update(fields={k: f[1:] for k, f in state["fields"].items()}),
    "a key twice": lambda state: state.update(keys=["a", "a"]),
    "a key missing": lambda state: state.update(keys=["a"]),
    "no keys": lambda state: state.pop("keys"),
    "no horizon": lambda state: state.pop("horizon"),
    "no last step": lambda state: state.pop("last_step"),
    "visits after the last step": lambda state: state.update(last_step=0),
    "fields that are not arrays": lambda state: state.update(fields=None),
    "a last step that is not an integer": lambda state: state.update(last_step=2.0),
    "a last step that is a flag": lambda state: state.update(last_step=True),
    "a last step before the first": lambda state: state.update(last_step=-2),
    "a last step that no array holds": lambda state: state.update(last_step=LAST_STEP + 1),
    "a sum that is not finite": lambda state: state["fields"].update(total=state["fields"]["total"] * np.inf),
    "half a completion": lambda state: state["fields"].update(count=state["fields"]["count"] / 4),
    "a negative count": lambda state: np.put(state["fields"]["count"], 0, -1),
    "a count that no array holds": lambda state: state["fields"].update(count=state["fields"]["count"] + 2.0**40),
    "a step beyond what arrays hold": lambda state: state["fields"].update(step=state["fields"]["step"] + 2.0**31),
    "a flat field": lambda state: state.update(fields={k: f.ravel() for k, f in state["fields"].items()}),
}


@pytest.mark.parametrize("alteration", ALTERED)
def test_a_state_that_does_not_fit_together_is_refused(alteration):
    history = RewardHistory()
    for step in range(3):
        record(history, ["a", "b"], step)
    state = history.state_dict()
    ALTERED[alteration](state)
    with pytest.raises(ValueError, match="state"):
        RewardHistory.from_state_dict(state)


def test_a_state_dict_is_a_copy():
    history = RewardHistory()
    record(history, ["a"], 0)
    state = history.state_dict()
    state["fields"]["total"][:] = 99
    restored = RewardHistory.from_state_dict(history.state_dict())

    assert seen(history, "a", 1) == seen(restored, "a", 1) == [(1, 2, 1.0)]


def test_a_state_holds_the_prompts_seen_and_no_row_in_reserve():
    history = RewardHistory()
    for step in range(20):
        record(history, [step], step)
    resumed = RewardHistory.from_state_dict(history.state_dict())
    np.testing.assert_equal(resumed.state_dict(), history.state_dict())
    assert {len(field) for field in history.state_dict()["fields"].values()} == {20}


def test_a_history_never_used_is_saved_and_loaded_as_one(tmp_path):
    RewardHistory(horizon=3, weighted=True).save(tmp_path / "history")
    loaded = RewardHistory.load(tmp_path / "history")
    with pytest.raises(ValueError, match="last_step must be a whole number from -1"):
        RewardHistory.from_state_dict({**loaded.state_dict(), "last_step": -2})
    assert (len(loaded), loaded.last_step, loaded.horizon, loaded.weighted) == (0, -1, 3.0, True)
    assert not loaded.with_divergence


def test_a_file_of_something_else_is_no_history(tmp_path):
    for content in ({"other": {"x": 1}}, {"history": [1, 2]}):
        save_state(tmp_path / "file", content)
        with pytest.raises(ValueError, match="holds no reward history"):
            RewardHistory.load(tmp_path / "file")


def test_what_is_kept_of_a_prompt_comes_back_with_its_visits_and_from_a_file(tmp_path):
    history = RewardHistory(max_visits=1, state_size=2)
    sums = {"count": np.ones(2), "total": np.ones(2), "total_sq": np.ones(2)}
    for step in range(2):
        keys = ["a", f"b{step}"]
        history.columns.append(keys, history.rows(keys), step, sums, np.array([[step, 1], [step, 2]]))
    history.save(tmp_path / "history")
    for one in (history, RewardHistory.load(tmp_path / "history")):
        assert one.visits(["b0", "never", "a", "b1"], 2).state.tolist() == [[0, 2], [0, 0], [1, 1], [1, 2]]
        assert one.state_size == 2
