"""A log that is being written, read bit by bit: the same completions as `read_log` finds in the end, each once."""

import csv
import io
import json
import os
import time

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat import read_log
from kaestat.watch import Feed, feed, growing_file

ROWS = [(f"why {k % 5}?", k // 8, float(k % 3 == 0)) for k in range(64)]


def everything(source: Feed, *, last: bool = False) -> list:
    """All rows that a feed has at once, as (prompt, step, reward)."""
    found, more = [], True
    while more:
        reading = source.read(last=last)
        more = reading.more
        found += [] if reading.log is None else rows_of(reading.log)
    return found


def rows_of(log) -> list:
    frame = log.frame
    prompts = [log.prompts[code] for code in frame["prompt"]]
    return list(zip(prompts, frame["step"].tolist(), frame["reward"].tolist(), strict=True))


def csv_text(rows) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["prompt", "step", "reward"])
    writer.writerows(rows)
    return buffer.getvalue()


def jsonl_text(rows) -> str:
    return "".join(json.dumps({"prompt": p, "step": s, "reward": r}) + "\n" for p, s, r in rows)


TEXTS = {"run.csv": csv_text, "run.jsonl": jsonl_text}
PROMPT = st.text(st.sampled_from('ab,"\n é'), min_size=1, max_size=6).map(lambda text: f"p{text}p")


@pytest.mark.parametrize("name", TEXTS)
@given(prompts=st.lists(PROMPT, min_size=1, max_size=12), cuts=st.lists(st.floats(0, 1), max_size=8))
def test_a_file_that_grows_at_any_byte_gives_each_completion_once(tmp_path_factory, name, prompts, cuts):
    content = TEXTS[name]([(p, k // 3, float(k % 2)) for k, p in enumerate(prompts)]).encode()
    path = tmp_path_factory.mktemp("growing") / name
    source, found = Feed(path), []
    for cut in sorted({*(int(cut * len(content)) for cut in cuts), len(content)}):
        path.write_bytes(content[:cut])
        found += everything(source)
    assert sorted(found) == sorted(rows_of(read_log(path)))
    assert everything(source) == []


@pytest.mark.parametrize("name", TEXTS)
def test_a_row_without_its_line_break_waits_until_the_last_look(tmp_path, name):
    path = tmp_path / name
    path.write_text(TEXTS[name](ROWS).rstrip("\n"))
    source = Feed(path)
    assert sorted(everything(source)) == sorted(ROWS[:-1]) and everything(source) == []
    assert everything(source, last=True) == [ROWS[-1]]


@pytest.mark.parametrize(("name", "torn"), [("run.csv", "why 1?,9"), ("run.jsonl", '{"prompt": "why", "st')])
def test_a_torn_last_row_is_left_out_and_told_of(tmp_path, name, torn):
    path = tmp_path / name
    path.write_text(TEXTS[name](ROWS) + torn)
    source = Feed(path)
    assert len(rows_of(source.read(last=True).log)) == len(ROWS)
    reading = source.read(last=True)
    assert reading.log is None and "left out" in reading.waiting and str(path) in reading.waiting


def test_invalid_rows_are_set_aside_and_the_first_is_named(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text(csv_text(ROWS))
    source = Feed(path)
    everything(source)
    with open(path, "a") as file:
        file.write("why?,9,1\nwhy?,9,much\nwhy?,9,0\nwhy?,9,1,extra\n,9,1\nwhy?,ten,1\nwhy?,10,1\n")
    reading = source.read()
    assert rows_of(reading.log) == [("why?", 9, 1.0), ("why?", 9, 0.0), ("why?", 10, 1.0)]
    assert reading.left_out == 4
    assert reading.first.startswith(f"line {len(ROWS) + 3}: reward is 'much'; a reward must be")


@pytest.mark.parametrize(
    ("name", "row", "left_out"),
    [
        ("run.csv", "café,3,1\n".encode("latin-1"), "not UTF-8"),
        ("run.csv", b"," * 30_000 + b"\n", "saw 30001"),
        ("run.jsonl", b"[" * 100_000 + b"\n", "recursion depth"),
        ("run.jsonl", b'\xef\xbb\xbf{"prompt": "joined", "step": 0, "reward": 1}\n', None),
    ],
)
def test_a_row_of_strange_bytes_is_not_the_end_and_takes_no_time(tmp_path, name, row, left_out):
    path, rows = tmp_path / name, TEXTS[name](ROWS).encode().splitlines(keepends=True)
    path.write_bytes(b"".join([*rows[:20], row, *rows[20:]]))
    begin = time.process_time()
    reading = Feed(path).read()
    assert len(rows_of(reading.log)) == len(ROWS) + (left_out is None) and reading.left_out == (left_out is not None)
    assert left_out is None or (reading.first.startswith("line 21: ") and left_out in reading.first)
    assert time.process_time() - begin < 10  # of the commas pandas made an index in half a minute


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kept", [0, 20])
def test_a_log_that_is_cut_or_overwritten_begins_anew(tmp_path, name, kept):
    path = tmp_path / name
    path.write_text(TEXTS[name](ROWS))
    source = Feed(path)
    everything(source)
    other = [(p, s, 1 - r) for p, s, r in ROWS[: kept or None]]
    path.write_text(TEXTS[name](other))
    reading = source.read()
    assert reading.anew and rows_of(reading.log) == rows_of(read_log(path))
    assert not source.read().anew


def test_long_files_are_read_by_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(growing_file, "CHUNK", 64)
    path = tmp_path / "run.csv"
    long = ("why " * 40, 9, 1.0)  # longer than a piece
    path.write_text(csv_text([*ROWS, long]))
    source, pieces = Feed(path), 0
    while source.read().more:
        pieces += 1
    assert pieces > 10 and sorted(everything(Feed(path))) == sorted(rows_of(read_log(path)))


def test_what_is_not_there_yet_is_waited_for(tmp_path):
    path = tmp_path / "run.csv"
    source = Feed(path)
    assert "no such file or folder yet" in source.read().waiting
    path.write_text("")
    assert "nothing is in it" in source.read().waiting
    path.write_text("prompt,step,rew")
    assert source.read().log is None
    path.write_text("prompt,step,reward\n")
    assert source.read().log is None
    path.write_text("prompt,step,reward\na,0,1\n")
    assert rows_of(source.read().log) == [("a", 0, 1.0)]


def test_a_log_that_is_deleted_is_waited_for_and_the_next_one_read_anew(tmp_path):
    path = write(tmp_path / "run.csv", csv_text(ROWS))
    source = Feed(path)
    everything(source)
    path.unlink()
    assert "is no more" in source.read().waiting
    write(path, csv_text(ROWS[:8]))
    reading = source.read()
    assert reading.anew and len(rows_of(reading.log)) == 8


def test_a_format_that_cannot_be_told_is_an_error_at_the_last_look_only(tmp_path):
    path = tmp_path / "run.txt"
    path.write_text("something\n")
    assert "cannot tell the format" in Feed(path).read().waiting
    with pytest.raises(ValueError, match="cannot tell the format"):
        Feed(path).read(last=True)
    with pytest.raises(ValueError, match="unknown hint 'colour'"):
        Feed(write(tmp_path / "run.csv", csv_text(ROWS)), colour="red").read()


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["run.parquet", "run.json", "run.csv.gz"])
def test_files_that_are_written_as_a_whole_are_read_again_when_they_change(tmp_path, name):
    path = tmp_path / name

    def save(rows):
        frame = pd.DataFrame(rows, columns=["prompt", "step", "reward"])
        if name.endswith("parquet"):
            frame.to_parquet(path)
        elif name.endswith("gz"):
            frame.to_csv(path, index=False)
        else:
            frame.to_json(path, orient="records")

    save(ROWS[:10])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    source = Feed(path)
    assert source.read().log is None
    path.write_bytes(whole)
    first = source.read()
    assert not first.anew and rows_of(first.log) == rows_of(read_log(path))
    assert source.read().log is None
    save(ROWS)
    again = source.read()
    assert again.anew and len(rows_of(again.log)) == len(ROWS)


def dump(folder, step, name="{step}.jsonl", scores=(1.0, 0.0)):
    lines = [json.dumps({"input": "why?", "output": "so", "score": score, "step": step}) for score in scores]
    path = folder / name.format(step=step)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_folder_of_rollouts_is_read_file_by_file_one_behind_the_newest(tmp_path):
    source = Feed(tmp_path / "rollouts")
    assert "no such file" in source.read().waiting
    (tmp_path / "rollouts").mkdir()
    assert "empty" in source.read().waiting
    folder = tmp_path / "rollouts"
    dump(folder, 9)
    assert source.read().log is None
    dump(folder, 10)
    reading = source.read()
    assert reading.whole_steps and rows_of(reading.log) == [("why?", 9, 1.0), ("why?", 9, 0.0)]
    dump(folder, 11)
    dump(folder, 12)
    assert [row[1] for row in everything(source)] == [10, 10, 11, 11]
    assert [row[1] for row in everything(source, last=True)] == [12, 12]


def test_a_half_written_file_is_waited_for_and_one_that_stays_so_is_left_out(tmp_path):
    dump(tmp_path, 1)
    torn = dump(tmp_path, 2)
    torn.write_text(torn.read_text()[:-9])
    dump(tmp_path, 3)
    source = Feed(tmp_path)
    assert [row[1] for row in rows_of(source.read().log)] == [1, 1]
    assert "cut off" in source.read().waiting
    left = source.read()
    assert [row[1] for row in rows_of(left.log)] == [2] and left.left_out == 1
    assert left.first.startswith("2.jsonl, line 2: is cut off")
    dump(tmp_path, 4)
    assert [row[1] for row in everything(source)] == [3, 3]


def test_a_first_file_that_stays_unreadable_is_an_error_at_the_last_look_only(tmp_path):
    dump(tmp_path, 1)
    source = Feed(tmp_path, reward="acc")
    with pytest.raises(ValueError, match="no column 'acc'"):
        source.read(last=True)
    dump(tmp_path, 2)
    source = Feed(tmp_path, reward="acc")
    assert "no column 'acc'" in source.read().waiting
    assert source.read().first.startswith("1.jsonl: ")


def test_a_run_that_writes_an_old_step_again_begins_anew(tmp_path):
    for step in (1, 2, 3):
        dump(tmp_path, step)
    source = Feed(tmp_path)
    everything(source)
    os.utime(dump(tmp_path, 2, scores=(1.0, 1.0)), ns=(1, 1))
    reading = source.read()
    assert reading.anew and not reading.more
    assert rows_of(reading.log) == [("why?", 1, 1.0), ("why?", 1, 0.0), ("why?", 2, 1.0), ("why?", 2, 1.0)]


def test_completions_that_trl_logs_again_count_once(tmp_path):
    folder = tmp_path / "completions"
    folder.mkdir()
    for step, rewards in ((1, [1.0, 0.0]), (2, [1.0, 0.0]), (3, [1.0, 0.0]), (4, [0.0, 0.0]), (5, [1.0, 1.0])):
        table = {"step": step, "prompt": "why?", "completion": [f"{rewards}", "so"], "accuracy": rewards}
        pd.DataFrame({**table, "advantage": 0.0}).to_parquet(folder / f"completions_{step:05d}.parquet")
    source = Feed(tmp_path)
    found = everything(source, last=True)
    assert found == rows_of(read_log(tmp_path))
    assert [step for _, step, _ in found] == [1, 1, 4, 4, 5, 5]


def test_formats_that_grow_are_formats(tmp_path):
    from kaestat.logs.readers import FORMATS

    assert set(feed.GROWING) <= FORMATS.keys()
