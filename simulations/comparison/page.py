"""The page: every method's row of numbers."""

import re
from pathlib import Path

import pandas as pd

from kaestat.baselines.registry import METHODS

PARTS = ("real_log", "paths", "noise")
NOISE_SHOWN = ("independent", "wrong weighs 4", "late, near .95")
NONE = "–"


def table(folder: Path) -> str:
    """The rows of every method in Markdown, from the files that the command has written."""
    log, paths, noise = (pd.read_csv(folder / f"{part}.csv") for part in PARTS)
    known = log.set_index(["method", "group_size", "visits"])[["mse", "se"]]
    by_path = paths.groupby(["method", "group_size"])
    over = pd.DataFrame({"mse": by_path["mse"].mean(), "se": by_path["se"].apply(_of_mean)})
    most = noise[noise["weighted"] | ~noise["method"].isin(noise.loc[noise["weighted"], "method"])]
    ratio = most.set_index(["method", "regime"])[["ratio", "se"]]
    lines = [
        "| method | log, G = 1 | 2 | 4 | 8 | visits 1 – 5, G = 1 | 8 | paths, G = 1 | 8 | "
        + " | ".join(NOISE_SHOWN)
        + " |",
        "|---|" + "--:|" * (8 + len(NOISE_SHOWN)),
    ]
    for name in sorted(log["method"].unique(), key=lambda name: known.loc[(name, 8, "all"), "mse"]):
        cells = [_cell(known, (name, size, "all"), 1e3, 2) for size in (1, 2, 4, 8)]
        cells += [_cell(known, (name, size, "1-5"), 1e3, 1) for size in (1, 8)]
        cells += [_cell(over, (name, size), 1e3, 2) for size in (1, 8)]
        cells += [_cell(ratio, (name, regime), 1.0, 2) for regime in NOISE_SHOWN]
        lines.append(f"| [`{name}`](methods/{METHODS[name].page}.md) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def written(page: str, folder: Path) -> str:
    """The page with its table as it is now, between its marks."""
    page, found = re.subn(
        r"(<!-- numbers -->\n).*?(\n<!-- /numbers -->)", lambda m: m[1] + table(folder) + m[2], page, flags=re.DOTALL
    )
    if found != 1:
        raise ValueError(f"page: needs one <!-- numbers --> and <!-- /numbers --> around a table, found {found}.")
    return page


def _of_mean(errors: pd.Series) -> float:
    return float((errors**2).sum() ** 0.5 / len(errors))


def _cell(frame: pd.DataFrame, key: tuple[object, ...], times: float, digits: int) -> str:
    if key not in frame.index:
        return NONE
    mean, se = (times * value for value in frame.loc[key])
    return f"{mean:.{digits}f} ± {se:.{digits}f}"
