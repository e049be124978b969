"""The command from predictions to verdicts, on a cell that takes a second."""

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.baseline_law import __main__ as command
from simulations.baseline_law import cells, rates
from simulations.baseline_law.world import WorldSpec

TINY = WorldSpec(answers=4, right=2, habit=1.0, centre=0.0, spread=0.5, rule=1.0, prompts=16, rows=2, columns=2)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(cells.WORLDS, "tiny", TINY)
    monkeypatch.setattr(cells, "COMPLETIONS", 256)
    cell = cells.Cell("tiny", "sgd", 8, (2.0, 4.0, 8.0), 2.0)
    monkeypatch.setattr(command, "CELLS", (cell,))
    monkeypatch.setattr(cells, "CELLS", (cell,))
    return cell


def call(*arguments):
    return CliRunner().invoke(command.app, list(map(str, arguments)))


def test_from_predictions_to_verdicts(tiny, tmp_path):
    out, work = tmp_path / "out", tmp_path / "work"
    options = ("--out", out, "--work", work)
    refused = call("run", *options)
    assert refused.exit_code and "predictions first" in str(refused.exception) + refused.output
    assert call("predict", "--out", out).exit_code == 0
    first = call("run", *options)
    assert first.exit_code == 0, first.output
    assert first.output.count("written") == 2
    assert "written" not in call("run", *options).output  # what is there is kept
    assert call("judge", *options).exit_code == 0
    verdict = pd.read_csv(out / "verdicts.csv")
    assert verdict["designs"].tolist() == [13]
    rates_table = pd.read_csv(out / "rates.csv.gz")
    assert len(rates_table) == 13 * cells.BASES and (rates_table["rate"] > 0).all()
    assert (out / "measured.provenance.json").is_file()


def test_a_rate_at_an_edge_stops_the_command(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "MOST_RATES", 3)  # no room to grow
    assert call("predict", "--out", tmp_path).exit_code == 0
    stopped = call("run", "--out", tmp_path, "--work", tmp_path / "work")
    assert stopped.exit_code and "in cell 'tiny_sgd_8, base" in str(stopped.exception)
