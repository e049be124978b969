"""``python -m paper_figures.studies.staleness``: whether staleness hurts, from study ``staleness``.

The study takes minutes, so `make reproduce` leaves it out; its tables are kept in ``results/studies/staleness``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd

try:
    import typer
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; the studies need: pip install -e '.[simulations]'")

from kaestat.core.result_tables import table_file
from kaestat.core.storage import write_atomically
from kaestat.report.plots import STYLE
from paper_figures.shared.charts import (
    BLACK,
    BLUE,
    GREEN,
    PURPLE,
    SKY,
    VERMILION,
    Mark,
    error_bars,
    key,
    plain_log,
)
from paper_figures.shared.finding import Finding, above, below, equal
from paper_figures.shared.output import write_csv, write_table
from paper_figures.shared.tidy import by_measure, span, with_error
from simulations.harness import RunSettings, run
from simulations.studies.staleness import CONTRASTS, ERRORS, LIMIT, SPEEDS, STUDY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEED, SCALE = 1, 2.0  # the first look was at seed 0; twelve replicates
SETTING = ["speed", "arrival", "staleness"]
KINDS = tuple(error.removesuffix("_mse") for error in ERRORS)
LABELS = {
    "kae_eb": "KAE-EB, version handed on",
    "kae_eb, by arrival": "KAE-EB, recorded by arrival",
    "kae, both sides": "KAE, version, both sides (no option)",
    "bayes_filter, by arrival": "Bayes filter, recorded by arrival",
    "rloo": "RLOO (GRPO's mean, own left out)",
    "kae_eb, reweighted, by arrival": "KAE-EB by arrival, with importance",
    "rloo, reweighted": "RLOO, with importance",
    "value now": "True value of the trained policy",
    "value then": "True value of the sampling policy",
}
MARKS = {
    "kae_eb": Mark(VERMILION, "s"),
    "kae_eb, by arrival": Mark(BLUE, "o"),
    "kae, both sides": Mark(SKY, "^", filled=False),
    "bayes_filter, by arrival": Mark(GREEN, "D"),
    "rloo": Mark(BLACK, "x"),
    "kae_eb, reweighted, by arrival": Mark(BLUE, "o", filled=False),
    "rloo, reweighted": Mark(BLACK, "s", filled=False),
    "value now": Mark(PURPLE, "v"),
    "value then": Mark(PURPLE, "^", filled=False),
}
VALUES = tuple(MARKS)[:5]
REWEIGHTED = ("kae_eb, by arrival", *tuple(MARKS)[5:])
SHOWN = ("medium", "spread")
CAPTION = (
    "Value MSE x 0.001 by mean lateness in steps, medium speed, groups late by anything from 0 to twice that; and MSE "
    "of the gradient at eight steps, without and with importance weights, relative to RLOO's (Monte Carlo standard "
    "errors)."
)


def errors(summary: pd.DataFrame) -> pd.DataFrame:
    """Every setting and way: its errors, and these relative to staleness 0 and to RLOO at the same staleness.

    Parameters
    ----------
    summary : DataFrame
        Of the study.

    Returns
    -------
    DataFrame
        ``speed, arrival, staleness, method``, then ``KIND_mse, KIND_to_fresh, KIND_to_rloo`` for the value, the
        gradient and the reweighted gradient, each with its ``_mcse``.
    """
    own = summary[~summary["method"].isin(CONTRASTS)]
    frame = by_measure(
        own, [*SETTING, "method"], [f"{kind}_{end}" for end in ("mse", "to_rloo") for kind in reversed(KINDS)]
    )
    fresh = placed(summary, "to_fresh")
    return frame.merge(fresh, how="left", on=[*SETTING, "method"])


def placed(summary: pd.DataFrame, end: str) -> pd.DataFrame:
    """Ratios of different settings, whose place stands in the method's name; a column for each kind of error."""
    rows = summary[summary["method"].str.contains(" @ ", na=False)]
    parts = rows["method"].str.extract(r"^(?P<method>.*) @ (?P<arrival>\w+) (?P<staleness>\d+)$")
    rows = rows.assign(method=parts["method"], arrival=parts["arrival"], staleness=parts["staleness"].astype(int))
    return by_measure(rows, [*SETTING, "method"], [f"{kind}_{end}" for kind in reversed(KINDS)]).drop(columns="n")


def contrasts(summary: pd.DataFrame) -> pd.DataFrame:
    """Ratios of the errors of two ways in one setting: ``value_ratio, gradient_ratio, reweighted_ratio``."""
    rows = summary[summary["method"].isin(CONTRASTS)]
    return by_measure(rows, [*SETTING, "method"], [f"{kind}_ratio" for kind in reversed(KINDS)])


def waiting(summary: pd.DataFrame) -> pd.DataFrame:
    """Every way without waiting, relative to itself and to RLOO when groups are waited for."""
    return placed(summary, "to_waiting").merge(placed(summary, "to_rloo_waiting"), on=[*SETTING, "method"])


def settings(summary: pd.DataFrame) -> pd.DataFrame:
    """Mean lateness, and the bias of the gradient without importance weights as a share of the squared gradient."""
    return by_measure(summary[summary["method"] == ""], SETTING, ["lateness", "bias_to_gradient"])


def tables(summary: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """All of it, by the names of the files; numbers to six digits."""
    summary = summary.assign(method=summary["method"].fillna(""))
    made = {"errors": errors, "contrasts": contrasts, "waiting": waiting, "settings": settings}
    return {name: _plain(build(summary)) for name, build in made.items()}


def findings(made: dict[str, pd.DataFrame]) -> list[Finding]:
    """What was asked before the run, and what came out."""
    error, pairs = (made[name].query("staleness > 0").set_index("method") for name in ("errors", "contrasts"))
    alone = made["waiting"].set_index("method").loc["kae_eb, by arrival"]
    arrived, handed = (error.loc[way] for way in ("kae_eb, by arrival", "kae_eb"))
    true, weighted = (
        pairs.loc[name].query("speed == 'fast'") for name in ("now to then", "importance to none, by arrival")
    )
    both = pairs.loc["both sides to arrival"].query("arrival != 'together'")
    at_speed = both.query("speed == 'fast' and arrival == 'spread'")
    to_versions = pairs.loc["arrival to version, kae_eb"].query("arrival == 'spread'")
    return [
        Finding(claim, verdict(rows[column], rows[f"{column}_mcse"], limit), f"{span(rows[column])} times")
        for claim, verdict, rows, column, limit in (
            (
                "Equally late completions cost a history by arrival nothing",
                equal,
                arrived.query("arrival == 'together'"),
                "value_to_fresh",
                1.0,
            ),
            ("Nor one with versions", equal, handed.query("arrival == 'together'"), "value_to_fresh", 1.0),
            (
                f"Spread groups cost one with versions less than {LIMIT - 1:.0%} of its value MSE",
                below,
                handed.query("arrival == 'spread'"),
                "value_to_fresh",
                LIMIT,
            ),
            ("Spread groups cost more by arrival than with versions", above, to_versions, "value_ratio", 1.0),
            ("Both sides of the version have the better values at speed", below, at_speed, "value_ratio", 1.0),
            ("And gradients", below, at_speed, "gradient_ratio", 1.0),
            (
                "At other speeds both sides save less than 1 % of the gradient's MSE",
                above,
                both.query("speed != 'fast'"),
                "gradient_ratio",
                0.99,
            ),
            (
                "With importance weights both sides leave the gradient worse at speed",
                above,
                at_speed,
                "reweighted_ratio",
                1.0,
            ),
            ("A history by arrival is better than RLOO in every setting", below, arrived, "value_to_rloo", 1.0),
            ("Without importance weights, predict the sampling policy's value", above, true, "gradient_ratio", 1.0),
            ("With importance weights, the trained policy's", below, true, "reweighted_ratio", 1.0),
            ("Importance weights in the baseline pay at speed", below, weighted, "reweighted_ratio", 1.0),
            ("A history that does not wait beats RLOO that does", below, alone, "gradient_to_rloo_waiting", 1.0),
        )
    ]


def shown(made: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """A row for each way whose values are drawn."""
    frame = setting(made["errors"], *SHOWN).set_index(["method", "staleness"])
    late = sorted(frame.index.get_level_values("staleness").unique())
    rows = []
    for way in VALUES:
        cells = [1e3 * frame.loc[(way, steps), ["value_mse", "value_mse_mcse"]] for steps in late]
        cells += [frame.loc[(way, late[-1]), [f"{k}_to_rloo", f"{k}_to_rloo_mcse"]] for k in KINDS[1:]]
        rows.append((LABELS[way], *(with_error(*cell) for cell in cells)))
    return pd.DataFrame(rows, columns=["Way", *(str(steps) for steps in late), "Gradient", "Reweighted"])


def setting(errors: pd.DataFrame, speed: str, arrival: str) -> pd.DataFrame:
    """The rows of a speed and an arrival, and those of staleness 0."""
    return errors[(errors["speed"] == speed) & (errors["arrival"].eq(arrival) | errors["staleness"].eq(0))]


def figure(made: dict[str, pd.DataFrame]) -> Figure:
    """Value MSE and MSE of the reweighted gradient by lateness, groups spread; a column of panels for each speed."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(12.0, 7.2), layout="constrained")
        panels = drawing.subplots(2, len(SPEEDS), sharex=True)
        for column, speed in enumerate(SPEEDS):
            frame = setting(made["errors"], speed, "spread")
            _draw(panels[0, column], frame, VALUES, "value_mse", 1e3)
            _draw(panels[1, column], frame, REWEIGHTED, "reweighted_to_rloo", 1.0)
            drift = SPEEDS[speed][0]
            panels[0, column].set_title(f"{speed.capitalize()}: {drift:g} logits a step", loc="left", fontweight="bold")
            panels[1, column].set_xlabel("Mean lateness (steps)")
        panels[0, 0].set_ylabel("Value MSE (× 0.001, log scale)")
        panels[1, 0].set_ylabel("MSE of the reweighted gradient / RLOO's")
        ways = dict.fromkeys((*VALUES, *REWEIGHTED))
        keys = [key(MARKS[way], LABELS[way], linestyle="-") for way in ways]
        drawing.legend(handles=keys, loc="outside lower center", ncols=3, frameon=False)
    return drawing


def read(folder: str | os.PathLike) -> dict[str, pd.DataFrame]:
    """The tables that `write` left."""
    names = ("errors", "contrasts", "waiting", "settings")
    return {name: pd.read_csv(table_file(Path(folder) / f"{name}.csv")) for name in names}


def write(made: dict[str, pd.DataFrame], folder: str | os.PathLike) -> None:
    """Write the tables, what is found, and the table of the page."""
    for name, frame in made.items():
        write_csv(frame, folder, "errors.csv.gz" if name == "errors" else name)
    write_csv(pd.DataFrame(findings(made))[["claim", "verdict", "evidence"]], folder, "findings")
    write_table(shown(made), folder, "staleness", CAPTION)


def main(
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("results/simulations"),
    out: Annotated[Path, typer.Option(help="Folder of the tables.")] = Path("results/studies/staleness"),
    scale: Annotated[float, typer.Option(help="Factor on the number of replicates.")] = SCALE,
    jobs: Annotated[int, typer.Option(help="Workers.")] = 2,
) -> None:
    """Run the study, or go on with it, and write its tables."""
    result = run(STUDY, RunSettings(out=runs, seed=SEED, scale=scale, jobs=jobs))
    if result.failures:
        sys.exit(f"error: {len(result.failures)} parts failed, first: {result.failures[0]['error']}")
    write(tables(result.summary), out)
    write_atomically(out / "provenance.json", (result.folder / "provenance.json").read_text())
    print(f"Tables: {out.resolve()}")


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    numbers = frame.select_dtypes("float").columns.drop("staleness", errors="ignore")
    short = frame[numbers].map(lambda number: float(f"{number:.6g}"))
    return frame.assign(staleness=frame["staleness"].astype(int), **short)


def _draw(axes: Axes, frame: pd.DataFrame, ways: tuple[str, ...], column: str, scale: float) -> None:
    late = sorted(frame["staleness"].unique())
    for way in ways:
        rows = frame[frame["method"] == way].sort_values("staleness")
        y, error = scale * rows[column], scale * rows[f"{column}_mcse"]
        error_bars(axes, range(len(late)), y, error, MARKS[way], linestyle="-", linewidth=1.2)
    axes.set_xticks(range(len(late)), [f"{s:g}" for s in late])
    if scale != 1.0:
        plain_log(axes.yaxis)


if __name__ == "__main__":
    typer.run(main)
