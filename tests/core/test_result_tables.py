"""Tables of results: one file, the same bytes each time, found compressed or not."""

import pandas as pd
import pytest

from kaestat.core.result_tables import table_file, write_table

FRAME = pd.DataFrame({"name": ["a", "b"], "value": [1 / 3, 2.0]})


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
def test_a_table_is_found_under_its_plain_name_with_the_digits_asked_for(tmp_path, name):
    write_table(tmp_path / name, FRAME, digits=3)
    first = (tmp_path / name).read_bytes()
    write_table(tmp_path / name, FRAME, digits=3)
    assert (tmp_path / name).read_bytes() == first
    assert table_file(tmp_path / "rows.csv") == tmp_path / name
    assert pd.read_csv(table_file(tmp_path / "rows.csv"))["value"].tolist() == [0.333, 2.0]


@pytest.mark.parametrize("names", [("rows.csv", "rows.csv.gz"), ("rows.csv.gz", "rows.csv")])
def test_a_table_written_again_in_the_other_form_leaves_no_stale_copy(tmp_path, names):
    for value, name in enumerate(names):
        write_table(tmp_path / name, FRAME.assign(value=value))
    assert [each.name for each in tmp_path.iterdir()] == [names[1]]
    assert pd.read_csv(table_file(tmp_path / "rows.csv"))["value"].tolist() == [1, 1]
