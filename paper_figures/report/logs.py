"""Analyses of whole reward logs, the simulated run and a real one, as ``kaestat analyze`` makes them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from kaestat import read_log
from kaestat.baselines.registry import DEFAULT_METHOD
from kaestat.core.provenance import Provenance, checksum, versions
from kaestat.datasets import simulated_run
from kaestat.report.analysis import Analysis, analyze
from kaestat.report.files import write_report
from kaestat.report.headline import headline
from kaestat.report.tables import comparison, unit_line, unit_of
from paper_figures.shared.finding import FAILS, HOLDS, OPEN, Finding

REAL_LOG = "acc_step_500_dev.json"
N_BOOT = 1000


@dataclass(frozen=True)
class LogSource:
    """A reward log to analyse.

    name: Folder of its report.
    path: None is the simulated run.
    """

    name: str
    title: str
    path: Path | None = None


@dataclass(frozen=True, eq=False)
class LogReport:
    """What the page shows of a log.

    headline: The main finding in a sentence.
    unit: What the numbers of the table are.
    table: The methods' MSEs as text cells.
    """

    headline: str
    unit: str
    table: pd.DataFrame
    findings: list[Finding]


def log_sources(data: str | None) -> tuple[LogSource, ...]:
    """The simulated run, and the real one if the folder ``data`` has it."""
    simulated = LogSource("simulated", "Reward log of a simulated run")
    path = Path(data) / REAL_LOG if data else None
    if path is None or not path.is_file():
        return (simulated,)
    return simulated, LogSource(path.stem, f"Reward log of a real run, {path.name}", path)


def analyse(source: LogSource, out: Path, *, seed: int) -> LogReport:
    """Analyse a log and write its report to ``out/NAME``."""
    log = simulated_run().log if source.path is None else read_log(source.path)
    analysis = analyze(log, bandwidth_paths=True, n_boot=N_BOOT, seed=seed)
    given = "--simulated" if source.path is None else source.path.name
    provenance = Provenance(
        command=f"kaestat analyze {given} --seed {seed} --out {source.name}",
        source="simulated run" if source.path is None else source.path.name,
        sha256=None if source.path is None else checksum(source.path),
        seed=seed,
        n_boot=N_BOOT,
        min_visits=analysis.min_visits,
        versions=versions(),
    )
    write_report(analysis, provenance, out / source.name)
    header, rows = comparison(analysis)
    return LogReport(
        headline(analysis), unit_line(analysis), pd.DataFrame(rows, columns=list(header)), findings(analysis)
    )


def findings(analysis: Analysis) -> list[Finding]:
    """The paper's KAE against GRPO, and the default against KAE, which learns its bandwidth; with 95 % intervals."""
    rows = analysis.differences.astype({"method": str}).set_index(["method", "reference"])
    unit = unit_of(analysis)
    ours, default = rows.loc[("kae:bandwidth=10", "grpo")], rows.loc[("kae", DEFAULT_METHOD)]

    def found(claim: str, row: pd.Series, *, lower: bool, source: Literal["paper", "ours"]) -> Finding:
        low, high = (row["ci_low"], row["ci_high"]) if lower else (-row["ci_high"], -row["ci_low"])
        return Finding(
            claim,
            HOLDS if high < 0 else FAILS if low > 0 else OPEN,
            f"difference {unit.signed(row['difference'])}{unit.times}, standard error {unit.number(row['se'])}, 95 % "
            f"interval {unit.interval(row['ci_low'], row['ci_high'])}",
            source,
        )

    return [
        found("KAE's values have a smaller MSE than GRPO's", ours, lower=True, source="paper"),
        found("KAE's values have a larger MSE than the default method's", default, lower=False, source="ours"),
    ]
