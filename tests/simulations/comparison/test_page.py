"""The page is what the command writes from the tables, and the tables hold no other methods than it may."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from simulations.comparison import page
from simulations.comparison.__main__ import main
from simulations.comparison.compared import REWARDS_ALONE
from simulations.comparison.worlds import noise, paths
from tests.helpers.commands import app

ROOT = Path(__file__).parents[3]
PAGE, RESULTS = ROOT / "docs" / "choose.md", ROOT / "results" / "methods"


@pytest.mark.parametrize("part", page.PARTS[:2])
def test_the_methods_of_the_results_are_those_that_need_rewards_alone(part):
    assert set(pd.read_csv(RESULTS / f"{part}.csv")["method"]) <= set(REWARDS_ALONE)


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="needs one <!-- numbers -->"):
        page.written("# Nothing", RESULTS)


def test_the_command_keeps_what_is_there_and_writes_the_page(tmp_path):
    shutil.copytree(RESULTS, tmp_path / "methods")
    before = {file.name: file.read_bytes() for file in (tmp_path / "methods").iterdir()}
    shutil.copy(PAGE, tmp_path / "page.md")
    arguments = ["no.json", "--out", str(tmp_path / "methods"), "--page", str(tmp_path / "page.md")]
    result = CliRunner().invoke(app(main), arguments)
    assert result.exit_code == 0 and result.output.count("kept") == 3
    assert {file.name: file.read_bytes() for file in (tmp_path / "methods").iterdir()} == before
    assert (tmp_path / "page.md").read_text() == PAGE.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "compute"), [("paths", paths), ("noise", noise)])
def test_tables_of_simulated_worlds_are_what_the_command_computes(name, compute):
    kept = pd.read_csv(RESULTS / f"{name}.csv")
    pd.testing.assert_frame_equal(compute(), kept, rtol=1e-4, check_dtype=False)
