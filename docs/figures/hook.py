"""Hook of the site's build: figures and a sample report are made while it is built, committed figures are added."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choice_figures import COLORS, FIGURES, drawn
from mkdocs.structure.files import File

from kaestat.report.cli import run

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

RESULTS = Path(__file__).parents[2] / "results"
TRAINING_FIGURES = RESULTS / "policy_optimization" / "figures"
ERRORS_FIGURE = RESULTS / "training" / "tiny_multi_stream_slow" / "figures" / "training_errors.png"
ASSUMPTION6_FIGURE = RESULTS / "tiny_trained" / "figures" / "llm_assumption6.png"
SAMPLE = "kaestat analyze --simulated --out report/"


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add them to the files of the site; mkdocs calls it once."""
    made = {f"figures/{name}_{scheme}.svg": drawn(name, scheme) for name in FIGURES for scheme in COLORS}
    made["gallery/report.html"] = sample_report()
    made |= {f"experiments/figures/{path.name}": path.read_bytes() for path in TRAINING_FIGURES.glob("*.png")}
    made["experiments/figures/errors.png"] = ERRORS_FIGURE.read_bytes()
    made["experiments/figures/assumption6.png"] = ASSUMPTION6_FIGURE.read_bytes()
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def sample_report() -> bytes:
    """The report that the command ``SAMPLE`` leaves.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(output):
        if run(SAMPLE.split()[1:]) != 0:
            raise RuntimeError(f"{SAMPLE}: {output.getvalue()}")
        return Path("report/report.html").read_bytes()
