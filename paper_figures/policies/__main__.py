"""``python -m paper_figures.policies results/studies/NAME``: figure and tables of a study of policies."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

try:
    import pandas as pd
    import typer

    from llm_experiments.study.advice import without_history
    from llm_experiments.study.config import StudyConfig
    from llm_experiments.study.contrasts import POOLED, best_groups, differences, speed
    from llm_experiments.study.noise.summary import noise_levels, noise_ratios, rank_correlations
    from llm_experiments.tasks.cells import KINDS
    from paper_figures.policies.advice import CAPTION as ADVICE_CAPTION
    from paper_figures.policies.advice import METRIC, advice_table
    from paper_figures.policies.confirmation import CAPTION as CONFIRMATION_CAPTION
    from paper_figures.policies.confirmation import confirmation_table
    from paper_figures.policies.figures import figure
    from paper_figures.policies.noise import (
        BASE_NORMS_CAPTION,
        CORRELATION_CAPTION,
        EFFECTS_CAPTION,
        NOISE_CAPTION,
        NORMS_CAPTION,
        correlation_table,
        effects_table,
        noise_names,
        noise_table,
        norms_table,
    )
    from paper_figures.policies.noise import figure as noise_figure
    from paper_figures.policies.results import read_study
    from paper_figures.policies.tables import (
        AREA_CAPTION,
        CHECK_CAPTION,
        COST_CAPTION,
        END_CAPTION,
        RATES_CAPTION,
        SPEED_CAPTION,
        area_table,
        check_table,
        cost_table,
        end_table,
        numbered,
        rates_table,
        speed_table,
    )
    from paper_figures.shared.output import write_csv, write_figure, write_table
except ImportError as error:
    sys.exit(f"error: {error.name} is not installed; studies of policies need: pip install -e '.[llm,simulations]'")


def build(folder: str | os.PathLike) -> None:
    """Write ``speed.csv``, ``differences.csv``, their tables, and the figure, from the curves in a results folder.

    Raises
    ------
    FileNotFoundError
        If the folder holds no results of a study.
    ValueError
        If they lack the recommended design, or a design on one of the base models.
    """
    folder = Path(folder)
    config, curves, names = read_study(folder)
    rates = pd.read_csv(folder / "rates.csv")
    groups = {base: name for base, name in best_groups(rates, config.designs).items() if base in set(curves["base"])}
    speeds = speed(curves, config.budget, groups)
    gaps = pd.concat([differences(curves, config.budget, each) for each in (config.recommended, groups)])
    write_csv(speeds.round(4), folder, "speed")
    write_csv(gaps.round(5), folder, "differences")
    facts = {
        "reference": names[config.reference],
        "recommended": names[config.recommended],
        "groups": ", ".join(
            f"{list(groups.values()).count(name)} times {names[name]}" for name in sorted(set(groups.values()))
        ),
        "budget": config.budget,
        "bases": numbered(curves["base"].nunique(), "base model"),
        "seeds": numbered(len(config.seeds), "seed"),
        "passes": config.tests.passes,
    }
    write_table(speed_table(speeds, names), folder, "speed", SPEED_CAPTION.format(**facts))
    write_table(area_table(gaps, names), folder, "area", AREA_CAPTION.format(**facts))
    own = gaps[gaps["reference"] == config.recommended]
    write_table(end_table(own, names, config.tests.passes), folder, "end", END_CAPTION.format(**facts))
    caption = RATES_CAPTION.format(seeds=numbered(len(config.rate_seeds), "seed"))
    write_table(rates_table(rates, names), folder, "rates", caption)
    if (folder / "check.csv").is_file():
        write_table(check_table(pd.read_csv(folder / "check.csv"), names), folder, "check", CHECK_CAPTION)
    if (folder / "confirmed.csv").is_file():
        confirmed = pd.read_csv(folder / "confirmed.csv")
        runs = confirmed[confirmed["design"] == config.reference].groupby("base")["seed"].nunique()
        counts = {"bases": numbered(len(runs), "base model"), "seeds": numbered(runs.max(), "seed")}
        caption = CONFIRMATION_CAPTION.format(**facts | {"runs": runs.sum()} | counts)
        table = confirmation_table(confirmed, curves, config.budget, config.reference, names)
        write_table(table, folder, "confirmed", caption)
    if (folder / "cost.csv").is_file():
        cost = pd.read_csv(folder / "cost.csv")
        made = json.loads((folder / "provenance.json").read_text()).get("tables", {}).get("cost.csv", {})
        clock = "processor time on one thread" if made.get("device", "cpu") == "cpu" else "time on one GPU"
        caption = COST_CAPTION.format(turns=cost["turns"].max(), clock=clock, **facts)
        write_table(cost_table(cost, speeds, names), folder, "cost", caption)
    build_base_norms(folder)
    build_advice(folder, config, names)
    write_figure(figure(folder), folder, "curves")
    if (folder / "noise.csv").is_file():
        build_noise(folder, config, speeds, names)


def build_base_norms(folder: Path) -> None:
    """Write the table of score norms in the base models, where they were measured."""
    if not (folder / "base_norms.csv").is_file():
        return
    norms = pd.read_csv(folder / "base_norms.csv", dtype={"kind": pd.CategoricalDtype(KINDS, ordered=True)})
    bases = norms["base"].nunique()
    over = "base" if bases > 1 else "seed"  # pools of one model are all that one model has
    norms = norms.groupby(["kind", over], observed=True).mean(numeric_only=True).reset_index()
    number = norms[over].nunique()
    units = numbered(number, "base model") if bases > 1 else f"{numbered(number, 'pool')} of one base model"
    units += ", with standard errors" if number > 1 else ""
    write_table(norms_table(norms), folder, "base_norms", BASE_NORMS_CAPTION.format(units=units))


def build_advice(folder: Path, config: StudyConfig, names: Mapping[str, str]) -> None:
    """Write the table of what a log would have advised, where rows were kept."""
    if not (folder / "advice.csv").is_file():
        return
    advice, facts = pd.read_csv(folder / "advice.csv"), pd.read_csv(folder / "rows.csv")
    order = pd.read_csv(folder / "advice_order.csv")
    of_runs = (facts["seconds_of_steps"] / facts["stack"]).sum()  # which were made side by side
    caption = ADVICE_CAPTION.format(
        completions=f"{facts['completions'].max():,}",
        recommended=names[config.recommended],
        without=names[without_history(config.designs, config.recommended) or config.rivals[0]],
        seeds=numbered(len(config.seeds), "seed"),
        bases=numbered(advice["base"].nunique(), "base model"),
        designs=order[order["metric"] == METRIC].groupby(["base", "log"]).size().max(),
        share=facts["seconds_of_norms"].sum() / of_runs,
    )
    write_table(advice_table(advice, names), folder, "advice", caption)


def build_noise(folder: Path, config: StudyConfig, speeds: pd.DataFrame, names: Mapping[str, str]) -> None:
    """Write ``noise_ratios.csv``, ``noise_levels.csv``, the tables and the figure of the noise of updates.

    Parameters
    ----------
    folder : Path
        With ``noise.csv``.
    config : StudyConfig
        With ``noise``.
    speeds : DataFrame
        From `llm_experiments.study.contrasts.speed`.
    names : mapping
        Of the designs that were compared.
    """
    assert config.noise is not None
    noise = pd.read_csv(folder / "noise.csv")
    pooled = speeds[(speeds["base"].astype(str) == POOLED) & (speeds["fraction"] == 1)]
    pooled = pooled.set_index("design")[["ratio", "low", "high"]]
    ratios, levels = noise_ratios(noise, config.reference), noise_levels(noise)
    called = noise_names(names)
    write_csv(ratios.round(4), folder, "noise_ratios")
    write_csv(levels.round(6), folder, "noise_levels")
    paths = len(noise.groupby(["base", "seed"]))
    caption = NOISE_CAPTION.format(
        reference=names[config.reference],
        path=names[config.noise.path],
        places=" and ".join(f"{each:,}" for each in sorted(noise["generated"].unique())),
        paths=paths,
    )
    write_table(noise_table(ratios, pooled, called), folder, "noise", caption)
    correlations = rank_correlations(ratios, pooled["ratio"])
    write_table(correlation_table(correlations), folder, "noise_ranks", CORRELATION_CAPTION)
    effects = effects_table(levels, config.completions, called)
    write_table(effects, folder, "noise_effects", EFFECTS_CAPTION.format(paths=paths))
    norms = pd.read_csv(folder / "score_norms.csv")
    facts = {"path": names[config.noise.path], "place": f"{norms['generated'].min():,}", "paths": paths}
    write_table(norms_table(norms), folder, "score_norms", NORMS_CAPTION.format(**facts))
    write_figure(noise_figure(folder), folder, "noise")


def main(folder: Annotated[Path, typer.Argument(help="Results folder of a study.")]) -> None:
    """Build the figure and the tables of a study of policies."""
    try:
        build(folder)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"Tables and figures: {folder.resolve()}")


if __name__ == "__main__":
    typer.run(main)
