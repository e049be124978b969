"""Rows that a small run trains on and is tested on."""

import pytest

from tests.helpers.verl_runs import ROWS, write_rows


@pytest.fixture
def data(tmp_path, monkeypatch):
    folder = tmp_path / "source"
    folder.mkdir()
    write_rows(folder / "rows.jsonl", ROWS)
    write_rows(folder / "test.jsonl", [row | {"question": row["question"] + " Say it."} for row in ROWS])
    for name, mean in (("prior", 0.5), ("other_prior", 0.25)):
        rate = {"prompt_id": "gsm8k/train/0", "prior_mean": mean, "prior_count": 4}
        write_rows(folder / f"{name}.jsonl", [rate])
    monkeypatch.chdir(folder)
    write_rows(folder / "other.jsonl", [row | {"question": "Now: " + row["question"]} for row in ROWS])
    return folder
