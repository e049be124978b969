"""CSV files of very many columns are read by the names needed; rows with too many fields are still refused."""

import pandas as pd
import pytest

from kaestat import read_log
from kaestat.logs.readers import csv_file

ROWS = [("p0", 0, 1), ("p0", 0, 0), ('p "1", the first', 1, 1)]


def written(path, n_columns, rows=ROWS, extra=()):
    names = ["prompt", "step", "reward", *(f"metric_{k}" for k in range(n_columns))]
    pd.DataFrame([[*row, *[0.5] * n_columns] for row in rows], columns=names).to_csv(path, index=False)
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in extra)
    return path


def test_a_wide_file_gives_the_log_of_a_narrow_one(tmp_path):
    wide, narrow = read_log(written(tmp_path / "wide.csv", csv_file._WIDE)), read_log(written(tmp_path / "n.csv", 1))
    pd.testing.assert_frame_equal(wide.frame, narrow.frame)
    assert wide.prompts == narrow.prompts


def test_columns_that_are_not_needed_are_not_parsed(tmp_path, monkeypatch):
    given = []
    plain = pd.read_csv
    monkeypatch.setattr(pd, "read_csv", lambda *args, **options: given.append(options) or plain(*args, **options))
    read_log(written(tmp_path / "wide.csv", csv_file._WIDE))
    assert [sorted(options["usecols"]) for options in given] == [["prompt", "reward", "step"]]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:2]], ids=["after a quoted field", "without quotes"])
def test_a_row_with_a_field_too_many_is_refused_with_its_line(tmp_path, rows):
    path = written(tmp_path / "wide.csv", csv_file._WIDE, rows, extra=["p2,2,1," + "0.5," * csv_file._WIDE + "7"])
    line, fields = len(rows) + 2, csv_file._WIDE + 4
    with pytest.raises(ValueError, match=f"Expected {fields - 1} fields in line {line}, saw {fields}"):
        read_log(path)
