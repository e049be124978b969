"""DataFrames as logs, and the columns that play the parts."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from kaestat import RewardLog, read_log, risk_differences, select_bandwidth, value_risk
from kaestat.datasets import simulated_run
from tests.helpers.log_rows import rows


@pytest.fixture(scope="module")
def frame():
    """A run's completions, shuffled, under names that a user would have."""
    log = simulated_run(n_prompts=20, n_epochs=6).log
    prompts = [f"question {log.prompts[code]}" for code in log.frame["prompt"]]
    table = pd.DataFrame({"Query": prompts, "global_step": log.frame["step"], "Score": log.frame["reward"], "x": "y"})
    return table.sample(frac=1, random_state=3)


def test_tables_of_risk_take_frames(frame):
    log = RewardLog(frame["Query"], frame["global_step"], frame["Score"])
    options = {"n_boot": 40}
    pd.testing.assert_frame_equal(
        value_risk(frame, ["kae", "rloo"], **options), value_risk(log, ["kae", "rloo"], **options)
    )
    pd.testing.assert_frame_equal(
        risk_differences(frame, ["kae"], **options), risk_differences(log, ["kae"], **options)
    )
    assert select_bandwidth(frame, n_boot=0).bandwidth == select_bandwidth(log, n_boot=0).bandwidth


@given(columns=rows())
@settings(max_examples=60)
def test_a_frame_gives_the_log_of_its_columns(columns):
    prompt, step, reward, group = columns
    frame = pd.DataFrame({"p": prompt, "s": step, "r": reward} | ({} if group is None else {"g": group}))
    log = RewardLog.from_frame(frame, prompt="p", step="s", reward="r", group=None if group is None else "g")
    expected = RewardLog(*columns)
    pd.testing.assert_frame_equal(log.frame, expected.frame)
    assert log.prompts == expected.prompts and log.has_groups == expected.has_groups


@pytest.mark.parametrize("kind", ["category", "string", object])
def test_prompts_of_any_text_type_and_categories_in_any_order(kind):
    frame = pd.DataFrame({"prompt": ["z", "a", "z", "b"], "step": [0, 0, 1, 1], "reward": [1.0, 0.0, 1.0, 1.0]})
    frame["prompt"] = frame["prompt"].astype(kind)
    kept = RewardLog.from_frame(frame[frame["prompt"] != "a"])
    assert RewardLog.from_frame(frame).prompts == ["z", "a", "b"] and kept.prompts == ["z", "b"]


def test_the_log_is_not_changed_with_the_frame():
    frame = pd.DataFrame({"prompt": ["a", "a"], "step": [0, 1], "reward": [1.0, 0.0]})
    log = RewardLog.from_frame(frame)
    frame.loc[0, "reward"] = 7.0
    rewards = np.array([1.0, 0.0])
    other = RewardLog(["a", "a"], [0, 1], rewards)
    rewards[0] = 7.0
    assert log.frame["reward"].tolist() == other.frame["reward"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reward": [1.0, None]}, "frame, row 2: reward is missing"),
        ({"prompt": ["a", None]}, "frame, row 2: prompt is missing"),
        ({"prompt": pd.Categorical(["a", None])}, "frame, row 2: prompt is missing"),
        ({"reward": [], "prompt": [], "step": []}, "frame: has columns but no rows"),
        ({"Step": [0, 2]}, "step could be step or Step; choose with step='step'"),
    ],
)
def test_bad_frames_are_refused_with_the_row(changes, words):
    good = {"prompt": ["a", "b"], "step": [0, 1], "reward": [1.0, 0.0]}
    frame = pd.DataFrame(good | changes)
    frame.index = range(5, 5 + len(frame))
    with pytest.raises(ValueError, match="frame") as caught:
        RewardLog.from_frame(frame)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "names", [("Step", "Prompt", "Reward"), ("Global Step", "query", "SCORE"), ("STEP", "problem-id", "Is Correct")]
)
def test_usual_names_in_any_spelling(tmp_path, names):
    path = tmp_path / "run.csv"
    path.write_text(",".join(names) + "\n0,a,1\n3,b,0\n")
    log = read_log(path)
    assert log.prompts == ["a", "b"] and log.frame["step"].tolist() == [0, 3]
