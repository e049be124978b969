"""``python -m paper_figures.training.beside_paper ARTEFACT FOLDER...``: one's own runs beside the paper's.

Of accuracies, seeds of a variant are pooled. The standard error joins that over problems, with all completions of all
seeds of a problem as one cluster, and that over seeds; with a single seed the second is not known, and is left out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd

try:
    import typer

    from paper_figures.shared import paper
    from paper_figures.shared.output import markdown, write_csv, write_figure, write_table
    from paper_figures.training import errors_beside
    from paper_figures.training.figures import panels
    from paper_figures.training.results import method_label, read_results, variants_of
    from paper_figures.training.tables import final_table
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; tables need: pip install -e '.[simulations]'")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETS = {"aime24": "aime24", "aime25": "aime25", "amc": "amc", "math500": "math", "minerva": "minerva"}
SETS |= {"olympiadbench": "olympiad"}  # name here -> in the paper's table
AVERAGE = "average"
CAPTION = (
    "Table {number}: ours with standard errors over problems and seeds, and the paper's after the bar. The average is "
    "over the paper's six sets; it is left out where some were not asked."
)


def pooled(folders: list[Path]) -> pd.DataFrame:
    """Accuracy of the runs of one variant, a row for each set and for the paper's average.

    folders: Results of their evaluations.
    Returns: ``set, accuracy, se, se_problems, se_seeds, n_seeds``; se_seeds is NaN with one seed.
    """
    rewards = [
        pd.read_csv(folder / "problems.csv").groupby(["set", "problem"], sort=False)["reward"] for folder in folders
    ]
    by_problem = pd.concat([each.mean() for each in rewards], axis=1)
    lacking = by_problem.index[by_problem.isna().any(axis=1)]
    if len(lacking):
        raise ValueError(
            f"set {lacking[0][0]}: the seeds were evaluated on different problems; evaluate all on the same."
        )
    over_problems = by_problem.mean(axis=1).groupby("set", sort=False)
    by_seed = by_problem.groupby("set", sort=False).mean()
    accuracy = pd.DataFrame({"accuracy": over_problems.mean(), "se_problems": over_problems.sem()})
    accuracy["se_seeds"] = by_seed.sem(axis=1)
    if set(SETS) <= set(accuracy.index):
        six = accuracy.loc[list(SETS)]
        se = np.sqrt((six["se_problems"] ** 2).sum()) / len(SETS)  # the sets are independent samples
        accuracy.loc[AVERAGE] = [six["accuracy"].mean(), se, by_seed.loc[list(SETS)].mean().sem()]
    accuracy["se"] = np.sqrt(accuracy["se_problems"] ** 2 + accuracy["se_seeds"].fillna(0) ** 2)
    columns = ["set", "accuracy", "se", "se_problems", "se_seeds", "n_seeds"]
    return accuracy.assign(n_seeds=len(folders)).rename_axis("set").reset_index()[columns]


def beside_paper(number: int, evaluations: dict[tuple[str, int], list[Path]]) -> pd.DataFrame:
    """Ours and the paper's, a row for each variant and set.

    number: 3 or 4.
    evaluations: From method and reuse to the results folders of the seeds' evaluations.
    Returns: ``method, reuse``, the columns of `pooled`, and ``paper``: the paper's number, NaN where it has none.
    """
    printed = paper.accuracies()
    printed = printed[printed["table"] == number].set_index(["method", "benchmark"])["accuracy"]
    parts = []
    for (method, reuse), folders in evaluations.items():
        part = pooled(folders)
        name = method.partition(":")[0]
        # The paper trains KAE on its schedule, and the others without.
        theirs = (name == "kae") == (reuse > 1)
        keys = [(name, SETS.get(each, each)) for each in part["set"]]
        part["paper"] = [printed.get(key, np.nan) if theirs else np.nan for key in keys]
        part.insert(0, "reuse", reuse)
        part.insert(0, "method", method)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Text cells: variants in rows, sets in columns."""
    rows = []
    for (method, reuse), part in frame.groupby(["method", "reuse"], sort=False):
        row = {"Method": method_label(method) + (f", J = {reuse}" if reuse > 1 else "")}
        for each in part.itertuples():
            name = paper.LABELS.get(SETS.get(each.set, each.set), each.set)
            ours = f"{each.accuracy:.4f}" + ("" if np.isnan(each.se) else f" ± {each.se:.4f}")
            row[name] = ours if np.isnan(each.paper) else f"{ours} / {each.paper:.4f}"
        rows.append(row)
    return pd.DataFrame(rows)


def curves_beside(folder: Path, artefact: str) -> tuple[Figure, pd.DataFrame]:
    """The paper's figure from an experiment's runs, and what they reach."""
    found = read_results(folder, ("tests", "curves", "final", "differences"))
    sampled, greedy = ("tests", "accuracy", "Test accuracy, sampled"), ("tests", "greedy", "Test accuracy, greedy")
    shown = [("curves", "mean_reward", "Training reward"), sampled] if artefact == "figure1" else [sampled, greedy]
    shown = [panel for panel in shown if found[panel[0]][panel[1]].notna().any()]  # verl takes no greedy answers
    row = [(found[table], column, name) for table, column, name in shown]
    return panels([row], variants_of(found["tests"])), final_table(found["final"], found["differences"])


def write_accuracies(table: str, folders: list[Path], variant: list[str], out: Path) -> str:
    """Write a table of accuracies; its text."""
    if len(variant) != len(folders):
        raise ValueError(f"{len(folders)} folders and {len(variant)} variants; give one for each.")
    evaluations: dict[tuple[str, int], list[Path]] = {}
    for folder, text in zip(folders, variant, strict=True):
        method, _, reuse = text.rpartition("|")
        evaluations.setdefault((method, int(reuse)), []).append(folder)
    frame = beside_paper(int(table[-1]), evaluations)
    return _write(frame, shown(frame), CAPTION.format(number=table[-1]), out, table)


def write_errors(table: str, folders: list[Path], out: Path) -> str:
    """Write a table of errors; its text."""
    number = int(table[-1])
    frame = errors_beside.errors_beside(number, folders)
    caption = errors_beside.CAPTION.format(number=number, unit=errors_beside.UNITS[number])
    return _write(frame, errors_beside.shown(frame), caption, out, table)


def _write(frame: pd.DataFrame, cells: pd.DataFrame, caption: str, out: Path, name: str) -> str:
    write_csv(frame, out, name)
    write_table(cells, out, name, caption)
    return markdown(cells, caption)


def write_curves(artefact: str, folders: list[Path], out: Path) -> str:
    """Write figures, and what is reached as tables; their text."""
    said = []
    for folder in folders:
        drawing, reached = curves_beside(folder, artefact)
        name = f"{artefact}_{folder.name}"
        write_figure(drawing, out, name)
        caption = f"{artefact}, {folder.name}: accuracy reached. The paper prints its curves without numbers."
        write_table(reached, out, name, caption)
        said.append(markdown(reached, caption))
    return "\n".join(said)


def main(
    artefact: Annotated[str, typer.Argument(help="table1 to table4, figure1, single-stream or ablation.")],
    folders: Annotated[list[Path], typer.Argument(help="Results folders: diagnostics, evaluations or experiments.")],
    variant: Annotated[list[str] | None, typer.Option(help="METHOD|J of each evaluation, in their order.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the table or figure.")] = Path("results/beside_paper"),
) -> None:
    """Write the table or figure, and print what it says."""
    try:
        if artefact in ("table1", "table2"):
            said = write_errors(artefact, folders, out)
        elif artefact in ("table3", "table4"):
            said = write_accuracies(artefact, folders, variant or [], out)
        elif artefact in ("figure1", "single-stream", "ablation"):
            said = write_curves(artefact, folders, out)
        else:
            raise ValueError(f"artefact {artefact!r}: give table1 to table4, figure1, single-stream or ablation.")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(said)


if __name__ == "__main__":
    typer.run(main)
