"""TRL's logged completions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kaestat import RewardLog, read_log
from kaestat.logs.columns import GENERATION
from tests.helpers.log_warnings import warned


def log_completions(
    folder: Path, step: int, prompts: list, rewards: dict[str, list], *, advantage: list | None = None, **extra: list
) -> None:
    """What TRL 1.16's ``GRPOTrainer.log`` writes; advantages are those of the plain sum unless given."""
    folder.mkdir(parents=True, exist_ok=True)
    if advantage is None:
        total = pd.Series(np.nansum([np.asarray(r, dtype=float) for r in rewards.values()], axis=0))
        groups = total.groupby([str(prompt) for prompt in prompts])
        scale = groups.transform("std").fillna(0) + 1e-4
        advantage = ((total - groups.transform("mean")) / scale).astype(np.float32).tolist()
    table = {
        "step": [step] * len(prompts),
        "prompt": prompts,
        "completion": [f"{step}: {i}" for i in range(len(prompts))],
        **rewards,
        **extra,
        "advantage": advantage,
    }
    pd.DataFrame(table).to_parquet(folder / f"completions_{step:05d}.parquet")


def totals(log: RewardLog) -> list[float]:
    return log.frame["reward"].round(6).tolist()


@pytest.fixture
def folder(tmp_path) -> Path:
    """The output folder of a run with one reward function."""
    log_completions(tmp_path / "completions", 5, ["why", "why", "how", "how"], {"accuracy": [1.0, 0.0, 0.0, 0.0]})
    log_completions(tmp_path / "completions", 10, ["why", "why"], {"accuracy": [1.0, 1.0]})
    log_completions(tmp_path / "completions", 100_000, ["how", "how"], {"accuracy": [0.0, 1.0]})
    return tmp_path


@pytest.mark.parametrize("inner", ["", "completions"])
def test_the_output_folder_and_the_folder_of_completions_both_give_the_rows(folder, inner):
    log = read_log(folder / inner)
    assert log.prompts == ["why", "how"]
    assert log.frame["step"].tolist() == [5, 5, 5, 5, 10, 10, 100_000, 100_000]
    assert totals(log) == [1, 0, 0, 0, 1, 1, 0, 1]


def test_conversations_become_the_same_text_in_every_file(tmp_path):
    talk = [{"role": "user", "content": "why"}]
    other = [{"role": "user", "content": "how", "name": "me"}]  # gives the messages of its file a third field
    log_completions(tmp_path, 1, [talk, talk], {"accuracy": [1.0, 0.0]})
    log_completions(tmp_path, 2, [talk, other], {"accuracy": [1.0, 0.0]})
    log = read_log(tmp_path)
    assert log.prompts[0] == '[{"content": "why", "role": "user"}]' and len(log.prompts) == 2
    assert log.prompt_units.counts.tolist() == [2, 1, 1]


REWARDS = {"accuracy": [1.0, 0.0, 1.0, 0.0], "format": [0.5, 0.5, 0.0, 0.5]}


def test_hints_choose_the_columns_and_their_weights(tmp_path):
    log_completions(tmp_path, 1, ["why"] * 4, REWARDS, advantage=[0.0] * 4)
    assert totals(read_log(tmp_path, reward="format")) == [0.5, 0.5, 0, 0.5]
    assert totals(read_log(tmp_path, reward=["format", "accuracy"], reward_weights=[2, 1])) == [2, 1, 1, 1]
    with pytest.raises(TypeError, match="reward must be the name of a column, or a list of names, got"):
        read_log(tmp_path, reward=["format", 3])


def test_weights_apply_in_the_order_of_the_columns(tmp_path):
    centred = np.array([3.5, 0.5, 3.0, 0.5]) - 1.875
    log_completions(tmp_path, 1, ["why"] * 4, REWARDS, advantage=centred.tolist())
    assert totals(read_log(tmp_path, reward_weights=[3, 1])) == [3.5, 0.5, 3.0, 0.5]


def test_a_sum_that_does_not_explain_the_advantages_is_refused(tmp_path):
    """Weights forgotten, or a number from ``log_extra`` taken for a reward."""
    log_completions(tmp_path / "a", 1, ["why"] * 4, REWARDS, advantage=[1.6, -1.4, 1.1, -1.4])
    with pytest.raises(ValueError, match=r"accuracy, format does not explain.*reward=\[\.\.\.\].*reward_weights="):
        read_log(tmp_path / "a")
    one = {"accuracy": REWARDS["accuracy"]}
    log_completions(tmp_path / "b", 1, ["why"] * 4, one, entropy=[0.1, 0.9, 0.3, 0.7])
    with pytest.raises(ValueError, match="accuracy, entropy does not explain"):
        read_log(tmp_path / "b")
    assert totals(read_log(tmp_path / "b", reward="accuracy")) == [1, 0, 1, 0]


def test_a_reward_that_the_first_file_lacks_is_not_dropped(tmp_path):
    """A run resumed with another reward function; or one whose column held only nulls so far."""
    log_completions(tmp_path, 1, ["why"] * 4, {"accuracy": REWARDS["accuracy"]})
    log_completions(tmp_path, 2, ["why"] * 4, REWARDS)
    with pytest.raises(
        ValueError, match=r"00002\.parquet: has a reward format that completions_00001.*reward=\[\.\.\.\]"
    ):
        read_log(tmp_path)
    assert totals(read_log(tmp_path, reward="accuracy")) == [1, 0, 1, 0] * 2


def test_none_from_one_function_adds_nothing_and_from_all_leaves_the_completion_out(tmp_path):
    nan = float("nan")
    rewards = {"maths": [1.0, 0.0, nan, nan, nan], "code": [nan, nan, 1.0, 0.0, nan]}
    prompts = ["sum", "sum", "loop", "loop", "loop"]
    centred = [0.5, -0.5, 0.5, -0.5, 0.0]
    log_completions(tmp_path, 1, prompts, rewards, advantage=centred)
    with pytest.warns(UserWarning, match=r"1 of 5 rows left out for lack of maths \+ code \(the first: row 5"):
        log = read_log(tmp_path)
    assert totals(log) == [1, 0, 1, 0] and log.ungraded == 1


def test_a_batch_logged_again_at_later_steps_counts_once(tmp_path):
    """With ``num_iterations=2`` every generation is logged at two steps."""
    for step, first in ((3, 1.0), (99_999, 0.0)):  # the last name is longer than the one before
        log_completions(tmp_path, step, ["why", "why"], {"accuracy": [first, 0.0]})
        again = pd.read_parquet(tmp_path / f"completions_{step:05d}.parquet").assign(step=step + 1)
        again.to_parquet(tmp_path / f"completions_{step + 1:05d}.parquet")
    assert read_log(tmp_path).frame["step"].tolist() == [3, 3, 99_999, 99_999]


def test_a_data_set_of_completions_is_read_as_the_files_that_it_was_made_of(tmp_path):
    """As a data set that TRL uploaded is downloaded: one table of all steps, with batches logged again."""
    for step in (1, 2, 3, 4):
        log_completions(tmp_path / "run", step, ["why", "why"], {"accuracy": [float(step > 2), 0.0]})
        path = tmp_path / "run" / f"completions_{step:05d}.parquet"
        pd.read_parquet(path).assign(completion=f"of {(step + 1) // 2}").to_parquet(path)
    expected = read_log(tmp_path / "run").frame
    assert expected["step"].tolist() == [1, 1, 3, 3]
    (tmp_path / "copy" / "data").mkdir(parents=True)
    whole = pd.concat(pd.read_parquet(path) for path in sorted((tmp_path / "run").iterdir()))
    whole.to_parquet(tmp_path / "copy" / "data" / "train-00000-of-00001.parquet")
    for path in (tmp_path / "copy", tmp_path / "copy" / "data" / "train-00000-of-00001.parquet"):
        pd.testing.assert_frame_equal(read_log(path).frame, expected)


def test_marked_rows_of_training_are_told_from_evaluations(tmp_path):
    """Generation 0 is logged twice, the second time cut by an evaluation; generation 1 is lost to one."""
    nan = float("nan")
    for step, generations in enumerate([[0] * 4, [0, 0, nan, nan], [nan] * 4, [2] * 4], start=1):
        rewards = {"accuracy": [1.0, 0.0, 1.0, 0.0]}
        log_completions(tmp_path, step, ["why", "why", "how", "how"], rewards, **{GENERATION: generations})
    with warned() as texts:
        log = read_log(tmp_path)
    assert log.frame["step"].tolist() == [1] * 4 + [4] * 4
    assert "6 completions of evaluations are left out. At steps 2, 3" in texts[0]
    assert "1 generation from 0 to 2 missing or not complete" in texts[1] and len(texts) == 2
    for step in (1, 2, 4):
        (tmp_path / f"completions_{step:05d}.parquet").unlink()
    with pytest.raises(ValueError, match="holds completions of evaluations alone"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("steps", "sizes", "words"),
    [
        ([1, 2, 3, 4], [4, 4, 2, 4], "most steps have 4 completions of 2 prompts, but not 3"),
        ([1, 2, 3, 4], [4, 4, 1, 4], "most steps have 4 completions of 2 prompts, but not 3"),
        ([1, 2, 3, 5], [4, 4, 4, 4], "most steps are 1 apart, but some before 5 are missing"),
        ([1, 10, 20, 25], [4, 4, 4, 4], None),  # the first and the last step of a run are logged too
        ([1, 2, 3, 4], [4, 4, 4, 4], None),  # as after an evaluation of two prompts, which nothing tells apart
    ],
)
def test_in_trls_own_log_odd_steps_and_gaps_are_named(tmp_path, steps, sizes, words):
    for step, size in zip(steps, sizes, strict=True):
        prompts = ["why"] * 4 if size == 1 else ["why", "why", "how", "how"][:size]
        log_completions(tmp_path, step, prompts, {"accuracy": [float(k == step % 4) for k in range(len(prompts))]})
    with warned() as texts:
        read_log(tmp_path)
    assert [words in text for text in texts] == [True] if words else not texts


@pytest.mark.parametrize(
    ("hints", "words"),
    [
        ({"reward": "acc"}, "no column 'acc'; it has step, prompt, completion, accuracy, advantage"),
        ({"reward_weights": [1.0, 2.0]}, "reward_weights must be one number for each of accuracy"),
        ({"reward_weights": [float("nan")]}, "reward_weights must be finite"),
    ],
)
def test_hints_that_do_not_fit_are_refused(folder, hints, words):
    with pytest.raises(ValueError, match=words):
        read_log(folder, **hints)


def test_files_that_are_not_trls_are_refused(tmp_path):
    pd.DataFrame({"x": [1.0]}).to_parquet(tmp_path / "completions_00001.parquet")
    with pytest.raises(ValueError, match="is not a log from TRL: it has x"):
        read_log(tmp_path)
    with pytest.raises(ValueError, match=r"holds no completions_\*\.parquet"):
        (tmp_path / "empty").mkdir()
        read_log(tmp_path / "empty", format="trl")
