"""The notebooks: source and .ipynb are the same cells, no outputs are stored, and every one runs, offline.

Each runs in a kernel of its own from the folder that it lies in, as a reader's would, without ``KAESTAT_DATA``; where
that names a folder, those that would read it run a second time with it.
"""

import json
import os
import re
from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
READ_DATA = [name for name in NAMES if "KAESTAT_DATA" in (FOLDER / f"{name}.py").read_text()]
TIME_LIMIT = 240  # seconds for one cell; a minute for all of them on a machine that does nothing else


def stored(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def source(name):
    return jupytext.read(FOLDER / f"{name}.py")


def run(notebook, monkeypatch):
    """Run all cells; raises with the trace of the first that fails."""
    for name, setting in {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}.items():
        monkeypatch.setenv(name, setting)
    client = NotebookClient(
        notebook, timeout=TIME_LIMIT, kernel_name="python3", resources={"metadata": {"path": FOLDER}}
    )
    return client.execute()


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_there_are_five_and_the_list_names_them():
    listed = re.findall(r"\]\((\w+)\.ipynb\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == NAMES and len(NAMES) == 5
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_pair_has_the_same_cells_and_stores_no_outputs(name):
    def cells(notebook):
        return [(cell.cell_type, cell.source) for cell in notebook.cells]

    notebook = stored(name)
    assert cells(notebook) == cells(source(name)), f"run: jupytext --sync notebooks/{name}.py"
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert set(cell.metadata) <= {"lines_to_next_cell"}  # jupytext's own, where the source has two blank lines
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert json.loads(text)["metadata"]["kernelspec"]["name"] == "python3"


@pytest.mark.parametrize("name", NAMES)
def test_notebook_says_what_is_learnt_and_ends_with_what_to_try(name):
    text = [cell.source for cell in source(name).cells if cell.cell_type == "markdown"]
    assert text[0].startswith("# ") and "You learn here" in text[0]
    assert source(name).cells[-1].cell_type == "markdown" and "## What to try" in text[-1]
    assert len(re.findall(r"^- ", text[-1].partition("## What to try")[2], re.MULTILINE)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_without_data_and_draws_labelled_figures(name, monkeypatch):
    monkeypatch.delenv("KAESTAT_DATA", raising=False)
    done = run(source(name), monkeypatch)
    given = outputs(done)
    assert sum("image/png" in output.get("data", {}) for output in given) >= 3
    assert not [output.text for output in given if output.get("name") == "stderr"]
    drawing = [cell.source for cell in done.cells if "plt.subplots" in cell.source]
    assert all("label" in text for text in drawing)
    if name in READ_DATA:
        assert "simulated" in "".join(output.get("text", "") for output in given)


# Readers' own runs: with the real log, where there is one.
if os.environ.get("KAESTAT_DATA"):

    @pytest.mark.slow
    @pytest.mark.parametrize("name", READ_DATA)
    def test_notebook_runs_with_the_real_log_and_says_so(name, monkeypatch):
        given = outputs(run(source(name), monkeypatch))
        assert "The rewards are real: acc_step_500_dev.json." in "".join(output.get("text", "") for output in given)


@pytest.mark.slow
def test_a_failing_cell_is_seen(monkeypatch):
    """Negative control of the runs above."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        run(notebook, monkeypatch)
