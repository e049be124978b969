"""``python -m paper_figures.policies.overview``: the README's picture of what a history buys, from the results."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from kaestat.report.plots import STYLE
from kaestat.storage import write_atomically
from paper_figures.policies.rate_runs import chosen
from paper_figures.shared.charts import BLUE, GREY, ORANGE, VERMILION, line_key

ROOT = Path(__file__).parents[2]
STUDIES, PICTURE = ROOT / "results" / "studies", ROOT / "docs" / "figures" / "learning.png"
WORLDS = {
    "habits/curves.csv": "256 small facts",
    "columns/curves.csv": "sums, column by column",
    "chains/curves.csv": "chains of steps",
    "columns_smollm2/rate_curves.csv": "sums, SmolLM2-135M (2 runs)",
}
DRAWN = {
    "grpo_8": ("GRPO, G = 8", VERMILION, "-"),
    "none_1": ("no baseline, G = 1", GREY, "--"),
    "kae_eb_1": ("kae_eb, G = 1", BLUE, "-"),
    "kae_eb_1_exact": ("kae_eb, exact weights, G = 1", ORANGE, ":"),
    "kae_eb_1_adam": ("kae_eb, weights in Adam's units, G = 1", ORANGE, "-"),
}


def picture() -> bytes:
    """Learning curves in each world, as PNG; its text field ``Source`` holds the tables' checksum."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 3.2), layout="constrained")
        for axes, (name, title) in zip(figure.subplots(1, len(WORLDS)), WORLDS.items(), strict=True):
            curves = pd.read_csv(STUDIES / name)
            if "base" not in curves:
                curves = chosen(curves)
            for design, (_, color, style) in DRAWN.items():
                mean = curves[curves["design"] == design].groupby("generated")["matched"].mean()
                axes.plot(mean.index / 1000, mean, color=color, linestyle=style)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("completions (thousands)")
        figure.axes[0].set_ylabel("test accuracy")
        keys = [line_key(called, color=color, linestyle=style) for called, color, style in DRAWN.values()]
        figure.legend(handles=keys, frameon=False, loc="outside lower center", ncols=3, fontsize=8)
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=160, metadata={"Source": checksum(), "Software": None})
    return buffer.getvalue()


def checksum() -> str:
    """SHA-256 of the tables."""
    return hashlib.sha256(b"".join((STUDIES / name).read_bytes() for name in WORLDS)).hexdigest()


if __name__ == "__main__":
    write_atomically(PICTURE, picture())
