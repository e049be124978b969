"""Hook of the site's build: its figures and a sample report are made while it is built."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import method_figures
from choice_figures import COLORS, FIGURES, drawn
from mkdocs.structure.files import File

from kaestat.baselines.registry import METHODS
from kaestat.report.cli import run
from kaestat.report.plots import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
# Figure of the paper -> what it is called in a page, and its experiment.
TRAINED = {
    "figure1": ("one_shot", "tiny_one_shot"),
    "single-stream": ("single_stream", "tiny_single_stream"),
    "ablation": ("ablation", "tiny_multi_stream_g8"),
}
SAMPLE = "kaestat analyze --simulated --out report/"


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add them to the files of the site; mkdocs calls it once."""
    made = {f"figures/{name}_{scheme}.svg": drawn(name, scheme) for name in FIGURES for scheme in COLORS}
    made |= {
        f"figures/method_{METHODS[name].page}_{scheme}.svg": method_figures.drawn(name, scheme)
        for name in method_figures.table()["method"].unique()
        for scheme in COLORS
    }
    made |= {f"experiments/figures/{name}.png": render(one, "png") for name, one in experiment_figures().items()}
    made["gallery/report.html"] = sample_report()
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Add its figure to the page of a method; mkdocs calls it for each."""
    of_page = {f"methods/{method.page}.md": method for method in METHODS.values()}
    method = of_page.get(page.file.src_uri)
    return markdown if method is None else method_figures.with_figure(markdown, method)


def experiment_figures() -> dict[str, Figure]:
    """The figures of the experiments, drawn from the tables in ``results``."""
    sys.path.insert(0, str(ROOT))  # where `paper_figures` is: it runs from a checkout and is not installed
    try:
        from llm_experiments.diagnose.results import read_results
        from paper_figures.llm.figures import assumption6
        from paper_figures.policies.figures import figure as study_figure
        from paper_figures.training.beside_paper import curves_beside
    finally:
        sys.path.remove(str(ROOT))
    figures = {
        name: curves_beside(RESULTS / "training" / experiment, artefact)[0]
        for artefact, (name, experiment) in TRAINED.items()
    }
    figures["assumption6"] = assumption6(read_results(RESULTS / "tiny_trained").score_norms)
    return figures | {name: study_figure(RESULTS / "studies" / name) for name in ("columns", "workings")}


def sample_report() -> bytes:
    """The report that the command ``SAMPLE`` leaves.

    Raises RuntimeError if the command fails.
    """
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(output):
        if run(SAMPLE.split()[1:]) != 0:
            raise RuntimeError(f"{SAMPLE}: {output.getvalue()}")
        return Path("report/report.html").read_bytes()
