"""Parquet files with columns that only Parquet has."""

import json

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
