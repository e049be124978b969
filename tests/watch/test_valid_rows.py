"""The valid rows of a piece of text, whatever stands between them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaestat.watch.valid_rows import TextRows

CSV = TextRows("run.csv", "csv", {}, b"prompt,step,reward\n", b",")
JSONL = TextRows("run.jsonl", "jsonl", {})


def rows_of(found):
    frame = found.log.frame
    return [(found.log.prompts[code], step) for code, step in zip(frame["prompt"], frame["step"], strict=True)]


def test_rows_behind_an_open_quote_are_read():
    """By the rules of CSV the quote reaches to the next one, three rows on, and takes all between for a prompt."""
    data = b'a,0,1\n"open\nb,1,0\nc,2,1\n"d, ""the\n4th""",3,1\ne,4,0\n'
    found = CSV.read(data, 2)
    assert rows_of(found) == [("a", 0), ("b", 1), ("c", 2), ('d, "the\n4th"', 3), ("e", 4)]
    assert found.left_out == 1 and found.first.startswith("line 3: is not proper CSV")
    assert CSV.whole(data) == len(data)


def test_a_text_of_several_lines_is_one_row_also_where_it_is_invalid():
    data = b'"a\nb,1,1\nc",0,much\nd,1,1\n'
    found = CSV.read(data, 7)
    assert rows_of(found) == [("d", 1)]
    assert found.left_out == 1 and found.first.startswith("line 7: reward is 'much'")


def test_every_bad_row_is_counted_and_the_first_is_named():
    bad = [
        b"garbage\n",
        b"[]\n",
        b'{"prompt": "a", "step": -1, "reward": 1}\n',
        b'{"prompt": "a", "step": 1}\n',
        b"\xff\n",
    ]
    good = b'{"prompt": "b", "step": 2, "reward": 0.5}\n'
    found = JSONL.read(good + good.join(bad) + good, 11)
    assert len(rows_of(found)) == 6 and found.left_out == 5
    assert found.first.startswith("line 12: ")


def test_nothing_but_bad_rows_is_no_log():
    found = CSV.read(b"a,b,c\nd,e,f\n", 2)
    assert found.log is None and found.left_out == 2 and found.first.startswith("line 2: step is 'b'")


def test_a_log_of_another_kind_is_refused_as_a_whole_and_soon(monkeypatch):
    parsed, calls = TextRows.parsed, []
    monkeypatch.setattr(TextRows, "parsed", lambda self, rows: calls.append(1) or parsed(self, rows))
    with pytest.raises(ValueError, match="no reward column"):
        JSONL.read(b'{"prompt": "a", "step": 1}\n' * 1000, 1)
    assert len(calls) < 40
    calls.clear()
    with pytest.raises(ValueError, match="its first row has no 'length'"):
        JSONL.read(
            b'{"prompt": "a", "step": 1, "reward": 1}\n{"prompt": "a", "step": 1, "reward": 1, "length": 3}\n', 1
        )
    assert len(calls) == 1
    calls.clear()
    good, bad = b'{"prompt": "a", "step": 1, "reward": 1}\n', b'{"prompt": "a", "step": 1}\n'
    assert JSONL.read(good + (bad + good) * 500, 1).left_out == 500
    assert len(calls) < 9  # one row at a time, it takes a hundred times as long
    with pytest.raises(ValueError, match="no reward column"):
        TextRows("run.csv", "csv", {}, b"prompt,step,result\n", b",").read(b"a,0,1\n", 2)


@pytest.mark.parametrize(
    ("rest", "swallows"),
    [
        (b'"open\n' + b"a,0,1\n" * 20, True),
        (b'"open\n' + b"a,0,1\n" * 3, False),  # too few to tell
        (b'"a proof:\n' + b"so it is, and so it was, and\nthen\nno\n" * 9, False),
    ],
)
def test_rows_behind_an_open_quote_are_told_from_a_text(rest, swallows):
    assert CSV.swallows_rows(rest) == swallows


FIELD = st.text(st.sampled_from('ab,"\n '), min_size=1, max_size=8).map(lambda text: f"p{text}p")


@given(prompts=st.lists(FIELD, min_size=1, max_size=8), bad=st.sets(st.integers(0, 8)))
def test_whatever_is_quoted_properly_is_read_and_what_is_bad_between_is_not(prompts, bad):
    data, expected = b"", []
    for step, prompt in enumerate(prompts):
        if step in bad:
            data += b"x,soon,1\n"
        quoted = prompt.replace('"', '""')
        data += f'"{quoted}",{step},1\n'.encode()
        expected.append((prompt, step))
    found = CSV.read(data, 2)
    assert rows_of(found) == expected and found.left_out == len(bad & set(range(len(prompts))))
