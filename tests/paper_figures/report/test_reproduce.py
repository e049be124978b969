"""``python -m paper_figures``: everything that is promised is there, its numbers agree, and failures are shown."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from typer.testing import CliRunner

from kaestat.datasets import simulated_run
from paper_figures import __main__ as command
from paper_figures.report import logs, reproduce
from paper_figures.report.sections import SECTIONS
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, above, below, equal
from paper_figures.shared.tidy import with_error
from simulations import studies
from tests.helpers.commands import app

SCALE = 0.02
QUICK = tuple(section for section in SECTIONS if section.name in ("sensitivity", "one_shot", "schedule"))


@pytest.fixture(scope="module", autouse=True)
def small_log():
    """The simulated run at a size at which its analysis takes no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "simulated_run", lambda: simulated_run(n_prompts=60, n_epochs=8))
        patch.setattr(logs, "N_BOOT", 40)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole run at a tiny scale."""
    folder = tmp_path_factory.mktemp("reproduce") / "new"
    return reproduce.reproduce(folder, scale=SCALE, jobs=1), folder


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The folder of a run of some sections, which nobody changes."""
    folder = tmp_path_factory.mktemp("quick") / "run"
    assert not reproduce.reproduce(folder, scale=SCALE, seed=0, jobs=1, sections=QUICK).failures
    return folder


@pytest.fixture
def repeated(quick, tmp_path):
    """A copy of that folder, in which the run can be called again."""
    return shutil.copytree(quick, tmp_path / "again")


def tables_of(html):
    """Rows of text cells of every table."""
    tables = BeautifulSoup(html, "html.parser").find_all("table")
    return [[[cell.get_text() for cell in row.select("th, td")] for row in each.select("tr")] for each in tables]


def table_of(html, *head):
    """The table whose head begins so, as a frame."""
    (found,) = [each for each in tables_of(html) if tuple(each[0][: len(head)]) == head]
    return pd.DataFrame(found[1:], columns=found[0])


def page_of(folder):
    return (folder / "index.html").read_text()


def break_study(monkeypatch, name):
    def simulate(cell, streams):
        raise ZeroDivisionError("no prompts left")

    broken, get = replace(studies.get(name), simulate=simulate), studies.get
    monkeypatch.setattr(studies, "get", lambda wanted: broken if wanted == name else get(wanted))


@pytest.mark.slow
def test_nothing_fails_and_every_promised_file_is_there(whole):
    report, folder = whole
    assert report.failures == []
    promised = [name for section in SECTIONS for name in section.files()]
    assert len(promised) == len(set(promised))
    missing = [name for name in (*promised, "index.html", "provenance.json") if not (folder / name).is_file()]
    assert missing == []
    for figure in (folder / "figures").iterdir():
        assert figure.read_bytes().startswith({".png": b"\x89PNG", ".pdf": b"%PDF"}[figure.suffix])
    assert (folder / "simulated" / "report.html").is_file()
    record = json.loads((folder / "provenance.json").read_text())
    assert record["files"]["table1.csv"] == report.results["table1"].folder.name
    assert record["seed"] == 0 and record["scale"] == SCALE and str(folder) not in json.dumps(record)


@pytest.mark.slow
def test_page_shows_the_numbers_of_the_csv_files(whole):
    _, folder = whole
    page = page_of(folder)
    stored = pd.read_csv(folder / "table1.csv").query("method == 'kae' and dataset == 'math'")
    (row,) = [row for table in tables_of(page) for row in table if row[0] == "KAE (predicted)"]
    assert row[1:4] == [f"{1000 * r.mse:.2f} ({1000 * r.mcse:.2f}) [{1000 * r.paper:g}]" for r in stored.itertuples()]
    slopes, stored = table_of(page, "Quantity", "Slope"), pd.read_csv(folder / "rates.csv")
    assert slopes["Quantity"].tolist() == stored["quantity"].tolist()
    assert slopes["Slope"].tolist() == [with_error(row.slope, row.se) for row in stored.itertuples()]


@pytest.mark.slow
def test_page_counts_the_findings_and_needs_no_other_file_but_those_it_links_to(whole):
    report, folder = whole
    html, findings = page_of(folder), report.findings()
    counts = table_of(html, "Part", HOLDS, FAILS, OPEN, "failed").drop(columns="Part").astype(int).sum()
    assert len(findings) > 30 and counts["failed"] == 0
    for verdict in (HOLDS, FAILS, OPEN):
        assert counts[verdict] == sum(finding.verdict == verdict for finding in findings)
    assert not [finding for finding in findings if re.search(r"\bnan\b", finding.evidence)]
    assert not re.search(r'(src|href)="(https?:)?//', html)
    assert html.count("data:image/svg+xml;base64,") == sum(section.figure is not None for section in SECTIONS)
    links = [link["href"] for link in BeautifulSoup(html, "html.parser").find_all("a")]
    anchors = set(re.findall(r'id="([^"]+)"', html))
    beside = [link for link in links if not link.startswith("data:")]
    assert all(link[1:] in anchors if link.startswith("#") else (folder / link).is_file() for link in beside)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(quick, tmp_path):
    (drawn,) = (section for section in QUICK if section.name == "sensitivity")
    for name, seed, jobs in (("two", 0, 2), ("other", 1, 1)):
        assert not reproduce.reproduce(tmp_path / name, scale=SCALE, seed=seed, jobs=jobs, sections=[drawn]).failures
    assert len(drawn.files()) == 5
    for file in drawn.files():
        assert (quick / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    assert (quick / "sensitivity.csv").read_bytes() != (tmp_path / "other" / "sensitivity.csv").read_bytes()


def test_a_failing_study_builder_and_log_are_shown_and_the_rest_is_built(repeated, tmp_path, monkeypatch):
    def findings(summary):
        raise KeyError("mse")

    (tmp_path / logs.REAL_LOG).write_text('{"a": [0.5, ')
    assert (repeated / "one_shot.csv").exists()
    break_study(monkeypatch, "one_shot")
    sections = [replace(s, findings=findings) if s.name == "schedule" else s for s in QUICK]
    report = reproduce.reproduce(repeated, scale=2 * SCALE, jobs=1, seed=1, data=str(tmp_path), sections=sections)
    parts = ["study one_shot", "section schedule", "section acc_step_500_dev"]
    assert [failure.part for failure in report.failures] == parts
    assert set(report.built) == {"sensitivity", "simulated"}
    html = page_of(repeated)
    assert "study one_shot failed: ZeroDivisionError: no prompts left" in html
    assert "python -m simulations replay one_shot" in html and "Traceback" in html
    assert "section schedule failed: KeyError" in html and "section acc_step_500_dev failed" in html
    assert "3 parts failed" in html
    assert not (repeated / "one_shot.csv").exists(), "a file of an earlier run beside a report without it"
    recorded = json.loads((repeated / "provenance.json").read_text())["failures"]
    assert [each["part"] for each in recorded] == parts


def test_command_exits_with_1_if_a_part_failed_and_with_0_if_none_did(repeated, monkeypatch):
    monkeypatch.delenv("KAESTAT_DATA", raising=False)
    assert QUICK[1].name == "one_shot"
    monkeypatch.setattr(
        command, "reproduce", lambda out, **settings: reproduce.reproduce(out, sections=QUICK[1:2], **settings)
    )
    arguments = ["--out", str(repeated), "--scale", str(SCALE), "--jobs", "1"]
    good = CliRunner().invoke(app(command.main), arguments)
    assert good.exit_code == 0, good.output
    assert "index.html" in good.output and "The paper's claims:" in good.output
    break_study(monkeypatch, "one_shot")
    bad = CliRunner().invoke(app(command.main), [*arguments, "--seed", "1"])
    assert bad.exit_code == 1
    assert "ZeroDivisionError: no prompts left" in bad.output and (repeated / "index.html").exists()


def test_bad_settings_are_refused_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(reproduce, "run", lambda *_, **__: pytest.fail("work was started"))
    for out, scale, message in (("out", "-1", "scale must be positive"), ("file", "1", "cannot write results")):
        result = CliRunner().invoke(app(command.main), ["--out", str(tmp_path / out), "--scale", scale])
        assert result.exit_code == 2 and message in result.output
    assert not (tmp_path / "out").exists()


def test_a_verdict_needs_an_interval_on_one_side_of_the_limit():
    assert below([0.5], [0.1], 1.0) == HOLDS
    assert below([1.5], [0.1], 1.0) == FAILS
    assert below([0.9], [0.1], 1.0) == OPEN
    assert above([0.5], [0.1], 1.0) == FAILS and above([1.5], [0.1], 1.0) == HOLDS
    assert equal([0.9], [0.1], 1.0) == HOLDS and equal([0.5], [0.1], 1.0) == FAILS
    assert below([0.5, np.nan], [0.1, np.nan], 1.0) == OPEN and equal([np.nan], [np.nan], 1.0) == OPEN
    # 2.5 standard errors refute one number's claim, and none of twenty's.
    assert equal([2.5], [1.0], 0.0) == FAILS and equal([2.5] + 19 * [0.0], 20 * [1.0], 0.0) == HOLDS
    with pytest.raises(ValueError, match="estimate is empty"):
        below([], [])


@pytest.mark.parametrize(
    ("value", "mcse", "text"),
    [
        (1.0337, 0.00281, "1.0337 (0.0028)"),
        (21.3, 1.4, "21.3 (1.4)"),
        (1.0, 0.0, "1"),
        (1.0, 7e-18, "1"),
        (np.nan, 0.1, ""),
        (np.inf, 0.0, "∞"),
    ],
)
def test_numbers_are_shown_to_the_digits_of_their_error(value, mcse, text):
    assert with_error(value, mcse) == text
