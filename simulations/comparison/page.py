"""The page: every method's row of numbers, and the sentence on when to use it."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from kaestat import methods

PARTS = ("real_log", "paths", "noise")
NOISE_SHOWN = ("independent", "wrong weighs 4", "late, near .95")
PAGES = {"reinforce++": "reinforce_plus_plus"}
NONE = "–"

USE = {
    "none": "Never for its error; late in training with heavy wrong answers it is hard to beat without weights.",
    "reinforce++": "One completion a prompt, no stable ids, nothing known before.",
    "grpo": "The common baseline to compare with; large groups, and division by the deviation is wanted.",
    "rloo": "No stable prompt ids, and groups of eight or more.",
    "dr_grpo": "As `rloo`, where a framework has it: the same gradient, shorter by (G - 1) / G.",
    "gpg": "As `dr_grpo`, where the size of the step should not fall with the share of mixed groups.",
    "opo": "Lengths stand in for score norms, and there is no history; measure first whether they do.",
    "mc_grpo": "To reproduce its paper: groups of three to five, where one lucky completion should not move the rest.",
    "qae": "To reproduce its paper: only rare successes, or only rare failures, are to count.",
    "remax": "Greedy completions are at hand anyway.",
    "maxrl": "The aim is log p, hard prompts before easy ones, with groups of eight or more.",
    "bnpo": "To reproduce its paper: success rates that are rare in the batch are to count more.",
    "grpo_passk": "The aim is pass@G and there is no history; with one take `objective=`.",
    "james_stein": "No history, and groups of two or more; the fewer completions, the more it helps.",
    "ebpo": "To reproduce its paper: no history of prompts, a running mean instead.",
    "krpo": "To reproduce its paper.",
    "kalman": "One number of how fast values move is known; uncertainty is wanted in closed form.",
    "spo": "To reproduce its paper, or where divergences between visits are at hand.",
    "logit_shift": "Rates of before the run are exact, prompts come once, and one completion each.",
    "bayes_filter": "Rewards of 0 and 1 in order, and the least value error at any cost per step.",
    "cluster_blend": "Prompts come once or rarely, in clusters that say more than the batch does.",
    "critic": "Prompts come once and have features that tell.",
    "oracle": "Tests: the least that a value can leave.",
    "pooled": "A prompt has several groups in one step.",
    "kae": "A history that is simple to explain: one bandwidth, no other prompts.",
    "kae_stream": "One-shot training, copies of a prompt in a batch, as in the paper.",
    "kae_eb": "The default: any reward, any order, few completions, early visits, weights.",
    "outside_value": "A value model, or another guess at each value, is at hand at every step.",
    "local_linear": "Values move along a line, far against their noise; else the lag of `kae` costs less.",
    "local_polynomial": "To study smoothers; too noisy for training.",
    "sieve": "To study smoothers: the whole past of one prompt, smooth, with many visits.",
}


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
        lines.append(f"| [`{name}`](methods/{PAGES.get(name, name)}.md) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def uses() -> str:
    """When to use each method, in Markdown."""
    lines = ["| method | take it where |", "|---|---|"]
    lines += [f"| [`{name}`](methods/{PAGES.get(name, name)}.md) | {USE[name]} |" for name in methods()]
    return "\n".join(lines)


def written(page: str, folder: Path) -> str:
    """The page with its two tables as they are now, between their marks."""
    for mark, text in (("numbers", table(folder)), ("uses", uses())):
        page, found = re.subn(
            rf"(<!-- {mark} -->\n).*?(\n<!-- /{mark} -->)",
            lambda m, text=text: m[1] + text + m[2],
            page,
            flags=re.DOTALL,
        )
        if found != 1:
            raise ValueError(f"page: needs one <!-- {mark} --> and <!-- /{mark} --> around a table, found {found}.")
    return page


def _of_mean(errors: pd.Series) -> float:
    return float((errors**2).sum() ** 0.5 / len(errors))


def _cell(frame: pd.DataFrame, key: tuple[object, ...], times: float, digits: int) -> str:
    if key not in frame.index:
        return NONE
    mean, se = (times * value for value in frame.loc[key])
    return f"{mean:.{digits}f} ± {se:.{digits}f}"
