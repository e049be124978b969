"""``python docs/figures/readme_figure.py``: the README's picture, drawn from the real run's table beside this file."""

import hashlib
from io import BytesIO
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from kaestat.core.storage import write_atomically
from kaestat.report.plots import STYLE

FOLDER = Path(__file__).parent
TABLE, PICTURE = FOLDER / "choice_real_run.csv", FOLDER / "real_run.png"
OWN, OTHER, GROUP = "#0072B2", "#8C8C8C", "#D55E00"
COLORS = {"kae": OWN, "kae_eb": OWN, "bayes_filter": OWN, "grpo": GROUP}
# Equal here, or nearly: one bar.
SAME = {"rloo": "grpo", "pooled": "grpo", "gpg": "dr_grpo", "maxrl": "dr_grpo", "bnpo": "dr_grpo", "kae_stream": "kae"}


def picture() -> bytes:
    """Value MSE of every baseline on the real run, as PNG; its text field ``Source`` holds the table's checksum."""
    frame = pd.read_csv(TABLE)
    frame = frame[~frame["method"].isin(SAME)].iloc[::-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        axes = figure.subplots()
        level, reach = 1e3 * frame["mse"], 1.96e3 * frame["se"]
        colors = [COLORS.get(method, OTHER) for method in frame["method"]]
        axes.hlines(frame["method"], 1.0, level, color=colors, linewidth=1.2, alpha=0.5)
        axes.errorbar(level, frame["method"], xerr=reach, fmt="none", ecolor=colors, elinewidth=1.4)
        axes.scatter(level, frame["method"], color=colors, s=26, zorder=3)
        for method, value, bound in zip(frame["method"], level, level + reach, strict=True):
            axes.annotate(
                f"{value:.3g}", (bound, method), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.set_xscale("log")
        axes.set_xlim(1.0, 700)
        axes.set_xticks([1, 3, 10, 30, 100, 300], ["1", "3", "10", "30", "100", "300"])
        axes.minorticks_off()
        axes.tick_params(axis="y", length=0)
        for text, color in zip(axes.get_yticklabels(), colors, strict=True):
            text.set_family("monospace")
            text.set_color(color if color != OTHER else "black")
        axes.set_xlabel("Value MSE (× 0.001, log scale; 95 % intervals over prompts)")
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=160, metadata={"Source": checksum(), "Software": None})
    return buffer.getvalue()


def checksum() -> str:
    """SHA-256 of the table."""
    return hashlib.sha256(TABLE.read_bytes()).hexdigest()


if __name__ == "__main__":
    write_atomically(PICTURE, picture())
