"""Readers get files that nobody would write: each is a proper log, or refused by name."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import RewardLog, read_log
from tests.helpers.contract import JUNK, REFUSED, attempt

FOLDER = tempfile.TemporaryDirectory(prefix="kaestat-fuzz-")

TEXTS = ["", "a", "b", " ", "a,b", '"', '""', "\n", "\r", "\x00", "\N{SNOWMAN}", "NA", "nan", "null", "true", "1", "-1",
         "0.5", "1e400", "1e-400", "9" * 5000, "inf", "0x1", "1_0", "[", "{", "a" * 200_000]  # fmt: skip
CELLS = st.sampled_from(TEXTS) | st.text(max_size=4)
NAMES = st.sampled_from(
    ["prompt", "step", "reward", "group", "input", "output", "score", "uid", "advantage", "completion", "prompt.1", "",
     "Unnamed: 0", "global_step", "rewards", " prompt"]
)  # fmt: skip
HINTS = st.dictionaries(
    st.sampled_from(["prompt", "step", "reward", "group", "group_size", "reward_weights", "nonsense"]),
    NAMES | JUNK,
    max_size=2,
)
LEAVES = st.sampled_from([None, True, False, 0, 1, -1, 2**70, 0.5, float("nan"), float("inf"), 10**400, "a", "", "1"])
JSON = st.recursive(
    LEAVES | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def check_file(content: bytes | dict[str, bytes], name: str, hints: dict[str, Any], *, format: str = "auto") -> Any:
    """Write a file (or a folder of files) and read it; whatever comes out is a proper log."""
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        path = Path(folder) / name
        for part, data in content.items() if isinstance(content, dict) else [("", content)]:
            (path / part).parent.mkdir(parents=True, exist_ok=True)
            (path / part).write_bytes(data)
        log = attempt(lambda: read_log(path, format=format, **hints), [str(path), *hints])
    if log is not REFUSED:
        check_log(log)
    return log


def check_log(log: RewardLog) -> None:
    reward = log.frame["reward"].to_numpy()
    assert len(reward) and np.isfinite(reward).all()
    assert (log.frame["step"] >= 0).all()
    assert set(log.frame["prompt"]) == set(range(len(log.prompts)))
    assert len(set(log.prompts)) == len(log.prompts)
    assert log.group_units.counts.sum() == len(reward) and log.n_visits <= len(reward)


@st.composite
def edited(draw, whole: bytes) -> bytes:
    """A proper file with bytes overwritten, cut out and put in; or anything."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.sampled_from([0, 1, 4, 50, 10_000]))] = draw(
            st.binary(max_size=8) | st.sampled_from([b"\x00" * 9, b"[" * 5000, b"9" * 5000, b'"', b"\xff\xfe", b"\n"])
        )
    return bytes(content)


def rows_as_json(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


WHOLE_CSV = b"prompt,step,reward,group\n" + b"".join(b"p%d,%d,%d,g\n" % (k % 3, k // 3, k % 2) for k in range(12))
WHOLE_JSONL = rows_as_json([{"prompt": f"p{k % 3}", "step": k // 3, "reward": k % 2} for k in range(12)])
WHOLE_VERL = rows_as_json([{"input": f"p{k % 3}", "output": "x", "score": k % 2, "step": 1} for k in range(12)])
WHOLE_ACCURACIES = json.dumps({f"p{k}": [0.25, 0.5, 1.0] for k in range(4)}).encode()
WHOLE_RECORDS = json.dumps([{"prompt": f"p{k % 3}", "step": k // 3, "reward": k % 2} for k in range(12)]).encode()
WHOLE_WANDB = json.dumps(
    {"columns": ["prompt", "step", "reward"], "data": [[f"p{k % 3}", k // 3, k % 2] for k in range(12)]}
).encode()


def as_parquet(columns: dict[str, list]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


WHOLE_TRL = as_parquet(
    {
        "step": [1, 1, 1, 1],
        "prompt": ["a", "a", "b", "b"],
        "completion": ["x"] * 4,
        "right": [1.0, 0.0, None, 1.0],
        "advantage": [0.7, -0.7, 0.0, 0.0],
    }
)


@st.composite
def csv_tables(draw) -> bytes:
    names = draw(st.lists(NAMES | CELLS, min_size=1, max_size=4) | st.just(["prompt", "step", "reward"]))
    rows = draw(st.lists(st.lists(CELLS, min_size=1, max_size=5), max_size=4))
    quote = draw(st.booleans())
    cells = ['"' + c.replace('"', '""') + '"' if quote else c for row in rows for c in row]
    parted = draw(st.sampled_from([",", ",", ";", "\t", "|"]))
    lines, at = [parted.join(names)], 0
    for row in rows:
        lines.append(parted.join(cells[at : at + len(row)]))
        at += len(row)
    return draw(st.sampled_from(["\n", "\r\n", "\r"])).join(lines).encode("utf-8", "surrogatepass")


@given(content=csv_tables() | edited(WHOLE_CSV), hints=HINTS, packed=st.booleans())
def test_any_csv_file_is_a_log_or_refused_by_name(content, hints, packed):
    check_file(gzip.compress(content, 0, mtime=0) if packed else content, "log.csv.gz" if packed else "log.csv", hints)


@given(
    content=st.lists(st.dictionaries(NAMES, JSON, max_size=5) | JSON, max_size=4).map(rows_as_json)
    | edited(WHOLE_JSONL),
    hints=HINTS,
)
def test_any_jsonl_file_is_a_log_or_refused_by_name(content, hints):
    check_file(content, "log.jsonl", hints)


@given(
    content=st.dictionaries(
        st.sampled_from(["1.jsonl", "2.jsonl", "10.jsonl", "x.jsonl", "notes.txt", "\N{SUPERSCRIPT TWO}.jsonl"]),
        st.lists(
            st.fixed_dictionaries(
                {"input": LEAVES | JSON, "score": LEAVES | JSON}, optional={"step": LEAVES, "uid": LEAVES}
            ),
            max_size=3,
        ).map(rows_as_json)
        | edited(WHOLE_VERL),
        min_size=1,
        max_size=3,
    ),
    hints=HINTS,
    named=st.booleans(),
)
def test_any_verl_dump_is_a_log_or_refused_by_name(content, hints, named):
    check_file(content, "dump", hints, format="verl" if named else "auto")


@given(
    content=st.dictionaries(st.text(max_size=2), st.lists(LEAVES | st.sampled_from([0.25, 0.5]), max_size=4)).map(
        lambda accuracies: json.dumps(accuracies).encode()
    )
    | JSON.map(lambda value: json.dumps(value).encode())
    | edited(WHOLE_ACCURACIES)
    | st.lists(st.dictionaries(NAMES, LEAVES | JSON, max_size=4), max_size=3).map(
        lambda rows: json.dumps(rows).encode()
    )
    | st.fixed_dictionaries(
        {"columns": st.lists(NAMES | LEAVES, max_size=4), "data": st.lists(st.lists(LEAVES | JSON, max_size=4)) | JSON}
    ).map(lambda table: json.dumps(table).encode())
    | edited(WHOLE_RECORDS)
    | edited(WHOLE_WANDB),
    hints=HINTS,
)
def test_any_json_file_is_a_log_or_refused_by_name(content, hints):
    check_file(content, "log.json", hints)


COLUMN = st.sampled_from(
    [
        lambda n: [1.0] * n,
        lambda n: list(range(n)),
        lambda n: [None] * n,
        lambda n: ["a"] * n,
        lambda n: [b"\xff"] * n,
        lambda n: [True] * n,
        lambda n: [float("nan")] * n,
        lambda n: [float("inf")] * n,
        lambda n: [2**63 - 1] * n,
        lambda n: [-1] * n,
        lambda n: [[{"role": "user", "content": None}]] * n,
        lambda n: [{"a": b"x"}] * n,
        lambda n: pyarrow.array([0] * n, pyarrow.timestamp("ns")),
        lambda n: pyarrow.array([0] * n, pyarrow.duration("s")),
        lambda n: pyarrow.array([1] * n, pyarrow.decimal128(5, 2)),
        lambda n: pyarrow.array(np.ones(n, dtype=np.float16)),
        lambda n: pyarrow.array(["a"] * n).dictionary_encode(),
    ]
)


@st.composite
def parquet_files(draw, names) -> bytes:
    size = draw(st.integers(0, 3))
    columns = {name: draw(COLUMN)(size) for name in draw(names)}
    return as_parquet(columns)


@given(
    content=parquet_files(st.lists(NAMES, min_size=1, max_size=5, unique=True) | st.just(["prompt", "step", "reward"]))
    | edited(WHOLE_TRL),
    hints=HINTS,
)
def test_any_parquet_file_is_a_log_or_refused_by_name(content, hints):
    check_file(content, "log.parquet", hints)


TRL_NAMES = st.just(["step", "prompt", "completion", "right", "format", "advantage"])


@given(
    content=st.dictionaries(
        st.sampled_from([f"completions/completions_{k:05d}.parquet" for k in (1, 2, 100_000)]),
        parquet_files(TRL_NAMES | st.lists(NAMES, min_size=1, max_size=5, unique=True)) | edited(WHOLE_TRL),
        min_size=1,
        max_size=2,
    ),
    hints=HINTS,
)
def test_any_log_of_trl_is_a_log_or_refused_by_name(content, hints):
    check_file(content, "out", hints)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (WHOLE_CSV, "log.csv"),
        (gzip.compress(WHOLE_CSV, mtime=0), "log.csv.gz"),
        (WHOLE_JSONL, "log.jsonl"),
        ({"1.jsonl": WHOLE_VERL}, "dump"),
        (WHOLE_CSV.replace(b",", b"\t"), "log.tsv"),
        (WHOLE_ACCURACIES, "log.json"),
        (WHOLE_RECORDS, "log.json"),
        (WHOLE_WANDB, "log.json"),
        (WHOLE_TRL, "log.parquet"),
        ({"completions/completions_00001.parquet": WHOLE_TRL}, "out"),
    ],
    ids=["csv", "packed csv", "jsonl", "verl", "tsv", "accuracies", "records", "wandb", "parquet", "trl"],
)
def test_the_files_that_the_fuzzer_edits_are_proper_ones(content, name):
    assert check_file(content, name, {}) is not REFUSED
