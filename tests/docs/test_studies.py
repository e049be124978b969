"""The committed tables that pages quote from `make reproduce` are those that its studies give with the default seed."""

import json
from pathlib import Path

import pandas as pd
import pytest

from paper_figures.report import reproduce as report_module
from paper_figures.report.kept import QUOTED, keep
from paper_figures.report.reproduce import reproduce
from paper_figures.report.sections import SECTIONS

KEPT = Path(__file__).parents[2] / "results" / "reproduced"
WANTED = [section for section in SECTIONS if set(section.csv) & set(QUOTED)]


@pytest.mark.slow
def test_the_committed_tables_are_those_of_the_studies(tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "log_sections", lambda data, seed: ())  # logs are no study
    assert not reproduce(tmp_path / "report", jobs=1, sections=WANTED).failures
    keep(tmp_path / "report", tmp_path / "kept")
    made = [path.name for path in sorted((tmp_path / "kept").glob("*.csv*"))]
    assert made == [path.name for path in sorted(KEPT.glob("*.csv*"))] and len(made) == len(QUOTED)
    for name in made:
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "kept" / name), pd.read_csv(KEPT / name), rtol=1e-4)


def test_a_report_that_is_not_whole_is_not_kept(tmp_path):
    for scale, failures in ((0.1, []), (1.0, ["study rates"])):
        (tmp_path / "provenance.json").write_text(json.dumps({"scale": scale, "failures": failures}))
        with pytest.raises(ValueError, match="keep whole ones"):
            keep(tmp_path, tmp_path / "kept")
