"""Weights, lengths and importance ratios of a log: they are kept with their completions, and wrong ones refused."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import RewardLog, read_log
from kaestat.logs.columns import MEASURES
from tests.helpers.log_rows import rows

GOOD = {"prompt": ["a", "b", "a", "b"], "step": [1, 1, 0, 0], "reward": [1.0, 0.0, 1.0, 0.0]}


@given(columns=rows(), seed=st.integers(0, 2**32 - 1))
def test_measures_stay_with_their_completions(columns, seed):
    """Rewards are made the number of the row, so that every measure can be looked up by its completion's."""
    prompt, step, _, group = columns
    number = np.arange(len(prompt))
    values = {name: np.random.default_rng([seed, k]).gamma(1.0, size=len(prompt)) for k, name in enumerate(MEASURES)}
    log = RewardLog(prompt, step, number, group, **values)
    row = log.frame["reward"].to_numpy().astype(int)
    for name in MEASURES:
        np.testing.assert_array_equal(log.frame[name], values[name][row])
    kept = np.arange(len(log.prompts)) % 2 == 0
    part = log.subset(kept).frame
    for name in MEASURES:
        np.testing.assert_array_equal(part[name], values[name][part["reward"].to_numpy().astype(int)])
    np.testing.assert_allclose(log.completion_weights("length"), (values["length"] * values["importance"] ** 2)[row])


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, 1e30])
def test_wrong_measures_are_refused_with_name_and_entry(name, bad):
    with pytest.raises(ValueError, match=f"{name} must be finite numbers from 0 to 1e\\+20: entry 2 is"):
        RewardLog(**GOOD, **{name: [1.0, 2.0, bad, 3.0]})
    with pytest.raises(ValueError, match=f"{name} has 3 entries for 4"):
        RewardLog(**GOOD, **{name: [1.0, 2.0, 3.0]})
    with pytest.raises(TypeError, match=f"{name} must be numbers"):
        RewardLog(**GOOD, **{name: ["x", 1, 2, 3]})


def test_hints_name_columns_or_do_without(tmp_path):
    path = tmp_path / "run.csv"
    pd.DataFrame(GOOD | {"norm": [1, 2, 3, 4], "length": [5, 6, 7, 8]}).to_csv(path, index=False)
    log = read_log(path, weight="norm", length="none")
    assert log.frame["weight"].tolist() == [3.0, 4.0, 1.0, 2.0] and log.weightings == ("weight",)
    with pytest.raises(ValueError, match=r"has no column 'x'.*Name the right one with weight="):
        read_log(path, weight="x")


@pytest.mark.parametrize("bad", [-1.0, None, "x", np.inf])
@pytest.mark.parametrize("part", MEASURES)
def test_a_bad_row_of_a_file_is_named_with_the_way_out(tmp_path, part, bad):
    frame = pd.DataFrame(GOOD | {part: [1, bad, 2, 3]})
    words = rf"row 2: {part} (is missing|is .*); a {part} must be a number from 0 to 1e.*{part}='none'"
    with pytest.raises(ValueError, match=words):
        RewardLog.from_frame(frame)
    assert RewardLog.from_frame(frame, **{part: "none"}).weightings == ()
    path = tmp_path / "run.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: {part} is")):
        read_log(path)


def trl_file(folder, step, **columns):
    frame = {
        "step": [step] * 4,
        "prompt": ["a", "a", "b", "b"],
        "completion": [""] * 4,
        "accuracy": [1.0, 0.0, 1.0, 0.0],
    }
    folder.mkdir(exist_ok=True)
    pd.DataFrame(frame | columns | {"advantage": [np.nan] * 4}).to_parquet(folder / f"completions_{step:05d}.parquet")


def test_trl_logs_have_what_our_trainer_writes_and_lose_evaluations_by_it(tmp_path):
    folder = tmp_path / "completions"
    trl_file(folder, 1, completion_length=[3, 4, 5, 6], score_norm=[0.1, 0.2, 0.3, 0.4])
    trl_file(folder, 2, completion_length=[3, 4, 5, 7], score_norm=[None, None, None, None])  # an evaluation
    trl_file(folder, 3, completion_length=[3, 4, 5, 8], score_norm=[1.0, 2.0, 3.0, 4.0])
    log = read_log(tmp_path)
    assert log.frame["weight"].tolist() == [0.1, 0.2, 0.3, 0.4, 1.0, 2.0, 3.0, 4.0]
    assert log.frame["length"].tolist() == [3.0, 4.0, 5.0, 6.0, 3.0, 4.0, 5.0, 8.0]
    assert log.frame["reward"].tolist() == [1.0, 0.0, 1.0, 0.0] * 2
    assert len(read_log(tmp_path, weight="none").frame) == 12
