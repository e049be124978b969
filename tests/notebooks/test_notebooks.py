"""The notebooks: every one runs, offline, and stored outputs are a run's.

Each runs in a kernel of its own from the folder that it lies in, as a reader's would, without ``KAESTAT_DATA``; where
that names a folder, those that would read it run a second time with it.
"""

import base64
import importlib
import io
import json
import os
import re
import sys
import tempfile
from copy import deepcopy
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parents[2] / "notebooks"
COMMAND = "run python notebooks/execute.py"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
READ_DATA = [name for name in NAMES if "KAESTAT_DATA" in (FOLDER / f"{name}.ipynb").read_text()]
LARGEST = 250_000  # bytes of a notebook
FAR = 3.0  # mean difference of the pixels of two pictures, of 255


def runner():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        return sys.modules.get("execute") or importlib.import_module("execute")


def stored(name):
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def run(notebook, monkeypatch):
    """Run all cells; raises with the trace of the first that fails."""
    for name, setting in {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}.items():
        monkeypatch.setenv(name, setting)
    return runner().executed(notebook)


def differences(mine, other):
    """What two lists of outputs do not share: texts are the same, pictures as large and about the same."""
    if [each.output_type for each in mine] != [each.output_type for each in other]:
        return ["other kinds of outputs"]
    found = []
    for one, two in zip(mine, other, strict=True):
        if one.get("text") != two.get("text"):
            found.append(f"{one.text!r} is {two.text!r}")
        pictures = [each.get("data", {}).get("image/png") for each in (one, two)]
        if (pictures[0] is None) != (pictures[1] is None):
            found.append("a picture more")
        elif pictures[0] is None:
            plain = [each.get("data", {}).get("text/plain") for each in (one, two)]
            if plain[0] != plain[1]:
                found.append(f"{plain[0]!r} is {plain[1]!r}")
        else:
            first, second = (
                np.asarray(Image.open(io.BytesIO(base64.b64decode(each))).convert("RGB"), dtype=float)
                for each in pictures
            )
            if first.shape != second.shape or abs(first - second).mean() > FAR:
                found.append("another picture")
    return found


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_the_list_names_every_notebook():
    listed = re.findall(r"\]\((\w+)\.ipynb\)", (FOLDER / "README.md").read_text())
    assert sorted(listed) == NAMES != []


@pytest.mark.parametrize("name", NAMES)
def test_notebook_stores_outputs_and_nothing_of_the_machine(name):
    notebook = stored(name)
    nbformat.validate(notebook)
    assert not any(cell.metadata for cell in notebook.cells)
    assert sum("image/png" in output.get("data", {}) for output in outputs(notebook)) >= 3, f"{COMMAND} {name}"
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert json.loads(text)["metadata"]["kernelspec"]["name"] == "python3"
    here = (str(FOLDER.parent), str(Path.home()), tempfile.gettempdir(), sys.prefix)
    assert len(text) < LARGEST and " at 0x" not in text
    assert [place for place in here if f"{place}{os.sep}" in text] == []  # nothing of the machine


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_without_data_draws_labelled_figures_and_gives_what_is_stored(name, monkeypatch):
    monkeypatch.delenv("KAESTAT_DATA", raising=False)
    done = run(stored(name), monkeypatch)
    given = outputs(done)
    assert sum("image/png" in output.get("data", {}) for output in given) >= 3
    assert not [output.text for output in given if output.get("name") == "stderr"]
    drawing = [cell.source for cell in done.cells if "plt.subplots" in cell.source]
    assert all("label" in text for text in drawing)
    if name in READ_DATA:
        assert "simulated" in "".join(output.get("text", "") for output in given)
    kept = [cell.get("outputs", []) for cell in stored(name).cells]
    fresh = [cell.get("outputs", []) for cell in done.cells]
    other = [each for one, two in zip(kept, fresh, strict=True) for each in differences(one, two)]
    assert other == [], f"stored outputs are those of another run: {COMMAND} {name}"


# Readers' own runs: with the real log, where there is one.
if os.environ.get("KAESTAT_DATA"):

    @pytest.mark.slow
    @pytest.mark.parametrize("name", READ_DATA)
    def test_notebook_runs_with_the_real_log_and_says_so(name, monkeypatch):
        given = outputs(run(stored(name), monkeypatch))
        assert "The rewards are real: acc_step_500_dev.json." in "".join(output.get("text", "") for output in given)


@pytest.mark.slow
def test_a_failing_cell_is_seen(monkeypatch):
    """Negative control of the runs above."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    with pytest.raises(Exception, match="ZeroDivisionError"):
        run(notebook, monkeypatch)


def test_other_outputs_than_those_stored_are_seen():
    notebook = stored("analyse_your_run")
    kept = outputs(notebook)
    assert differences(kept, deepcopy(kept)) == []
    text = next(place for place, each in enumerate(kept) if each.get("text"))
    picture = next(place for place, each in enumerate(kept) if "image/png" in each.get("data", {}))
    changed = deepcopy(kept)
    changed[text]["text"] += "1"
    blank = io.BytesIO()
    size = Image.open(io.BytesIO(base64.b64decode(kept[picture]["data"]["image/png"]))).size
    Image.new("RGB", size, "black").save(blank, format="png")
    changed[picture]["data"]["image/png"] = base64.b64encode(blank.getvalue()).decode()
    assert len(differences(kept, changed)) == 2
    assert differences(kept, kept[1:]) == ["other kinds of outputs"]
