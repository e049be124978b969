"""Where to spend completions, with feedback: study ``sampling``."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from kaestat.report.plots import STYLE
from kaestat.sampling import POLICIES
from paper_figures.shared.charts import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, Mark, error_bars, key
from paper_figures.shared.comparison import NORMAL_975
from paper_figures.shared.finding import Finding, above, below, critical, equal
from paper_figures.shared.tidy import by_measure, span, with_error
from simulations.studies.sampling import CHECKPOINTS, EDGES, REFERENCE, STEPS, WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BIAS = ("squared_bias", "squared_bias_uncorrected", "along", "variance_to_formula", "worth")
ALIKE = ("uniform", "dapo", "pools")  # the last visit of one completion is right or wrong: its pools weigh alike
NAMES = {
    "grpo": "GRPO, G = 8, uniform",
    "uniform": "KAE-EB, G = 1, uniform",
    "neyman": "KAE-EB, G = 1, Neyman",
    "neyman, clipped": "KAE-EB, G = 1, Neyman, clipped",
    "neyman, uncorrected": "KAE-EB, G = 1, Neyman, uncorrected",
    "near_half": "GRPO, G = 8, near_half as published",
    "mopps": "GRPO, G = 8, mopps as published",
}
MARKS = {
    "grpo": Mark(VERMILION, "s"),
    "uniform": Mark(BLACK, "x"),
    "neyman": Mark(BLUE, "o"),
    "neyman, clipped": Mark(SKY, "D", filled=False),
    "neyman, uncorrected": Mark(GREEN, "^", filled=False),
    "near_half": Mark(ORANGE, "v"),
    "mopps": Mark(PURPLE, "D"),
}
CORRECTED, UNCORRECTED = MARKS["neyman"], MARKS["neyman, uncorrected"]
OPTIMA = {"start": "Before training", "value": "Corrected", "uncorrected": "Uncorrected"}
CAPTIONS = {
    "sampling": "Many draws from one state under every policy with a floor of 0.1: squared bias of the mean gradient "
    "estimate, as a share of the squared gradient, with the correction and without; deviation along the gradient; "
    "variance relative to the formula; and how many times as many uniformly drawn completions would be as precise "
    "(Monte Carlo standard errors over states).",
    "sampling_learning": f"Mean value after so many steps of an equal number of completions, and the last one less "
    f"that of {NAMES[REFERENCE]} on the same problems (Monte Carlo standard errors). Of solved: what prompts of value "
    "above .98 get, relative to uniform sampling; least: the least that any prompt gets at any step.",
    "sampling_optima": "Where two kinds of prompts conflict: values at the optimum of the mean value, which corrected "
    "sampling maximises, and of what sampling by the deviation maximises without the correction.",
}


def table(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each policy.

    summary: Of the study ``sampling``.
    Returns: ``method``, then ``squared_bias, squared_bias_uncorrected, along, variance_to_formula, worth``, each with
        its ``_mcse``, and ``n``.
    """
    return by_measure(summary, ["method"], BIAS).set_index("method").loc[list(POLICIES)].reset_index()


def learning(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each way: ``method, objective_STEP, least, of_solved, difference, gain_K``, each with its ``_mcse``."""
    objectives = tuple(f"objective_{step}" for step in CHECKPOINTS)
    gains = tuple(f"gain_{place}" for place in range(len(EDGES) - 1))
    frame = by_measure(summary, ["method"], (*objectives, "least", "of_solved", "difference", *gains))
    return frame.set_index("method").loc[list(WAYS)].reset_index()


def optima(summary: pd.DataFrame) -> pd.DataFrame:
    """Before training and at both optima: ``method, value, mastered, middling, share_of_gain``."""
    frame = by_measure(summary, ["method"], ("value", "mastered", "middling", "share_of_gain"))
    return frame.set_index("method").loc[list(OPTIMA)].reset_index()


def shown(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each policy."""
    heads = ["Squared bias", "Uncorrected", "Along the gradient", "Variance to formula", "Worth"]
    return _text(table(summary), BIAS, heads, "Policy", {})


def shown_learning(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for each way."""
    steps = CHECKPOINTS[1:]
    columns = (*(f"objective_{step}" for step in steps), "difference", "of_solved", "least")
    heads = [*(f"After {step}" for step in steps), "To uniform", "Of solved", "Least"]
    return _text(learning(summary), columns, heads, "Way", NAMES)


def shown_optima(summary: pd.DataFrame) -> pd.DataFrame:
    """A row for the start and for each optimum."""
    heads = ["Mean value", "Mastered", "Middling", "Share of the gain"]
    return _text(optima(summary), ("value", "mastered", "middling", "share_of_gain"), heads, "Optimum", OPTIMA)


def findings(summary: pd.DataFrame) -> list[Finding]:
    """Bias with the correction and without, the formula, what is learned, and what is given up."""
    drawn, learned, best = (f(summary).set_index("method") for f in (table, learning, optima))
    changed = drawn.drop(index=list(ALIKE))
    ways = learned.drop(index=REFERENCE)
    kept = best.loc["uncorrected"]
    ours = learned.loc["neyman"]
    return [
        Finding(
            "The corrected gradient is unbiased under every policy",
            equal(drawn["along"], drawn["along_mcse"], 0.0),
            f"deviation along the gradient at most {(drawn['along'] / drawn['along_mcse']).abs().max():.1f} standard "
            f"errors, which {critical(len(drawn)):.1f} would be within",
        ),
        Finding(
            "Without the correction it is biased wherever the policy is not uniform",
            above(changed["squared_bias_uncorrected"], changed["squared_bias_uncorrected_mcse"]),
            f"squared bias {span(changed['squared_bias_uncorrected'])} times the squared gradient",
        ),
        Finding(
            "Its variance is that of the formula",
            equal(drawn["variance_to_formula"], drawn["variance_to_formula_mcse"], 1.0),
            f"{span(drawn['variance_to_formula'])} times",
        ),
        Finding(
            "No prompt gets less than its floor",
            below([0.1 - 1e-9 - ours["least"]], [0.0]),
            f"at least {ours['least']:.3f} of its share; solved prompts get {ours['of_solved']:.2f} of theirs",
        ),
        Finding(
            "Neyman sampling learns more from equal completions than uniform sampling",
            above([ours["difference"]], [ours["difference_mcse"]]),
            f"mean value after {STEPS} steps higher by {with_error(ours['difference'], ours['difference_mcse'])}",
        ),
        Finding(
            "GRPO in groups of eight, uniform or with a published policy, learns less from equal completions",
            below(*(ways.loc[["grpo", "near_half", "mopps"], c] for c in ("difference", "difference_mcse"))),
            f"lower by {span(-ways.loc[['grpo', 'near_half', 'mopps'], 'difference'])}",
        ),
        Finding(
            "Uncorrected sampling gives up a part of what could be gained where prompts conflict",
            below([kept["share_of_gain"]], [kept["share_of_gain_mcse"]], 1.0),
            f"{with_error(kept['share_of_gain'], kept['share_of_gain_mcse'])} of the gain is kept",
        ),
    ]


def figure(summary: pd.DataFrame) -> Figure:
    """Bias by policy, learning curves, what values gain by where they began, and both optima where prompts conflict."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(12.0, 8.2), layout="constrained")
        (first, second), (third, fourth) = drawing.subplots(2, 2)
        _draw_bias(first, table(summary))
        _draw_learning(second, third, learning(summary))
        _draw_optima(fourth, optima(summary))
        for axes, letter in zip((first, second, third, fourth), "abcd", strict=True):
            axes.set_title(f"({letter}) {axes.get_title(loc='left')}", loc="left", fontsize=10, fontweight="bold")
        keys = [key(MARKS[way], name, linestyle="-") for way, name in NAMES.items()]
        keys += [key(CORRECTED, "With the correction"), key(UNCORRECTED, "Without")]
        drawing.legend(handles=keys, loc="outside lower center", ncols=3, frameon=False)
    return drawing


def _draw_bias(axes: Axes, frame: pd.DataFrame) -> None:
    place = np.arange(len(frame))
    for column, mark, shift in (("squared_bias", CORRECTED, -0.12), ("squared_bias_uncorrected", UNCORRECTED, 0.12)):
        bars = {"xerr": NORMAL_975 * frame[f"{column}_mcse"], "linestyle": "", "capsize": 2, "elinewidth": 1}
        axes.errorbar(frame[column], place + shift, **bars, **mark.style)
    axes.axvline(0.0, color=GREY, linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.3, linscale=0.8)
    axes.set_xticks([-0.2, 0, 0.2, 1, 5, 20], ["-0.2", "0", "0.2", "1", "5", "20"])
    axes.minorticks_off()
    axes.set_yticks(place, frame["method"])
    axes.set_ylim(len(frame) - 0.5, -0.5)
    axes.set_xlabel("Squared bias / squared gradient (log scale beyond 0.3)")
    axes.set_title("Bias of the gradient, by policy", loc="left")


def _draw_learning(curves: Axes, gains: Axes, frame: pd.DataFrame) -> None:
    heads = [f"{low:g}-{high:g}" for low, high in pairwise(EDGES)]
    for position, (_, row) in enumerate(frame.iterrows()):
        for axes, x, columns in (
            (curves, CHECKPOINTS, [f"objective_{step}" for step in CHECKPOINTS]),
            (gains, np.arange(len(heads)), [f"gain_{place}" for place in range(len(heads))]),
        ):
            apart = 0.09 * (position - len(frame) / 2) * (1 if axes is gains else 8)
            y, error = (pd.Series([row[f"{c}{end}"] for c in columns], dtype=float) for end in ("", "_mcse"))
            error_bars(axes, np.asarray(x) + apart, y, error, MARKS[row["method"]], linestyle="-", linewidth=1.0)
    curves.set_xlabel("Steps")
    curves.set_ylabel("Mean value")
    curves.set_title("Learning from equal completions", loc="left")
    gains.axhline(0.0, color=GREY, linewidth=0.8)
    gains.set_xticks(np.arange(len(heads)), heads)
    gains.set_xlabel("Value before training")
    gains.set_ylabel("Gain in value")
    gains.set_title("Who gains, and who is given up", loc="left")


def _draw_optima(axes: Axes, frame: pd.DataFrame) -> None:
    rows = frame.set_index("method")
    kinds = {"mastered": "Mastered prompts", "middling": "Middling prompts", "value": "All (what is reported)"}
    base = rows.loc["start"]
    for name, mark, shift in (("value", CORRECTED, -0.1), ("uncorrected", UNCORRECTED, 0.1)):
        gain = pd.Series([rows.loc[name, kind] - base[kind] for kind in kinds], dtype=float)
        error = pd.Series([rows.loc[name, f"{kind}_mcse"] for kind in kinds], dtype=float)
        error_bars(axes, np.arange(len(kinds)) + shift, gain, error, mark)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.set_xticks(np.arange(len(kinds)), list(kinds.values()))
    axes.set_ylabel("Gain in value at the optimum")
    axes.set_title("Two kinds of prompts in conflict: exact optima", loc="left")


def _text(
    frame: pd.DataFrame, columns: tuple[str, ...], heads: list[str], first: str, names: dict[str, str]
) -> pd.DataFrame:
    rows = [
        (names.get(row["method"], row["method"]), *(with_error(row[c], row[f"{c}_mcse"]) for c in columns))
        for _, row in frame.iterrows()
    ]
    return pd.DataFrame(rows, columns=[first, *heads])
