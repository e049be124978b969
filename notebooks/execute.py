"""``python notebooks/execute.py [NAME ...]``: run notebooks, and write them anew with the outputs of the run.

Runs offline and without ``KAESTAT_DATA``, as most readers would, so data are simulated. Needs the extra ``test``.
"""

import base64
import io
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

from kaestat.core.storage import write_atomically

FOLDER = Path(__file__).parent
TIME_LIMIT = 240  # seconds for one cell; a minute for all of them on a machine that does nothing else
COLORS = 48
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with the outputs of a run, as they are stored: pictures of few colours, nothing of this machine.

    Raises
    ------
    CellExecutionError
        If a cell fails, with its trace.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    client = NotebookClient(
        notebook,
        timeout=TIME_LIMIT,
        kernel_name="python3",
        resources={"metadata": {"path": FOLDER}},
        record_timing=False,
        coalesce_streams=True,
    )
    done = client.execute()
    done.metadata.pop("language_info", None)
    for cell in done.cells:
        for output in cell.get("outputs", []):
            _tidy(output)
    return done


def _tidy(output: nbformat.NotebookNode) -> None:
    if "text" in output:
        output.text = ADDRESS.sub("", output.text)
    data = output.get("data", {})
    if "text/plain" in data:
        data["text/plain"] = ADDRESS.sub("", data["text/plain"])
    if "image/png" in data:
        data["image/png"] = _small(data["image/png"])


def _small(picture: str) -> str:
    """A PNG of few colours, both in base 64."""
    image = Image.open(io.BytesIO(base64.b64decode(picture)))
    buffer = io.BytesIO()
    image.convert("RGB").quantize(COLORS).save(buffer, format="png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def main(names: list[str]) -> None:
    """Write the notebooks."""
    os.environ.pop("KAESTAT_DATA", None)
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        done = executed(nbformat.read(path, as_version=4))
        write_atomically(path, nbformat.writes(done) + "\n")
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
