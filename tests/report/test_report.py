"""The files of ``kaestat analyze --out``."""

import base64
import hashlib
import re

import pandas as pd
import pytest

from kaestat.core.provenance import Provenance, versions
from kaestat.datasets import simulated_run
from kaestat.report.analysis import analyze
from kaestat.report.files import write_report
from kaestat.report.plots import render, risk_against_bandwidth

pytestmark = pytest.mark.filterwarnings("ignore::kaestat.logs.prompt_risks.FewPromptsWarning")

ALL_FILES = {
    "risk.csv",
    "differences.csv",
    "bandwidth.csv",
    "risk_vs_bandwidth.png",
    "risk_vs_bandwidth.pdf",
    "report.html",
    "provenance.json",
}


def provenance(**changes):
    settings = {"command": "kaestat analyze run.csv", "source": "run.csv", "sha256": "ab12", "seed": 0, "n_boot": 20}
    return Provenance(**(settings | {"min_visits": 1, "versions": versions()} | changes))


@pytest.fixture(scope="module")
def analysis():
    return analyze(simulated_run(n_prompts=60, n_epochs=12).log, bandwidth_paths=True, n_boot=40)


@pytest.fixture(scope="module")
def written(analysis, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "new"
    return {path.name: path for path in write_report(analysis, provenance(), folder)}


def test_all_files_are_written_and_no_others(written):
    assert set(written) == ALL_FILES
    assert {path.name for path in written["risk.csv"].parent.iterdir()} == ALL_FILES
    assert written["risk_vs_bandwidth.png"].read_bytes().startswith(b"\x89PNG")
    assert written["risk_vs_bandwidth.pdf"].read_bytes().startswith(b"%PDF")


def test_tables_hold_the_full_numbers(analysis, written):
    pd.testing.assert_frame_equal(pd.read_csv(written["risk.csv"]), analysis.risk)
    pd.testing.assert_frame_equal(pd.read_csv(written["differences.csv"]), analysis.differences)
    pd.testing.assert_frame_equal(pd.read_csv(written["bandwidth.csv"]), analysis.path_table())


def test_page_needs_no_other_file_and_shows_every_method(analysis, written):
    page = written["report.html"].read_text()
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", page) and "url(" not in page
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    allowed = [f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" for code in scripts]
    assert len(scripts) == page.count("<script>") == 2 and f"script-src {' '.join(allowed)} ;" in page
    for row in analysis.risk.itertuples():
        assert re.search(rf"<td>{re.escape(row.method)}<[^\n]*?</td><td>{1e3 * row.mse:.2f}</td>", page), row.method
    figures = re.findall(r'data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(figures) == 1 and all(b"<svg" in base64.b64decode(figure) for figure in figures)
    assert "ab12" in page and "seed 0" in page and "kaestat analyze run.csv" in page


def test_same_analysis_gives_the_same_bytes(analysis, written, tmp_path):
    for path in write_report(analysis, provenance(), tmp_path):
        assert path.read_bytes() == written[path.name].read_bytes(), path.name


def test_report_without_bootstrap_has_no_nan_in_it(tmp_path):
    analysis = analyze(simulated_run(n_prompts=40, n_epochs=8).log, ["kae", "grpo"], bandwidth_paths=True, n_boot=0)
    write_report(analysis, provenance(n_boot=0), tmp_path)
    assert not re.search(r"\bnan\b", (tmp_path / "report.html").read_text(), re.IGNORECASE)


def test_figure_draws_paths_and_levels(analysis):
    panels = risk_against_bandwidth(analysis).axes
    assert [panel.get_title(loc="left") for panel in panels] == ["Triangular kernel", "Exponential kernel"]
    for panel, selection in zip(panels, analysis.paths.values(), strict=True):
        curve = panel.lines[0]
        assert curve.get_xdata().tolist() == selection.path["bandwidth"].tolist()
        assert curve.get_ydata() == pytest.approx(1e3 * selection.path["risk"])
        levels = sorted(line.get_ydata()[0] for line in panel.lines[2:])
        shown = analysis.risk[analysis.risk["method"].isin(["grpo", "reinforce++"])]
        assert levels == pytest.approx(sorted(1e3 * shown["mse"]))
        assert panel.get_xscale() == panel.get_yscale() == "log"


def test_risks_at_or_below_zero_are_drawn_on_a_linear_axis():
    """With few prompts an unbiased estimate of a small MSE can be negative; a logarithmic axis would hide it."""
    log = simulated_run(n_prompts=12, n_epochs=6).log
    log = type(log)(log.frame["prompt"], log.frame["step"], (log.frame["prompt"] % 2).astype(float))
    figure = risk_against_bandwidth(analyze(log, ["kae"], bandwidth_paths=True, n_boot=40))
    assert figure.axes[0].get_yscale() == "linear"
    assert render(figure, "svg").startswith(b"<?xml")
