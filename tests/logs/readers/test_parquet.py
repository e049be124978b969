"""Parquet files with columns that only Parquet has."""

import json
import uuid

import pandas as pd
import pytest

from kaestat import read_log

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def test_a_batch_in_each_row_has_the_same_completions_in_parquet_and_json(tmp_path):
    """Prompts that are lists were one prompt in Parquet, with the rewards of all."""
    talk = [[{"role": "user", "content": text}] for text in ("why", "how")]
    for name, prompts in (("texts", [["a", "b"], ["a", "c"]]), ("talks", [talk, talk])):
        rows = [{"prompt": p, "step": k, "reward": [1.0, 0.0]} for k, p in enumerate(prompts)]
        (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pd.DataFrame(rows).to_parquet(tmp_path / "run.parquet")
        found, expected = read_log(tmp_path / "run.parquet"), read_log(tmp_path / "run.jsonl")
        assert found.prompts == expected.prompts and len(found.prompts) == (3 if name == "texts" else 2)
        pd.testing.assert_frame_equal(found.frame, expected.frame)


def test_a_batch_in_text_is_refused(tmp_path):
    """As pandas writes lists to CSV: each would be a prompt, with the rewards of all its prompts."""
    path = tmp_path / "run.csv"
    for prompts in (["a", "b"], '["a", "b"]'):
        pd.DataFrame({"prompt": ["c", prompts], "step": 0, "reward": [[1.0, 0.0]] * 2}).to_csv(path, index=False)
        with pytest.raises(ValueError, match=r"line 3: prompt is a list of texts .*batches as JSONL or Parquet"):
            read_log(path)


@pytest.mark.parametrize("name", ["run.parquet", "run.csv", "run.jsonl"])
def test_lists_without_any_reward_are_refused(tmp_path, name):
    frame = pd.DataFrame({"prompt": ["a", "b"], "step": [0, 1], "reward": [[], []]})
    if name == "run.parquet":
        frame.to_parquet(tmp_path / name)
    elif name == "run.csv":
        frame.to_csv(tmp_path / name, index=False)
    else:
        frame.to_json(tmp_path / name, orient="records", lines=True)
    with pytest.raises(ValueError, match="holds no rewards, only empty lists"):
        read_log(tmp_path / name)


def test_ids_of_an_extension_type_are_prompts(tmp_path):
    ids = [uuid.UUID(int=1), uuid.UUID(int=2), uuid.UUID(int=1)]
    stored = pyarrow.array([each.bytes for each in ids], pyarrow.binary(16))
    column = pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), stored)
    parquet.write_table(
        pyarrow.table({"prompt": column, "step": [0, 0, 1], "reward": [1, 0, 1]}), tmp_path / "a.parquet"
    )
    assert read_log(tmp_path / "a.parquet").prompts == ids[:2]
