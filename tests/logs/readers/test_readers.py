"""Long tables in CSV, JSONL and Parquet, the choice of a format, and what happens to bad files."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import RewardLog
from kaestat.logs.readers import FORMATS, read_log
from tests.helpers.log_rows import rows

ROWS = [
    {"prompt": "why", "step": 0, "reward": 1.0},
    {"prompt": "why", "step": 0, "reward": 0.0},
    {"prompt": "how, exactly?", "step": 3, "reward": 0.1},
]


def write_csv(path: Path, records: list[dict]) -> Path:
    pd.DataFrame(records).to_csv(path, index=False)
    return path


def write_jsonl(path: Path, records: list[dict]) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def write_parquet(path: Path, records: list[dict]) -> Path:
    pd.DataFrame(records).to_parquet(path)
    return path


WRITERS = {
    "csv": write_csv,
    "csv.gz": write_csv,
    "jsonl": write_jsonl,
    "jsonl.gz": write_jsonl,
    "parquet": write_parquet,
}


def rows_of(log: RewardLog) -> list[tuple]:
    frame = log.frame
    columns = ([log.prompts[code] for code in frame["prompt"]], frame["step"], frame["reward"], frame["group"])
    return list(zip(*columns, strict=True))


def refusal(path: Path, **arguments) -> str:
    with pytest.raises(ValueError) as caught:
        read_log(path, **arguments)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.fixture(params=WRITERS)
def write(request, tmp_path):
    """Write records in each of the long formats."""
    return lambda records: WRITERS[request.param](tmp_path / f"run.{request.param}", records)


def test_long_tables_give_their_rows(write):
    log = read_log(write(ROWS))
    assert rows_of(log) == [("why", 0, 1.0, 0), ("why", 0, 0.0, 0), ("how, exactly?", 3, 0.1, 0)]
    assert not log.has_groups and log.time_axis == "step"


def test_the_group_column_is_read_if_there_is_one(write):
    log = read_log(write([row | {"group": f"g{i}"} for i, row in enumerate(ROWS)]))
    assert log.has_groups and log.group_sizes.tolist() == [1, 1, 1]


def test_hints_name_columns_and_win_over_usual_names(write):
    records = [row | {"p": "x", "s": 7, "r": 0.5, "g": "one"} for row in ROWS]
    assert rows_of(read_log(write(records), prompt="p", step="s", reward="r", group="g")) == [("x", 7, 0.5, 0)] * 3


@given(columns=rows(), kind=st.sampled_from(["csv", "jsonl", "parquet"]))
def test_a_written_log_reads_back_bit_for_bit(tmp_path_factory, columns, kind):
    prompt, step, reward, group = columns
    records = [
        {"prompt": f'{p!r},\n"', "step": s, "reward": r} | ({} if group is None else {"group": f"g{g}"})
        for p, s, r, g in zip(prompt, step, reward, group or [0] * len(prompt), strict=True)
    ]
    path = WRITERS[kind](tmp_path_factory.mktemp("log") / f"run.{kind}", records)
    expected = RewardLog([r["prompt"] for r in records], step, reward, group)
    assert rows_of(read_log(path)) == rows_of(expected)


def test_prompts_in_csv_stay_text_character_for_character(tmp_path):
    prompts = ["001", "1", "1.0", "NA", "nan", "None", "null", " x", "a\nb", 'say "hi"', "naïve"]
    path = write_csv(tmp_path / "run.csv", [{"prompt": p, "step": 0, "reward": 1} for p in prompts])
    assert read_log(path).prompts == prompts


def test_numbers_and_conversations_are_prompts_in_json_and_parquet(tmp_path):
    talk = [{"role": "user", "content": "why"}]
    swapped = [{"content": "why", "role": "user", "tool_calls": None}]
    for write, name in ((write_jsonl, "run.jsonl"), (write_parquet, "run.parquet")):
        path = write(tmp_path / name, [{"prompt": p, "step": 0, "reward": 1} for p in (talk, swapped)])
        assert read_log(path).prompts == ['[{"content": "why", "role": "user"}]']
        path = write(tmp_path / name, [{"prompt": p, "step": 0, "reward": 1} for p in (7, 8, 7)])
        assert read_log(path).prompts == ([7, 8] if name == "run.parquet" else ["7", "8"])


def test_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path):
    path = tmp_path / "run.csv"
    path.write_bytes("\ufeffprompt,step,reward\r\n\r\na,0,1\r\n\r\nb,2,0\r\n".encode())
    assert rows_of(read_log(path)) == [("a", 0, 1.0, 0), ("b", 2, 0.0, 0)]
    path = tmp_path / "run.jsonl"
    path.write_text('{"prompt": "a", "step": 0, "reward": 1}\n\n{"prompt": "b", "step": 2, "reward": 0}')
    assert rows_of(read_log(path)) == [("a", 0, 1.0, 0), ("b", 2, 0.0, 0)]


def test_a_byte_order_mark_where_files_were_joined_is_no_part_of_a_prompt(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("prompt,step,reward\na,0,1\n\ufeffa,1,0\n\ufeffb,1,1\n", encoding="utf-8")
    assert rows_of(read_log(path)) == [("a", 0, 1.0, 0), ("a", 1, 0.0, 0), ("b", 1, 1.0, 0)]


def test_many_rows_are_read_whatever_the_chunks(tmp_path):
    n = 450_000  # several chunks; the last one changes the reward's type
    frame = pd.DataFrame({"prompt": np.arange(n) % 7, "step": np.arange(n) // 1000, "reward": np.arange(n) % 2})
    frame["reward"] = frame["reward"].astype(object)
    frame.loc[n - 1, "reward"] = "0.5"
    frame.to_csv(tmp_path / "run.csv", index=False)
    log = read_log(tmp_path / "run.csv")
    assert len(log.frame) == n and log.frame["reward"].sum() == (n - 2) // 2 + 0.5


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("reward", ["oops", None, float("nan"), float("inf"), [1.0], 10**400]),
        ("step", [0.5, -1, float("nan"), None, 1e12, "soon"]),
        ("prompt", [None, "", float("nan")]),
        ("group", [None, "", float("nan")]),
    ],
)
def test_a_bad_value_is_refused_with_its_line_or_row(tmp_path, column, values):
    for value in values:
        records = [row | {"group": "g"} for row in ROWS]
        records.insert(2, records[0] | {column: value})
        assert f"line 3: {column} is" in refusal(write_jsonl(tmp_path / "run.jsonl", records))
        if isinstance(value, float):
            assert f"row 3: {column} is" in refusal(write_parquet(tmp_path / "run.parquet", records))


@pytest.mark.parametrize(("value", "sep"), [("", ","), ("x", "\t"), ("nan", ","), ("inf", ";"), ("1e999", ",")])
def test_a_bad_reward_in_csv_is_refused_with_its_line_even_behind_line_breaks(tmp_path, value, sep):
    path = tmp_path / "run.csv"
    path.write_text(f'prompt,step,reward\n"a\nb",0,1\n\nc,0,{value}\nd,0,1\n'.replace(",", sep))
    assert "line 5: reward is" in refusal(path)


@pytest.mark.parametrize("missing", ["prompt", "step", "reward"])
def test_a_missing_column_is_refused_with_what_was_found_and_the_hint_to_give(write, missing):
    words = refusal(write([{k: v for k, v in row.items() if k != missing} | {"other": 1} for row in ROWS]))
    assert f"no {missing} column" in words and "other" in words and f"{missing}=" in words


def test_a_random_uid_is_never_taken_for_the_prompt(write):
    words = refusal(write([{"uid": f"{i:x}", "step": 0, "reward": 1} for i in range(3)]))
    assert "uid is drawn anew at every step" in words


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        pytest.param("run.csv", "prompt,step,reward,reward\na,0,1,0\n", "'reward' comes twice", id="column twice"),
        pytest.param("run.csv", "prompt,step,reward\na,0,1\nb,c,0,1\n", "quotes", id="row longer than the header"),
        pytest.param("run.csv", "prompt,step,reward\na,b,0,1\n", "quotes", id="first row longer than the header"),
        pytest.param("run.csv", 'prompt,step,reward\n"a,0,1\nb,0,1\n', "; a quote is never closed", id="open quote"),
        pytest.param("run.jsonl", "[1, 2]\n", "line 1: must be a JSON object, got list", id="line that is no object"),
    ],
)
def test_text_that_is_no_table_is_refused(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    assert words in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl", "run.json", "1.jsonl"])
def test_an_empty_file_is_refused(tmp_path, name):
    (tmp_path / name).write_text("")
    assert "empty" in refusal(tmp_path / name)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_without_rows_is_refused(tmp_path, kind):
    path = tmp_path / f"run.{kind}"
    frame = pd.DataFrame(ROWS)[:0]
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    assert "no rows" in refusal(path)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.95])
@pytest.mark.parametrize("kind", ["csv.gz", "jsonl.gz", "parquet"])
def test_a_torn_file_is_refused(tmp_path, kind, kept):
    rng = np.random.default_rng(0)
    path = WRITERS[kind](tmp_path / f"run.{kind}", [row | {"reward": rng.random()} for row in ROWS * 300])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    assert "cut short" in refusal(path)


def test_a_last_line_cut_off_in_the_middle_is_refused_with_its_number(tmp_path):
    path = write_jsonl(tmp_path / "run.jsonl", ROWS)
    path.write_text(path.read_text()[:-9])
    words = refusal(path)
    assert "line 3: is cut off in the middle" in words and "Remove this line" in words


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl", "run.json"])
def test_text_that_is_not_utf8_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes("prompt,step,reward\nna\xefve,0,1\n".encode("latin-1"))
    assert "not UTF-8" in refusal(tmp_path / name)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_log(tmp_path / "nothing.csv")


def test_an_unknown_format_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match=f"unknown 'xml'; choose one of auto, {', '.join(FORMATS)}"):
        read_log(write_csv(tmp_path / "run.csv", ROWS), format="xml")


@pytest.mark.parametrize("format", FORMATS)
def test_an_unknown_hint_lists_the_known_ones(tmp_path, format):
    with pytest.raises(ValueError, match=f"unknown hint 'colour': format '{format}' takes {FORMATS[format].hints[0]}"):
        read_log(tmp_path if FORMATS[format].takes_folder else write_csv(tmp_path / "run.csv", ROWS), format, colour=1)


def test_an_undecided_format_says_what_was_found_and_what_to_pass(tmp_path):
    path = write_csv(tmp_path / "run.txt", ROWS)
    words = refusal(path)
    assert "ends in '.txt'" in words and "format=" in words and all(name in words for name in FORMATS)
    assert "folder with run.txt" in refusal(tmp_path)
    path.unlink()
    assert "empty folder" in refusal(tmp_path)


def test_a_given_format_overrides_the_name(tmp_path):
    assert len(read_log(write_csv(tmp_path / "run.txt", ROWS), format="csv").frame) == 3


def test_a_folder_is_refused_by_formats_of_one_file(tmp_path):
    assert "reads one file" in refusal(tmp_path, format="csv")


def test_without_pyarrow_parquet_names_the_extra_to_install(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "run.parquet", ROWS)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"kaestat\[parquet\]"):
        read_log(path)
    assert len(read_log(write_csv(tmp_path / "run.csv", ROWS)).frame) == 3
