"""The parts of the report, in its order: which study, which builder, which files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from kaestat.report.plots import render
from paper_figures.audit import tables as audit_tables
from paper_figures.report import table_findings
from paper_figures.shared.finding import Finding
from paper_figures.shared.output import write_csv, write_figure, write_table
from paper_figures.studies import (
    assumption6,
    best_baselines,
    gradient,
    one_shot,
    pool_sizes,
    rates,
    regret,
    schedule,
    selectors,
    sensitivity,
    table1,
    table2,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Frame = Callable[[pd.DataFrame], pd.DataFrame]
LONG = 20  # rows from which a table is folded


@dataclass(frozen=True, eq=False)
class PageTable:
    """A table of the report.

    frame: Text cells.
    """

    caption: str
    frame: pd.DataFrame

    @property
    def folded(self) -> bool:
        """Whether readers have to ask for it."""
        return len(self.frame) >= LONG

    @property
    def sides(self) -> list[str]:
        """Where the text of each column stands: words on the left, numbers on the right."""
        words = [
            all(cell[:1].isalpha() or not cell for cell in self.frame.iloc[:, k]) for k in range(self.frame.shape[1])
        ]
        return ["left" if word or k == 0 else "right" for k, word in enumerate(words)]


@dataclass(frozen=True, eq=False)
class Built:
    """What the page shows of a section.

    svg (bytes): The figure; empty if there is none.
    width: Its width in inches.
    """

    findings: list[Finding]
    tables: list[PageTable]
    svg: bytes = b""
    width: float = 0.0


@dataclass(frozen=True, eq=False)
class Section:
    """A part of the report. Its functions take the study's summary.

    name: Of its anchor, and of its figure.
    study: Name of the study; empty if it needs none, and then its functions get an empty summary.
    findings: Gives a list of `Finding`.
    csv: What gives the table in the file ``NAME.csv``.
    printed: Caption, and what gives the text cells, of the files ``tables/NAME.{md,tex}`` and of the page.
    question: What it is about; empty for the study's aims.
    bars: What the error bars of the figure are.
    """

    name: str
    title: str
    study: str
    findings: Callable[[pd.DataFrame], list[Finding]]
    csv: Mapping[str, Frame]
    printed: Mapping[str, tuple[str, Frame]]
    figure: Callable[[pd.DataFrame], Figure] | None = None
    question: str = ""
    bars: str = "Bars are 95 % Monte Carlo intervals."

    def files(self) -> tuple[str, ...]:
        """Paths of all its files, relative to the folder of the report."""
        drawn = [f"figures/{self.name}.{kind}" for kind in ("png", "pdf")] if self.figure is not None else []
        texts = [f"tables/{name}.{kind}" for name in self.printed for kind in ("md", "tex")]
        return (*(f"{name}.csv" for name in self.csv), *texts, *drawn)

    def build(self, summary: pd.DataFrame, folder: Path) -> Built:
        """Write its files; return what the page shows."""
        for name, table in self.csv.items():
            write_csv(table(summary), folder, name)
        tables = [PageTable(caption, shown(summary)) for caption, shown in self.printed.values()]
        for name, table in zip(self.printed, tables, strict=True):
            write_table(table.frame, folder, name, table.caption)
        if self.figure is None:
            return Built(self.findings(summary), tables)
        figure = self.figure(summary)
        write_figure(figure, folder, self.name)
        return Built(self.findings(summary), tables, render(figure, "svg"), figure.get_figwidth())


def _simple(
    title: str, study: str, builder: ModuleType, csv: Mapping[str, Frame] | None = None, **more: Any
) -> Section:
    """A section with one table, and a figure if there is one, all from one builder."""
    name = builder.__name__.rpartition(".")[2]
    printed = {name: (builder.CAPTION, builder.shown)}
    csv = {name: builder.table} | dict(csv or {})
    return Section(name, title, study, builder.findings, csv, printed, getattr(builder, "figure", None), **more)


def _pool(caption: str, make: Frame) -> tuple[str, Frame]:
    return caption, lambda summary: audit_tables.shown(make(summary))


SECTIONS = (
    Section(
        "table1",
        "Table 1: MSE of the value",
        "table1",
        table_findings.of_table1,
        {
            "table1": table1.table,
            "table1_reductions": table1.reductions,
            "table1_pool": pool_sizes.oracle_pool,
        },
        {
            "table1": (table1.CAPTION, table1.shown),
            "table1_pool": _pool(pool_sizes.ORACLE_CAPTION, pool_sizes.oracle_pool),
        },
    ),
    Section(
        "table2",
        "Table 2: MSE of the gradient",
        "table2",
        table_findings.of_table2,
        {
            "table2": table2.table,
            "table2_reductions": table2.reductions,
            "table2_pool": pool_sizes.reference_pool,
        },
        {
            "table2": (table2.CAPTION, table2.shown),
            "table2_pool": _pool(pool_sizes.REFERENCE_CAPTION, pool_sizes.reference_pool),
        },
    ),
    Section(
        "sensitivity",
        "Sensitivity to kernel and bandwidth",
        "sensitivity",
        table_findings.of_sensitivity,
        {"sensitivity": sensitivity.table},
        {"sensitivity": (sensitivity.CAPTION, sensitivity.shown)},
        sensitivity.figure,
        bars="Bands hold 95 % of single runs of the diagnostic with 256 prompts; Monte Carlo errors are far smaller.",
    ),
    _simple("Theorem 1: rates of value estimation", "value_rates", rates, {"rates_points": rates.points}),
    _simple(
        "Theorem 2: MSE of the gradient",
        "gradient_mse",
        gradient,
        question="Excess of the gradient MSE over the oracle's in h, i, B, G and m, where Assumption 6 holds.",
    ),
    _simple(
        "Where Assumption 6 fails",
        "gradient_mse",
        assumption6,
        question="If score norms depend on the reward, how far is the value from the best baseline, and what do "
        "score-weighted estimators gain?",
    ),
    _simple("Best baselines, estimated", "best_baselines", best_baselines),
    _simple("Theorem 3: the learned policy", "policy_regret", regret),
    _simple("The one-shot regime", "one_shot", one_shot),
    _simple("The reuse schedule", "reuse_schedule", schedule),
    _simple("Bandwidth selectors", "bandwidth_selectors", selectors),
    Section(
        "audit",
        "Audit of the paper's own numbers",
        "",
        lambda summary: table_findings.of_audit(),
        {name: lambda summary, make=make: make() for name, make in audit_tables.TABLES.items()},
        {
            name: (audit_tables.CAPTIONS[name], lambda summary, make=make: audit_tables.shown(make()))
            for name, make in audit_tables.TABLES.items()
        },
        question="Do the paper's printed numbers follow from each other?",
    ),
)
