"""The parts of the report, in its order: which study, which builder, which files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pandas as pd

from kaestat.report.plots import render
from paper_figures.audit import tables as audit_tables
from paper_figures.report import side_by_side, table_findings
from paper_figures.shared import paper
from paper_figures.shared.finding import Finding
from paper_figures.studies import (
    assumption6,
    best_baselines,
    coverage,
    coverage_few,
    efficiency,
    gradient,
    methods,
    one_shot,
    rates,
    regret,
    sampling,
    schedule,
    selectors,
    sensitivity,
    table1,
    table2,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONG = 20  # rows from which a table is folded


@dataclass(frozen=True, eq=False)
class PageTable:
    """A table of the report.

    Attributes
    ----------
    caption : str
    frame : DataFrame
        Text cells.
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
class Section:
    """A part of the report. Its functions take the study's summary.

    Attributes
    ----------
    name : str
        Of its anchor, and of its files if nothing else is said.
    title : str
    study : str
        Name of the study; empty if it needs none, and then its functions get an empty summary.
    write : callable
        ``write(summary, folder)``.
    findings : callable
        Gives a list of `Finding`.
    tables : callable
        Gives a list of `PageTable`.
    figure : callable or None
    csv, printed : tuple of str
        Names of the files ``NAME.csv`` and ``tables/NAME.{md,tex}`` that ``write`` leaves.
    question : str
        What it is about; empty for the study's aims.
    bars : str
        What the error bars of the figure are.
    """

    name: str
    title: str
    study: str
    write: Callable[[pd.DataFrame, str | os.PathLike], None]
    findings: Callable[[pd.DataFrame], list[Finding]]
    tables: Callable[[pd.DataFrame], list[PageTable]]
    figure: Callable[[pd.DataFrame], Figure] | None
    csv: tuple[str, ...]
    printed: tuple[str, ...]
    question: str = ""
    bars: str = "Bars are 95 % Monte Carlo intervals."

    def files(self) -> tuple[str, ...]:
        """Paths of all its files, relative to the folder of the report."""
        drawn = [f"figures/{self.name}.{kind}" for kind in ("png", "pdf")] if self.figure is not None else []
        texts = [f"tables/{name}.{kind}" for name in self.printed for kind in ("md", "tex")]
        return (*(f"{name}.csv" for name in self.csv), *texts, *drawn)

    def remove_files(self, folder: Path) -> None:
        """Remove what an earlier run left, so that nothing there is older than the report."""
        for name in self.files():
            (folder / name).unlink(missing_ok=True)

    def build(self, summary: pd.DataFrame, folder: Path) -> Built:
        """Write its files; return what the page shows."""
        self.write(summary, folder)
        figure = None if self.figure is None else self.figure(summary)
        return Built(
            findings=self.findings(summary),
            tables=self.tables(summary),
            svg=b"" if figure is None else render(figure, "svg"),
            width=0.0 if figure is None else figure.get_figwidth(),
        )


@dataclass(frozen=True, eq=False)
class Built:
    """What the page shows of a section.

    Attributes
    ----------
    findings : list of Finding
    tables : list of PageTable
    svg : bytes
        The figure; empty if there is none.
    width : float
        Its width in inches.
    """

    findings: list[Finding]
    tables: list[PageTable]
    svg: bytes
    width: float


def _simple(title: str, study: str, builder: ModuleType, *, csv: tuple[str, ...] = (), question: str = "") -> Section:
    """A section with one table and one figure, all from one builder."""
    name = builder.__name__.rpartition(".")[2]
    return Section(
        name=name,
        title=title,
        study=study,
        write=builder.write,
        findings=builder.findings,
        tables=lambda summary: [PageTable(builder.CAPTION, builder.shown(summary))],
        figure=builder.figure,
        csv=(name, *csv),
        printed=(name,),
        question=question,
    )


def _table1(summary: pd.DataFrame) -> list[PageTable]:
    return [
        PageTable(
            "Value MSE (x 0.001). Inputs: the REINFORCE++ and GRPO rows, which the populations are solved from, "
            "N_oracle = 48, 256 prompts and Beta-distributed success rates. Predicted: KAE's row, and all reductions. "
            "Debiased is free of the oracle pool's noise; sd of one run is that of a single run of the diagnostic, "
            "which bounds what agreement can be asked for.",
            side_by_side.entries(table1.entries(summary)),
        ),
        PageTable(
            "KAE's reductions of the value MSE, all predicted.", side_by_side.reductions(table1.reductions(summary))
        ),
    ]


def _table2(summary: pd.DataFrame) -> list[PageTable]:
    return [
        PageTable(
            "KAE's reductions of the gradient MSE, all predicted from the populations of Table 1.",
            side_by_side.reductions(table2.reductions(summary)),
        ),
        PageTable(
            "Gradient MSE in the bandit's units (scores of norm 1; x 0.001), and as the paper prints it. Levels depend "
            "on the model's score norms and predict nothing. Inputs: those of Table 1, and N_ref = 512.",
            side_by_side.levels(table2.table(summary), paper.table2()),
        ),
    ]


def _audit(summary: pd.DataFrame) -> list[PageTable]:
    return [
        PageTable(
            audit_tables.CAPTIONS[name], audit_tables.shown(frame).rename(columns=lambda head: head.replace("_", " "))
        )
        for name, frame in audit_tables.tables().items()
    ]


SECTIONS = (
    Section(
        name="table1",
        title="Table 1: MSE of the value",
        study="table1",
        write=table1.write,
        findings=table_findings.of_table1,
        tables=_table1,
        figure=None,
        csv=("table1", "table1_entries", "table1_reductions"),
        printed=("table1",),
    ),
    Section(
        name="table2",
        title="Table 2: MSE of the gradient",
        study="table2",
        write=table2.write,
        findings=table_findings.of_table2,
        tables=_table2,
        figure=None,
        csv=("table2", "table2_reductions", "table2_verdicts"),
        printed=("table2",),
    ),
    Section(
        name="sensitivity",
        title="Sensitivity to kernel and bandwidth",
        study="sensitivity",
        write=sensitivity.write,
        findings=table_findings.of_sensitivity,
        tables=lambda summary: [PageTable(sensitivity.CAPTION, sensitivity.shown(summary))],
        figure=sensitivity.figure,
        csv=("sensitivity",),
        printed=("sensitivity",),
        bars="Bands hold 95 % of single runs of the diagnostic with 256 prompts; Monte Carlo errors are far smaller.",
    ),
    _simple("Theorem 1: rates of value estimation", "value_rates", rates, csv=("rates_points",)),
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
    _simple("All methods, and the Bayes filter bound", "all_methods", methods),
    Section(
        name="efficiency",
        title="Which default: every method against the best achieved",
        study="efficiency",
        write=efficiency.write,
        findings=efficiency.findings,
        tables=lambda summary: [
            PageTable(efficiency.CAPTIONS["efficiency"], efficiency.shown(summary)),
            PageTable(efficiency.CAPTIONS["efficiency_settings"], efficiency.shown_settings(summary)),
        ],
        figure=efficiency.figure,
        csv=("efficiency", "efficiency_worst"),
        printed=("efficiency", "efficiency_settings"),
    ),
    Section(
        name="sampling",
        title="Sampling prompts by their predicted values",
        study="sampling",
        write=sampling.write,
        findings=sampling.findings,
        tables=lambda summary: [
            PageTable(sampling.CAPTIONS["sampling"], sampling.shown(summary)),
            PageTable(sampling.CAPTIONS["sampling_learning"], sampling.shown_learning(summary)),
            PageTable(sampling.CAPTIONS["sampling_optima"], sampling.shown_optima(summary)),
        ],
        figure=sampling.figure,
        csv=("sampling", "sampling_learning", "sampling_optima"),
        printed=("sampling", "sampling_learning", "sampling_optima"),
    ),
    _simple("Bandwidth selectors", "bandwidth_selectors", selectors),
    _simple("Confidence intervals for a value", "interval_coverage", coverage),
    _simple("Confidence intervals from few visits", "interval_few_visits", coverage_few),
    Section(
        name="audit",
        title="Audit of the paper's own numbers",
        study="",
        write=lambda summary, folder: audit_tables.write(folder),
        findings=lambda summary: table_findings.of_audit(),
        tables=_audit,
        figure=None,
        csv=tuple(audit_tables.CAPTIONS),
        printed=tuple(audit_tables.CAPTIONS),
    ),
)
