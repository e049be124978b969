"""Logs whose rows hold lists: a reward for each completion of a group, and a prompt for each group of a batch."""

import json

import numpy as np
import pandas as pd
import pytest

import kaestat

WANDB = "_step,question_text,train/reward\n"


def test_names_of_trackers_and_lists_of_rewards_are_read(tmp_path):
    rows = [(step, prompt, [prompt, step % 2, 1]) for step in range(3) for prompt in (0, 1)]
    plain = "".join(f"{step},q{prompt},{z}\n" for step, prompt, rewards in rows for z in rewards)
    (tmp_path / "plain.csv").write_text(WANDB + plain)
    (tmp_path / "lists.csv").write_text(WANDB + "".join(f'{step},q{prompt},"{z}"\n' for step, prompt, z in rows))
    more = {"length": [5, 6, 7], "note": []}
    lines = [{"step": step, "prompt": f"q{prompt}", "rewards": z} | more for step, prompt, z in rows]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    expected = kaestat.read_log(tmp_path / "plain.csv")
    for name in ("lists.csv", "lists.jsonl"):
        log = kaestat.read_log(tmp_path / name)
        assert log.prompts == expected.prompts
        for column in ("prompt", "step", "reward"):
            np.testing.assert_array_equal(log.frame[column], expected.frame[column])
    assert log.frame["length"].tolist() == [5, 6, 7] * 6
    assert expected.columns == {"prompt": "question_text", "step": "_step", "reward": "train/reward"}


def test_a_row_may_be_a_batch_of_conversations_with_a_list_of_rewards_each(tmp_path):
    asked = [[{"role": "user", "content": text}] for text in ("why", "how")]
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"step": 3, "prompts": asked, "rewards": [[1, 0, 0], [0, 1]], "length": 7}))
    batch = kaestat.read_log(path)
    path.write_text(
        "".join(
            json.dumps({"step": 3, "prompt": prompt, "reward": z, "length": 7}) + "\n"
            for prompt, z in zip(asked, ([1, 0, 0], [0, 1]), strict=True)
        )
    )
    rows = kaestat.read_log(path)  # a conversation of one message is not one prompt for three rewards
    assert batch.prompts == rows.prompts and json.loads(batch.prompts[1]) == asked[1]
    pd.testing.assert_frame_equal(batch.frame, rows.frame)
    assert batch.frame["reward"].tolist() == [1, 0, 0, 0, 1] and batch.frame["prompt"].tolist() == [0, 0, 0, 1, 1]


def test_a_prompt_that_looks_like_a_list_is_a_text_beside_lists_of_rewards(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"step": 0, "prompt": "[3, 5]", "reward": [1, 0]}))
    assert kaestat.read_log(path).prompts == ["[3, 5]"]


def test_lists_that_do_not_fit_name_their_row(tmp_path):
    path = tmp_path / "run.jsonl"
    row = '{"step": 0, "prompt": "a", "reward": %s, "length": [1, 2]}\n'
    path.write_text(row % "[1, 0]" + row % "[1]")
    with pytest.raises(ValueError, match=r"run\.jsonl, line 2: length has 2 values for 1 reward. Give one"):
        kaestat.read_log(path)
    path.write_text(row % "[1, 0]" + row % '[1, "much"]')
    with pytest.raises(ValueError, match=r"run\.jsonl, line 2: reward is 'much'"):
        kaestat.read_log(path)
