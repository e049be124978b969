"""RewardLog, and its visits and blocks against a reference that loops over rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kaestat import RewardLog
from tests.helpers.log_rows import rows

SETTINGS = settings(max_examples=3 * settings.default.max_examples)
HORIZONS = st.sampled_from([0, 0.5, 1, 2.5, 3, 7, 40, np.inf])


def reference_visits(columns: tuple, unit: str) -> dict:
    """Rewards of each visit, ``{(unit key): {step: [rewards in file order]}}``, looping over rows."""
    visits: dict = {}
    for prompt, step, reward, group in zip(*columns[:3], columns[3] or [0] * len(columns[0]), strict=True):
        key = (prompt, group) if unit == "group" else prompt
        visits.setdefault(key, {}).setdefault(step, []).append((group, reward))
    return visits


def unit_key(log: RewardLog, unit: str, position: int):
    """The key of `reference_visits` for a completion of ``log.frame``."""
    row = log.frame.iloc[position]
    prompt = log.prompts[int(row["prompt"])]
    return (prompt, int(row["group"])) if unit == "group" else prompt


@given(rows(), HORIZONS, st.sampled_from([0, 1, 30, 200, 4_000_000]), st.sampled_from(["prompt", "group"]))
@SETTINGS
def test_blocks_hold_each_visit_once_with_its_rewards_and_its_past_within_the_horizon(columns, horizon, cells, unit):
    log = RewardLog(*columns)
    if columns[3] is not None:  # the log codes groups in order of appearance; let the reference speak of the same codes
        codes = {label: code for code, label in enumerate(dict.fromkeys(columns[3]))}
        columns = (*columns[:3], [codes[label] for label in columns[3]])
    visits = reference_visits(columns, unit)
    units = log.units(unit)
    seen = []
    for block in units.blocks(horizon=horizon, max_cells=cells):
        n_steps, width = block.visit.shape
        mask = np.ones_like(block.groups.reward, dtype=bool) if block.groups.mask is None else block.groups.mask
        assert n_steps == 1 or n_steps * width * max(mask.shape[-1], block.visits.lag.shape[-1]) <= cells
        for t, p in np.ndindex(n_steps, width):
            past = block.visits.count[t, p] > 0
            number = int(block.visit[t, p])
            if number < 0:
                assert not mask[t, p].any() and not past.any()
                continue
            seen.append(number)
            step = int(block.step[t, 0, 0])
            key = unit_key(log, unit, int(units.first[number]))
            by_group = sorted(visits[key][step], key=lambda pair: pair[0])
            assert block.groups.reward[t, p][mask[t, p]].tolist() == [reward for _, reward in by_group]
            earlier = sorted(s for s in visits[key] if s < step and step - s <= horizon)
            assert block.visits.lag[t, p][past].tolist() == [step - s for s in earlier]
            for name, sums in (("count", len), ("total", sum), ("total_sq", lambda r: sum(x * x for x in r))):
                expected = [sums([reward for _, reward in visits[key][s]]) for s in earlier]
                np.testing.assert_allclose(getattr(block.visits, name)[t, p][past], expected, atol=1e-12)
                assert not getattr(block.visits, name)[t, p][~past].any()
    assert seen == list(range(sum(len(steps) for steps in visits.values())))


def test_counts_of_a_small_log():
    log = RewardLog(["a", "b", "a", "a", "b"], [3, 3, 3, 9, 9], [1, 0, 1, 0, 1], group=["x", "x", "y", "x", "x"])
    assert (log.n_steps, log.n_visits, log.group_sizes.tolist()) == (2, 4, [1, 1, 1, 1, 1])
    assert log.prompts == ["a", "b"] and log.time_axis == "step"
    assert repr(log) == "RewardLog(5 completions, 2 prompts, 4 visits, 2 steps)"
    assert len(log.group_units.visit_step) == 5 and log.prompt_units.earlier.tolist() == [0, 0, 1, 1]


def test_a_subset_is_the_log_of_those_prompts():
    rng = np.random.default_rng(3)
    prompt, step, _ = np.indices((12, 10, 4))
    whole = RewardLog(prompt.ravel(), step.ravel(), rng.integers(0, 2, prompt.size).astype(float))
    kept = np.arange(12) % 3 != 0
    frame = whole.frame[kept[whole.frame["prompt"]]]
    fresh = RewardLog(np.array(whole.prompts)[frame["prompt"]], frame["step"], frame["reward"])
    part = whole.subset(kept)
    assert part.prompts == fresh.prompts
    np.testing.assert_array_equal(part.frame.to_numpy(), fresh.frame.to_numpy())
    np.testing.assert_array_equal(part.prompt_units.total, fresh.prompt_units.total)
    with pytest.raises(ValueError, match="chosen is False for every prompt"):
        whole.subset(np.zeros(12, dtype=bool))


def test_rows_are_sorted_by_step_and_prompt_with_the_order_inside_a_group_kept():
    log = RewardLog(["b", "a", "b", "a", "b"], [1, 0, 1, 1, 0], [1, 2, 3, 4, 5])
    assert log.frame["step"].tolist() == [0, 0, 1, 1, 1]
    assert log.frame["reward"].tolist() == [5, 2, 1, 3, 4]  # b came first, so it is prompt 0
    log.frame.loc[:, "reward"] = 7.0  # of a copy
    assert log.arrays["reward"].tolist() == [5, 2, 1, 3, 4]


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        lambda values: pd.Series(values, index=range(9, 9 - len(values), -1)),
        torch.tensor,
        lambda values: torch.tensor(values, dtype=torch.bfloat16),
        lambda values: torch.tensor(values, dtype=torch.float32, requires_grad=True),
    ],
    ids=["list", "tuple", "array", "series", "indexed series", "tensor", "bfloat16", "tensor with gradient"],
)
def test_columns_may_be_lists_arrays_series_or_tensors(kind):
    expected = RewardLog(["0", "1", "0"], [0, 2, 2], [1.0, 0.0, 0.5])
    log = RewardLog(["0", "1", "0"], kind([0, 2, 2]), kind([1.0, 0.0, 0.5]))
    pd.testing.assert_frame_equal(log.frame, expected.frame)


GOOD = {"prompt": ["a", "b"], "step": [0, 1], "reward": [1.0, 0.0], "group": [0, 0]}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"reward": []}, ValueError, "empty"),
        ({"reward": [1.0]}, ValueError, "2 entries for 1"),
        ({"reward": [1.0, np.nan]}, ValueError, "entry 1 is nan"),
        ({"reward": ["x", "y"]}, TypeError, "reward must be numbers"),
        ({"reward": [[1.0], [0.0]]}, ValueError, "one axis"),
        ({"step": [0, 0.5]}, ValueError, "entry 1 is 0.5"),
        ({"prompt": ["a", None]}, ValueError, "prompt: None or NaN"),
        ({"prompt": [["a"], ["b"]]}, TypeError, "prompt must be hashable"),
        ({"time_axis": "epoch"}, ValueError, "time_axis must be"),
    ],
)
def test_bad_columns_are_refused_by_name(change, error, words):
    RewardLog(**GOOD)
    with pytest.raises(error, match=words):
        RewardLog(**(GOOD | change))
