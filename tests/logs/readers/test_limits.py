"""Files that expand to far more than they are: refused before, or on the way, with what to do."""

import gzip

import pandas as pd
import pytest

from kaestat import read_log
from kaestat.logs.readers import limits, text_file

MEGABYTE = 2**20
ROW = b"prompt,0,1\n"
LINE = b'{"prompt": "a", "step": 0, "reward": 1}\n'
FILES = {
    "many_rows.csv.gz": b"prompt,step,reward\n" + ROW * (4 * MEGABYTE // len(ROW)),
    "one_field.csv.gz": b"prompt,step,reward\n" + b"a" * 4 * MEGABYTE,
    "header.csv.gz": b"a" * 4 * MEGABYTE,
    "many_rows.jsonl.gz": LINE * (4 * MEGABYTE // len(LINE)),
    "one_line.jsonl.gz": b"{" + b" " * 4 * MEGABYTE + b"}",
    "accuracies.json.gz": b'{"a": [' + b"0," * 2 * MEGABYTE + b"0]}",
    "records.json.gz": b"[" + b"{}," * (4 * MEGABYTE // 3) + b"{}]",
}


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(limits, "ALWAYS_ALLOWED", MEGABYTE)


@pytest.mark.parametrize("name", FILES)
def test_a_packed_file_that_holds_too_much_is_refused_on_the_way(tmp_path, small_limits, monkeypatch, name):
    read = []
    once = limits.check_unpacked
    monkeypatch.setattr(text_file, "check_unpacked", lambda *a: (read.append(a[2]), once(*a)))
    path = tmp_path / name
    path.write_bytes(gzip.compress(FILES[name]))
    with pytest.raises(
        ValueError, match=r"compressed bytes hold .* over the limit of .* unpack it with gzip -d"
    ) as caught:
        read_log(path)
    assert str(path) in str(caught.value)
    assert max(read) <= 2 * MEGABYTE  # of 4


def test_the_same_file_unpacked_has_no_limit(tmp_path, small_limits):
    (tmp_path / "many_rows.csv").write_bytes(FILES["many_rows.csv.gz"])
    assert len(read_log(tmp_path / "many_rows.csv").frame) == 4 * MEGABYTE // len(ROW)


def test_a_large_log_that_packs_as_logs_do_has_no_limit(tmp_path, small_limits):
    text = "prompt,step,reward\n" + "".join(f"question {k * 7919 % 1000},{k // 100},{k % 2}\n" for k in range(100_000))
    assert len(text) > 1.5 * MEGABYTE
    (tmp_path / "run.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert len(read_log(tmp_path / "run.csv.gz").frame) == 100_000


def test_parquet_texts_that_expand_too_far_are_refused_before(tmp_path, small_limits):
    frame = pd.DataFrame({"prompt": [f"{'a' * 100_000}{k}" for k in range(40)], "step": 0, "reward": 1.0})
    path = tmp_path / "run.parquet"
    frame.to_parquet(path, compression="zstd", use_dictionary=False)
    with pytest.raises(ValueError, match=r"over the limit of .* rewrite it uncompressed"):
        read_log(path)
    frame.to_parquet(path, compression=None, use_dictionary=False)
    assert len(read_log(path).prompts) == 40
