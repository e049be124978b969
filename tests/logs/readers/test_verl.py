"""verl's rollout dump."""

import json
import uuid
from pathlib import Path

import pytest

from kaestat import read_log


def dump(folder: Path, step: int, inputs: list[str], scores: list[float], **extra: list) -> None:
    """What verl 0.9.1's ``_write_generations`` writes."""
    folder.mkdir(exist_ok=True)
    n = len(inputs)
    columns = {"input": inputs, "output": ["…"] * n, "gts": [None] * n, "score": scores, "step": [step] * n} | extra
    with open(folder / f"{step}.jsonl", "w") as file:
        for i in range(n):
            row = {key: values[i] for key, values in columns.items()}
            file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A dump of three steps; the names of the files sort as 1, 10, 2."""
    dump(tmp_path, 1, ["why", "how", "why", "how"], [1.0, 0.0, 0.0, 0.0], acc=[True, False, False, True])
    dump(tmp_path, 2, ["why", "why"], [1.0, 0.5], acc=["True", "False"])
    dump(tmp_path, 10, ["how", "how"], [1.0, 1.0], acc=[1.0, 0.0])
    return tmp_path


def test_a_dump_gives_its_rows_with_the_prompt_text_as_prompt(folder):
    log = read_log(folder)
    assert log.prompts == ["why", "how"] and not log.has_groups
    assert log.frame["step"].tolist() == [1, 1, 1, 1, 2, 2, 10, 10]
    assert log.frame["prompt"].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert log.frame["reward"].tolist() == [1, 0, 0, 0, 1, 0.5, 1, 1]


def test_an_extra_key_can_be_the_reward_even_where_numbers_became_text(folder):
    assert read_log(folder, reward="acc").frame["reward"].tolist() == [1, 0, 0, 1, 1, 0, 1, 0]


def test_a_key_can_tell_groups_of_one_prompt_apart(tmp_path):
    dump(tmp_path, 1, ["why"] * 4, [1, 0, 0, 0], copy=[0, 0, 1, 1])
    assert read_log(tmp_path).group_sizes.tolist() == [4]
    assert read_log(tmp_path, group="copy").group_sizes.tolist() == [2, 2]


def test_the_file_name_gives_the_step_where_the_rows_have_none(tmp_path):
    (tmp_path / "7.jsonl").write_text('{"input": "why", "output": "", "score": 1}\n')
    assert read_log(tmp_path).frame["step"].tolist() == [7]
    (tmp_path / "7.jsonl").rename(tmp_path / "seven.jsonl")
    with pytest.raises(ValueError, match="name it after its step"):
        read_log(tmp_path / "seven.jsonl")


def test_padding_rows_are_left_out(tmp_path):
    """The newer trainer fills batches up with rows of empty prompt and reward 0, whose uid starts with pad."""
    sample = str(uuid.UUID(int=1))
    uid = [f"{sample}_0_0", f"{sample}_1_0", f"pad{uuid.UUID(int=2).hex}_0_0", f"pad{uuid.UUID(int=2).hex}_1_0"]
    dump(tmp_path, 1, ["why", "why", "", ""], [1.0, 1.0, 0.0, 0.0], uid=uid)
    log = read_log(tmp_path)
    assert log.prompts == ["why"] and log.frame["reward"].tolist() == [1, 1]


def test_a_rollout_with_several_outputs_counts_once(tmp_path):
    sample = str(uuid.UUID(int=1))
    uid = [f"{sample}_0_0", f"{sample}_0_1", f"{sample}_0_12", f"{sample}_11_0"]
    dump(tmp_path, 1, ["why", "why, turn 2", "why, turn 3", "why"], [1.0, 1.0, 1.0, 0.0], uid=uid)
    assert read_log(tmp_path).frame["reward"].tolist() == [1, 0]


def test_ids_of_the_users_own_are_no_reason_to_drop_rows(tmp_path):
    dump(tmp_path, 1, ["why", "how", "who"], [1.0, 1.0, 0.0], uid=["math_1_2", "pad_3_4", None])
    assert len(read_log(tmp_path).frame) == 3


def test_completions_that_no_one_graded_are_left_out_with_a_warning(tmp_path):
    dump(tmp_path, 1, ["why", "how"], [0.0, 1.0])
    dump(tmp_path, 2, ["why", "why", "how"], [0.0, float("nan"), float("nan")])
    with pytest.warns(UserWarning, match=r"2 of 5 rows left out for lack of score \(the first: 2\.jsonl, line 2"):
        log = read_log(tmp_path)
    assert log.frame["reward"].tolist() == [0.0, 1.0, 0.0]
    assert log.frame["step"].tolist() == [1, 1, 2]


def test_a_folder_without_numbered_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no file named after its step"):
        read_log(tmp_path, format="verl")
