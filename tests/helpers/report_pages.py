"""All reports at a size at which they take no time, and what their files say."""

from pathlib import Path

import pandas as pd
import pytest

from kaestat.core.provenance import Provenance, versions
from kaestat.datasets import simulated_run
from kaestat.report.analysis import analyze
from kaestat.report.cli import run
from kaestat.report.files import write_report
from paper_figures.report import logs, reproduce
from paper_figures.report.sections import SECTIONS

PARTS = ("table1", "sensitivity", "one_shot", "audit")  # with and without a figure, short and folded tables, many files
SOURCE = 'runs/"a" & <b>.csv'


def analyze_page(folder: Path) -> Path:
    """Write the report of a simulated log; return its page."""
    analysis = analyze(simulated_run(n_prompts=60, n_epochs=12).log, bandwidth_paths=True, n_boot=50)
    provenance = Provenance(
        command="kaestat analyze --out report", source=SOURCE, sha256="ab12", seed=0, n_boot=50, min_visits=1,
        versions=versions(),
    )  # fmt: skip
    write_report(analysis, provenance, folder)
    return folder / "report.html"


def reproduce_page(folder: Path) -> Path:
    """Write a reproduction at a tiny scale; return its page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "simulated_run", lambda: simulated_run(n_prompts=60, n_epochs=8))
        patch.setattr(logs, "N_BOOT", 40)
        sections = tuple(section for section in SECTIONS if section.name in PARTS)
        report = reproduce.reproduce(folder, scale=0.02, jobs=1, sections=sections)
    assert not report.failures
    return folder / "index.html"


def compare_page(folder: Path) -> Path:
    """Compare two simulated logs, one of a long name; return the page."""
    folder.mkdir()
    names = ("before_the_change_grpo_group_size_8_lr_1e-6", "after")
    logs = [str(_written(seed, folder / f"{name}.csv")) for seed, name in enumerate(names)]
    assert run(["compare", *logs, "--n-boot", "40", "--out", str(folder)]) == 0
    return folder / "compare.html"


def _written(seed: int, path: Path) -> Path:
    frame = simulated_run(n_prompts=60, n_epochs=12, seed=seed).log.frame
    frame = frame.assign(length=100 - 50 * frame["reward"])
    frame[["prompt", "step", "reward", "length"]].to_csv(path, index=False)
    return path


def risk_in_thousandths(folder: Path) -> pd.Series:
    """MSE by method, from the file beside the page, as the page shows it."""
    frame = pd.read_csv(folder / "risk.csv")
    return (1000 * frame.set_index("method")["mse"]).map("{:.2f}".format)
