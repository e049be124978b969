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


def check_file(content: bytes | dict[str, bytes], name: str, hints: dict[str, Any]) -> Any:
    """Write a file (or a folder of files) and read it; whatever comes out is a proper log."""
    with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
        path = Path(folder) / name
        for part, data in content.items() if isinstance(content, dict) else [("", content)]:
            (path / part).parent.mkdir(parents=True, exist_ok=True)
            (path / part).write_bytes(data)
        log = attempt(lambda: read_log(path, **hints), [str(path), *hints])
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
    if draw(st.booleans()):
        rows = [['"' + cell.replace('"', '""') + '"' for cell in row] for row in rows]
    parted = draw(st.sampled_from([",", ",", ";", "\t", "|"]))
    lines = [parted.join(row) for row in (names, *rows)]
    return draw(st.sampled_from(["\n", "\r\n", "\r"])).join(lines).encode("utf-8", "surrogatepass")


COLUMN = st.sampled_from(
    [
        *(lambda n, v=v: [v] * n for v in (1.0, None, "a", b"\xff", True, float("nan"), float("inf"), 2**63 - 1, -1)),
        lambda n: list(range(n)),
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
def parquet_files(draw, usual: list[str]) -> bytes:
    size = draw(st.integers(0, 3))
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True) | st.just(usual))
    return as_parquet({name: draw(COLUMN)(size) for name in names})


def in_folder(names: list[str], files: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[str, bytes]]:
    return st.dictionaries(st.sampled_from(names), files, min_size=1, max_size=3)


def as_json(values: st.SearchStrategy) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: json.dumps(value).encode())


VERL_ROW = st.fixed_dictionaries(
    {"input": LEAVES | JSON, "score": LEAVES | JSON}, optional={"step": LEAVES, "uid": LEAVES}
)
WANDB = st.fixed_dictionaries(
    {"columns": st.lists(NAMES | LEAVES, max_size=4), "data": st.lists(st.lists(LEAVES | JSON, max_size=4)) | JSON}
)
FILES = {  # a name, a proper file or folder of it, and any others
    "csv": ("log.csv", WHOLE_CSV, csv_tables()),
    "packed csv": ("log.csv.gz", gzip.compress(WHOLE_CSV, mtime=0), csv_tables().map(gzip.compress)),
    "tsv": ("log.tsv", WHOLE_CSV.replace(b",", b"\t"), csv_tables()),
    "jsonl": (
        "log.jsonl",
        WHOLE_JSONL,
        st.lists(st.dictionaries(NAMES, JSON, max_size=5) | JSON, max_size=4).map(rows_as_json),
    ),
    "verl": (
        "dump",
        {"1.jsonl": WHOLE_VERL},
        in_folder(
            ["1.jsonl", "2.jsonl", "10.jsonl", "x.jsonl", "notes.txt", "\N{SUPERSCRIPT TWO}.jsonl"],
            st.lists(VERL_ROW, max_size=3).map(rows_as_json) | edited(WHOLE_VERL),
        ),
    ),
    "accuracies": (
        "log.json",
        WHOLE_ACCURACIES,
        as_json(st.dictionaries(st.text(max_size=2), st.lists(LEAVES | st.sampled_from([0.25, 0.5]), max_size=4))),
    ),
    "records": ("log.json", WHOLE_RECORDS, as_json(st.lists(st.dictionaries(NAMES, LEAVES | JSON, max_size=4)) | JSON)),
    "wandb": ("log.json", WHOLE_WANDB, as_json(WANDB)),
    "parquet": ("log.parquet", WHOLE_TRL, parquet_files(["prompt", "step", "reward"])),
    "trl": (
        "out",
        {"completions/completions_00001.parquet": WHOLE_TRL},
        in_folder(
            [f"completions/completions_{k:05d}.parquet" for k in (1, 2, 100_000)],
            parquet_files(["step", "prompt", "completion", "right", "format", "advantage"]) | edited(WHOLE_TRL),
        ),
    ),
}


@pytest.mark.parametrize("kind", FILES)
@given(data=st.data(), hints=HINTS)
def test_any_file_is_a_log_or_refused_by_name(kind, data, hints):
    name, whole, others = FILES[kind]
    check_file(data.draw(others | edited(whole) if isinstance(whole, bytes) else others), name, hints)


@pytest.mark.parametrize("kind", FILES)
def test_the_files_that_the_fuzzer_edits_are_proper_ones(kind):
    name, whole, _ = FILES[kind]
    assert check_file(whole, name, {}) is not REFUSED
