"""Tables in text with any delimiter, in JSON, and as Weights & Biases exports them."""

import gzip
import json
from contextlib import nullcontext

import pytest

from kaestat import read_log
from kaestat.logs.readers.csv_file import delimiter

ROWS = [("why, exactly?", 0, "1"), ("why, exactly?", 0, "0.5"), ("how;|\t", 3, "0")]


def table(sep: str, names=("prompt", "step", "reward"), rows=ROWS) -> str:
    lines = [names, *((f'"{prompt}"', str(step), reward) for prompt, step, reward in rows)]
    return "".join(sep.join(line) + "\n" for line in lines)


def check(log) -> None:
    assert log.prompts == [ROWS[0][0], ROWS[2][0]]
    assert log.frame["step"].tolist() == [0, 0, 3] and log.frame["reward"].tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("name", ["run.csv", "run.tsv", "run.csv.gz", "run.tsv.gz"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_delimiter_is_found_whatever_the_name(tmp_path, name, sep, end):
    text = table(sep).replace("\n", end).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    check(read_log(tmp_path / name))


def test_decimal_commas_go_with_semicolons(tmp_path):
    (tmp_path / "run.csv").write_text(table(";").replace("0.5", "0,5"))
    check(read_log(tmp_path / "run.csv"))


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("prompt|id,step|a,reward|b", "x|y,0|1,1|2", ","),  # the name's own parts it into enough columns
        ("prompt;step;reward (0,1)", "x;0;1", ";"),
        ("prompt;step;reward", "x;0;1;2", ","),  # a row of another width: no table of this delimiter
        ("prompt", "x;0;1", ","),
        ('"a;b;c;d",step,reward', "x,0,1", ","),
    ],
)
def test_another_delimiter_is_taken_only_where_it_makes_a_table(tmp_path, header, row, expected):
    (tmp_path / "run.csv").write_text(f"{header}\n{row}\n")
    assert delimiter(tmp_path / "run.csv") == expected


def test_a_list_of_records_is_a_log(tmp_path):
    records = [{"query": prompt, "step": step, "reward": float(reward), "x": None} for prompt, step, reward in ROWS]
    (tmp_path / "run.json").write_text(json.dumps(records))
    check(read_log(tmp_path / "run.json"))
    (tmp_path / "run.json.gz").write_bytes(gzip.compress(json.dumps(records, indent=2).encode()))
    check(read_log(tmp_path / "run.json.gz"))


def wandb_table(rows=ROWS) -> dict:
    data = [[step, prompt, float(reward)] for prompt, step, reward in rows]
    return {"columns": ["Step", "Prompt", "score"], "data": data, "ncols": 3, "nrows": len(rows)}


def test_a_table_of_wandb_is_a_log(tmp_path):
    path = tmp_path / "completions_4_ab12.table.json"
    path.write_text(json.dumps(wandb_table()))
    check(read_log(path))
    path.write_text(json.dumps({"_type": "table"} | wandb_table(), indent=1))
    check(read_log(path))


def test_accuracies_of_a_prompt_called_columns_stay_accuracies(tmp_path):
    (tmp_path / "acc.json").write_text(json.dumps({"columns": [0.25, 0.5], "data": [1.0, 0.0]}))
    assert read_log(tmp_path / "acc.json").prompts == ["columns", "data"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "holds no rows"),
        ('[{"prompt": "a", "step": 0, "reward": 1}, {"prompt": "a"}]', "row 2: step is missing"),
        ('[{"prompt": "a", "step": 0, "reward": 1}', "is not complete JSON"),
        ('{"columns": ["prompt", "step", "reward"], "data": [["a", 0, 1], ["a", 0]]}', "row 2: must be a list of 3"),
        ('{"columns": ["prompt", "step", "reward"], "data": [["a", 0, "x"]]}', "row 1: reward is 'x'"),
        ('{"columns": ["prompt", 3], "data": [["a", 0]]}', "must be different texts"),
        ('{"columns": ["prompt", "step", "reward"]}', 'the lists "columns" and "data"'),
    ],
)
def test_bad_tables_in_json_are_refused_with_the_record(tmp_path, content, words):
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(ValueError) as caught:
        read_log(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(("length", "refused"), [("1.024", True), (" 2.000.000", True), ("1.5", False), ("987", False)])
def test_points_that_may_part_thousands_are_refused(tmp_path, length, refused):
    file = tmp_path / "log.csv"
    file.write_text(f"prompt;step;reward;length\na;0;1;{length}\na;0;0;987\n")
    with pytest.raises(ValueError, match="between thousands") if refused else nullcontext():
        read_log(file)
