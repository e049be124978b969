"""Analyses of whole reward logs, the simulated run and a real one, as ``kaestat analyze`` makes them."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pandas as pd

from kaestat import read_log
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.provenance import Provenance, checksum, versions
from kaestat.datasets import simulated_run
from kaestat.report.analysis import Analysis, analyze
from kaestat.report.files import write_report
from kaestat.report.headline import headline
from kaestat.report.tables import comparison, unit_line
from paper_figures.report.sections import Built, PageTable
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, Finding

REAL_LOG = "acc_step_500_dev.json"
N_BOOT = 1000


@dataclass(frozen=True)
class LogSection:
    """The part of the report on one reward log.

    name: Folder of the log's own report.
    path: None is the simulated run.
    """

    name: str
    title: str
    path: Path | None
    seed: int
    study: ClassVar[str] = ""
    question: ClassVar[str] = (
        "Which method would have had the smallest value MSE, judged by the rewards of the log alone?"
    )
    bars: ClassVar[str] = ""

    def files(self) -> tuple[str, ...]:
        """Paths of its files, relative to the folder of the report."""
        return f"{self.name}/risk.csv", f"{self.name}/report.html"

    def build(self, summary: pd.DataFrame, folder: Path) -> Built:
        """Analyse the log and write its report to ``folder/NAME``; return what the page shows."""
        log = simulated_run().log if self.path is None else read_log(self.path)
        analysis = analyze(log, bandwidth_paths=True, n_boot=N_BOOT, seed=self.seed)
        given = "--simulated" if self.path is None else self.path.name
        provenance = Provenance(
            command=f"kaestat analyze {given} --seed {self.seed} --out {self.name}",
            source="simulated run" if self.path is None else self.path.name,
            sha256=None if self.path is None else checksum(self.path),
            seed=self.seed,
            n_boot=N_BOOT,
            min_visits=analysis.min_visits,
            versions=versions(),
        )
        write_report(analysis, provenance, folder / self.name)
        header, rows = comparison(analysis)
        table = PageTable(f"{headline(analysis)} {unit_line(analysis)}", pd.DataFrame(rows, columns=list(header)))
        return Built(findings(analysis), [table])


def log_sections(data: str | None, seed: int) -> tuple[LogSection, ...]:
    """Of the simulated run, and of the real one if the folder ``data`` has it."""
    simulated = LogSection("simulated", "Reward log of a simulated run", None, seed)
    path = Path(data) / REAL_LOG if data else None
    if path is None or not path.is_file():
        return (simulated,)
    return simulated, LogSection(path.stem, f"Reward log of a real run, {path.name}", path, seed)


def findings(analysis: Analysis) -> list[Finding]:
    """The paper's KAE against GRPO, and the default against KAE, which learns its bandwidth; with 95 % intervals."""
    rows = analysis.differences.astype({"method": str}).set_index(["method", "reference"])
    unit = analysis.unit
    ours, default = rows.loc[("kae:bandwidth=10", "grpo")], rows.loc[("kae", DEFAULT_METHOD)]

    def judged(claim: str, row: pd.Series, *, lower: bool, source: Literal["paper", "ours"]) -> Finding:
        low, high = (row["ci_low"], row["ci_high"]) if lower else (-row["ci_high"], -row["ci_low"])
        return Finding(
            claim,
            HOLDS if high < 0 else FAILS if low > 0 else OPEN,
            f"difference {unit.number(row['difference'], '+.2f')}{unit.times}, standard error "
            f"{unit.number(row['se'])}, 95 % interval {unit.interval(row['ci_low'], row['ci_high'])}",
            source,
        )

    return [
        judged("KAE's values have a smaller MSE than GRPO's", ours, lower=True, source="paper"),
        judged("KAE's values have a larger MSE than the default method's", default, lower=False, source="ours"),
    ]
