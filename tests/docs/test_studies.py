"""The numbers that the pages quote from `make reproduce` are those that its studies give with the default seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from paper_figures.report import reproduce as report_module
from paper_figures.report.reproduce import reproduce
from paper_figures.report.sections import SECTIONS
from paper_figures.studies.efficiency import setting
from paper_figures.studies.sampling import NAMES
from simulations.studies.sampling import REFERENCE, STEPS

RATIO_WITH_ERROR = ["ratio_to_best", "ratio_to_best_mcse"]
DOCS = Path(__file__).parents[2] / "docs"
QUOTED = [section for section in SECTIONS if section.name not in ("coverage", "coverage_few")]
Tables = dict[str, pd.DataFrame]


def text_of(page: str) -> str:
    return " ".join((DOCS / page).read_text().split())


def with_error(value: float, error: float) -> str:
    return f"{value:.3f} ({error:.3f})"


def span(values: pd.Series, form: str = ".2f") -> list[str]:
    return [format(values.min(), form), format(values.max(), form)]


def largest_deviation(found: pd.Series, expected: pd.Series | float, error: pd.Series) -> str:
    return f"{((found - expected).abs() / error).max():.1f}"


def rates(tables: Tables) -> list[str]:
    slopes = tables["rates"].set_index("quantity")
    off = slopes[(slopes["exact_slope"] - slopes["theory_slope"]).abs() > 0.1]
    kae = slopes.loc["kae mse in N (sample size)"]
    assert (len(off), off.index.str.startswith("kae-algorithm1").sum()) == (5, 4)
    assert (slopes["slope"].abs() < 2 * slopes["se"])[
        ["grpo mse in N (sample size)", "reinforce++ mse in N (sample size)"]
    ].all()
    return [
        str(len(slopes)),
        largest_deviation(slopes["slope"], slopes["exact_slope"], slopes["se"]),
        with_error(kae["slope"], kae["se"]),
    ]


def gradients(tables: Tables) -> pd.DataFrame:
    """Those under Assumption 6."""
    return tables["gradient"].query("wrong_norm2 == 1")


def identity(tables: Tables) -> list[str]:
    found = gradients(tables)
    found = found[found["method"].isin(["kae", "kae_eb", "grpo", "reinforce++"])]
    return [str(len(found)), largest_deviation(found["excess_over_identity"], 1, found["excess_over_identity_mcse"])]


def oracle_property(tables: Tables) -> list[str]:
    ratio = gradients(tables).set_index("method")
    kae = ratio.loc["kae"].set_index("step")
    ends = [with_error(*kae.loc[step, ["ratio_to_oracle", "ratio_to_oracle_mcse"]]) for step in (25, 200)]
    spans = [end for method in ("kae", "grpo", "reinforce++") for end in span(ratio.loc[method, "ratio_to_oracle"])]
    return [*ends, str(len(kae)), *spans]


def without_assumption_6(tables: Tables) -> list[str]:
    found = tables["assumption6"].query("wrong_norm2 == 5").set_index(["method", "form"])
    at = [("best_baseline", "plain"), ("kae", "score-weighted"), ("kae", "plain")]
    return [with_error(*found.loc[key, ["ratio_to_oracle", "ratio_to_oracle_mcse"]]) for key in at]


def policies(tables: Tables) -> list[str]:
    last = tables["regret"].query("step == 1000").set_index("method")
    columns = ["ratio_to_oracle", "ratio_to_oracle_mcse"]
    return [str(last.loc["kae", "n"]), *(with_error(*last.loc[m, columns]) for m in ("kae", "grpo", "reinforce++"))]


def sensitivity(tables: Tables) -> list[str]:
    found, at = tables["sensitivity"], ["dataset", "step"]
    kae = found[found["method"] == "kae"]
    rivals = found[found["method"] != "kae"].pivot_table(index=at, columns="method", values="mse")
    both = kae.join(rivals, on=at)
    assert sorted(both["kernel"].unique()) == ["exponential", "triangular"]
    return [
        *span(both["bandwidth"], ".0f"),
        *span(both["mse"] / both["grpo"]),
        *span(both["mse"] / both["reinforce++"]),
    ]


def one_shot(tables: Tables) -> list[str]:
    found = tables["one_shot"]
    mse = found.pivot_table(index="group_size", columns="method", values="mse")
    cut = found.query("method == 'kae_stream'")["reduction_vs_grpo_pct"].dropna()
    return [*span(cut, ".0f"), *span(mse["kae_stream"] / mse["pooled_oracle"], ".0f")]


def one_shot_on_its_page(tables: Tables) -> list[str]:
    mse = 1000 * tables["one_shot"].query("copies == 128 and group_size == 8").set_index("method")["mse"]
    return [f"{mse['kae_stream']:.2f}", f"{mse['grpo']:.1f}", f"{mse['kae']:.2f}", f"{mse['pooled_oracle']:.2f}"]


def schedules(tables: Tables) -> pd.DataFrame:
    return tables["schedule"].set_index(["schedule", "method"])


def schedules_in_percent(tables: Tables) -> list[str]:
    ratio = 100 * schedules(tables)["ratio_to_grpo"]
    narrow, wide = "kae", "kae:bandwidth=80"
    at = [("reuse", narrow), ("uniform", narrow), ("epochs", narrow), ("uniform", wide), ("epochs", wide)]
    return [f"{ratio[key]:.0f}" for key in at]


def schedules_in_ratios(tables: Tables) -> list[str]:
    found = schedules(tables)
    ratio, reach = found["ratio_to_grpo"], found["visits_within_10_steps"]
    plain = [(ratio["uniform", "kae"], reach["uniform", "kae"]), (ratio["epochs", "kae"], reach["epochs", "kae"])]
    wide = [ratio[schedule, "kae:bandwidth=80"] for schedule in ("uniform", "epochs")]
    return [f"{each:.2f}" for each in (ratio["reuse", "kae"], *plain[0], *plain[1], *wide)]


def relative_to_kae(tables: Tables, method: str) -> pd.Series:
    return tables["methods"].query("method == @method").set_index(["path", "group_size"])["ratio_to_kae"]


def better_estimators(tables: Tables) -> list[str]:
    kalman, kae_eb = (relative_to_kae(tables, method) for method in ("kalman", "kae_eb"))
    assert kae_eb.idxmax() == ("jump", 8)
    return [str((kalman < 1).sum()), str(len(kalman)), f"{kalman.min():.2f}", *span(kae_eb)]


def kalman_on_its_page(tables: Tables) -> list[str]:
    ratio = relative_to_kae(tables, "kalman")
    worse = [f"{ratio[path, 8]:.2f}" for path in ("jump", "saturating")]
    return [str((ratio < 1).sum()), str(len(ratio)), f"{ratio.min():.2f}", *worse]


def kae_eb_after_a_jump(tables: Tables) -> list[str]:
    return [f"{relative_to_kae(tables, 'kae_eb')['jump', 8]:.2f}"]


def table_1(tables: Tables) -> list[str]:
    predicted = tables["table1"].query("role == 'predicted'")
    off = (predicted["mse"] / predicted["paper"] - 1).abs()
    worst = predicted.loc[off.idxmax()]
    return [f"{100 * off.max():.0f}", worst["dataset"].upper(), str(worst["step"])]


def noise_of_the_oracle_pool(tables: Tables) -> list[str]:
    predicted = tables["table1"].query("role == 'predicted'")
    shares = {f"{100 * share:.0f}" for share in 1 - predicted["mse_debiased"] / predicted["mse"]}
    assert len(shares) == 1
    return list(shares)


def table_2(tables: Tables) -> list[str]:
    found = tables["table2_reductions"]
    assert len(found) == 12
    return [f"{-(-(found['reduction_pct'] - found['paper']).abs().max() // 1):.0f}"]  # rounded up


def audit(tables: Tables) -> list[str]:
    verdicts = tables["audit_claims"]["verdict"].value_counts()
    return [str(verdicts[verdict]) for verdict in ("holds", "differs", "not checkable")]


def differences_between_methods(tables: Tables) -> list[str]:
    found = tables["audit_differences"]
    return [str(found["verdict"].isin(["both", "binomial only"]).sum()), str(len(found))]


def plug_in_with_one_completion(tables: Tables) -> list[str]:
    loss = tables["selectors"].query("method == 'plug_in' and group_size == 1 and path != 'static'")["regret_ratio"]
    return span(100 * (loss - 1), ".0f")


def near_the_best(tables: Tables, method: str) -> pd.DataFrame:
    return tables["efficiency"].query("method == @method").set_index("path").dropna(subset="ratio_to_best")


def recommended_default(tables: Tables) -> list[str]:
    row = tables["efficiency_worst"].set_index("method").loc["bayes_filter"]
    worst = [f"{row[f'max_ratio_to_best{end}']:.2f}" for end in ("", "_mcse")]
    return [str(int(row["settings"])), *worst, *(f"{row[f'mean_ratio_to_best{end}']:.3f}" for end in ("", "_mcse"))]


def recommended_with_weights(tables: Tables) -> list[str]:
    ratio = near_the_best(tables, "kae_eb:bandwidth=auto")["ratio_to_best"]
    in_hindsight = near_the_best(tables, "kae_eb, best bandwidth")["ratio_to_best"]
    each = (ratio[["walk 0.03", "walk 0.13", "walk 0.5"]], ratio["jump"], ratio["fast, then slow"], in_hindsight)
    return [f"{part.max():.2f}" for part in each]


def without_borrowing(tables: Tables) -> list[str]:
    found = near_the_best(tables, "kae:bandwidth=auto")
    return [f"{found.query('visits == 5 and group_size == 1')['ratio_to_best'].max():.2f}"]


def rare_returns(tables: Tables) -> list[str]:
    rare = tables["efficiency"].query("every > 1").set_index("method")
    ratio = rare["ratio_to_best"]
    assert (rare.loc["kae:bandwidth=10", "mse"].to_numpy() == rare.loc["rloo", "mse"].to_numpy()).all()
    largest = [f"{ratio[method].max():.2f}" for method in ("bayes_filter", "kae_eb:bandwidth=auto")]
    return [*largest, *span(ratio["rloo"], ".1f")]


def noise_by_method(tables: Tables, method: str) -> pd.DataFrame:
    return tables["best_baselines"].query("method == @method").set_index(["regime", "group_size"])


def weights_gain(tables: Tables) -> list[str]:
    ours = noise_by_method(tables, "kae_eb, weighted").reset_index()
    ratio, error = ours["ratio_to_best"], ours["ratio_to_best_mcse"]
    worst = [ratio[ours["group_size"] == size].idxmax() for size in (2, 1)]
    at_most = [f"{number[k]:.3f}" for k in worst for number in (ratio, error)]
    plain = [f"{noise_by_method(tables, name)['ratio_to_best'].max():.1f}" for name in ("kae_eb", "oracle")]
    return [*span(ratio[ours["group_size"] >= 4], ".3f"), *at_most, *plain]


def weights_cost(tables: Tables) -> list[str]:
    return span(noise_by_method(tables, "kae_eb, weighted").loc["independent", "over_plain"], ".3f")


def late_in_training(tables: Tables) -> list[str]:
    late = tables["best_baselines"].query("regime == 'late, near .95'").set_index(["method", "group_size"])
    two = [f"{late.loc[(name, 2), part]:.2f}" for name in ("kae, weighted", "none") for part in RATIO_WITH_ERROR]
    unweighted = late.loc[["reinforce++", "rloo", "kae", "kae_eb", "bayes_filter", "oracle"], "ratio_to_best"]
    return [*two, *span(late.loc["none", "ratio_to_best"]), "six" if 6 <= unweighted.min() < 7 else "other"]


def plus_minus(row: pd.Series, name: str, places: int = 2) -> list[str]:
    return [f"{row[name]:.{places}f}", f"{row[f'{name}_mcse']:.{places}f}"]


def sampled_without_bias(tables: Tables) -> list[str]:
    drawn = tables["sampling"].set_index("method")
    policies = ("neyman", "spo", "mopps", "greso", "near_half", "knapsack")
    biases = [part for name in policies for part in plus_minus(drawn.loc[name], "squared_bias_uncorrected")]
    off = largest_deviation(drawn["along"], 0, drawn["along_mcse"])
    return [off, *span(drawn["variance_to_formula"]), *biases]


def neyman_with_single_completions(tables: Tables) -> list[str]:
    return plus_minus(tables["sampling"].set_index("method").loc["neyman"], "worth")


def solved_prompts(tables: Tables) -> list[str]:
    row = tables["sampling_learning"].set_index("method").loc["neyman"]
    return [f"{row['least']:.1f}", *plus_minus(row, "of_solved")]


def optima_in_conflict(tables: Tables) -> list[str]:
    rows = tables["sampling_optima"].set_index("method")
    given = [part for name in ("uncorrected", "value") for part in plus_minus(rows.loc[name], "mastered", 3)]
    return [*given, f"{rows.loc['start', 'mastered']:.3f}", *plus_minus(rows.loc["uncorrected"], "share_of_gain")]


CLAIMS: dict[str, list[tuple[str, Callable[[Tables], list[str]]]]] = {
    "theory.md": [
        (r"all (\d+) simulated slopes .*? \(largest deviation (\S+) standard .*? to the power (\S+ \(\S+\))", rates),
        (r"in (\d+) settings of h, i, B, G and m .*? \(largest deviation (\S+) standard", identity),
        (
            r"is (\S+ \(\S+\)) at step 25 and (\S+ \(\S+\)) at step 200, and in all (\d+) settings (\S+) to (\S+) "
            r"against GRPO's (\S+) to (\S+) and REINFORCE\+\+'s (\S+) to (\S+)\.",
            oracle_property,
        ),
        (
            r"baseline has (\S+ \(\S+\)) of .*? score weights (\S+ \(\S+\)); without, (\S+ \(\S+\))\.",
            without_assumption_6,
        ),
        (
            r"`policy_regret`, (\d+) training runs .*? with KAE is (\S+ \(\S+\)) of the oracle's, "
            r"with GRPO (\S+ \(\S+\)), with REINFORCE\+\+ (\S+ \(\S+\))\.",
            policies,
        ),
        (r"\(largest deviation (\d+) %, (\S+) step (\d+)\)", table_1),
        (r"(\d+) % of KAE's printed MSE is noise", noise_of_the_oracle_pool),
        (r"all twelve percentages predicted within (\d+) points", table_2),
        (
            r"every bandwidth from (\d+) to (\d+) and both kernels KAE is below GRPO \((\S+) to (\S+) of it\) and "
            r"REINFORCE\+\+ \((\S+) to (\S+)\)",
            sensitivity,
        ),
        (r"value MSE by (\d+) to (\d+) %, and is (\d+) to (\d+) times that of the pooled oracle", one_shot),
        (
            r"(\d+) % of GRPO's value MSE with it, (\d+) and (\d+) % without, at bandwidth 10; "
            r"(\d+) and (\d+) % without",
            schedules_in_percent,
        ),
        (r"(\d+) hold, (\d+) differ .*?, (\d+) stand in figures", audit),
        (r"(\d+) of (\d+) differences to other methods", differences_between_methods),
    ],
    "choose.md": [
        (
            r"relative to GRPO's is (\S+) under .*? steps, (\S+) with uniform minibatches \((\S+) past visits .*? and "
            r"(\S+) with plain epochs \((\S+)\)\. A bandwidth of 80 steps brings the last two to (\S+) and (\S+):",
            schedules_in_ratios,
        ),
        (
            r"in (\d+) of (\d+) settings .*? down to (\S+) of it, .*? `kae_eb` goes from (\S+) to (\S+),",
            better_estimators,
        ),
    ],
    "efficiency.md": [
        (r"on (\d+) settings .*? at most (\S+) ± (\S+) times its MSE, (\S+) ± (\S+) on average", recommended_default),
        (
            r"At most (\S+) times the best where values keep .*? up to (\S+) times after a jump .*? and (\S+) after a "
            r"change .*? for the truth has (\S+) times",
            recommended_with_weights,
        ),
        (r"five visits and one completion each that costs up to (\S+) times", without_borrowing),
        (
            r"give `bayes_filter` at most (\S+) times the best MSE and .*? at most (\S+) times\. .*?, (\S+) to (\S+) "
            r"times the best\.",
            rare_returns,
        ),
    ],
    "best_baselines.md": [
        (
            r"With four completions or more it has (\S+) to (\S+) times the least .*? with two at most (\S+) ± (\S+), "
            r"with one at most (\S+) ± (\S+)\. Without weights the same method has up to (\S+) times .*? itself up to "
            r"(\S+) times",
            weights_gain,
        ),
        (r"weights add (\S+) to (\S+) of the least noise to `kae_eb`", weights_cost),
        (
            r"with two completions, that costs it (\S+) ± (\S+) times .*? at all \((\S+) ± (\S+)\)\. .*? `none` has "
            r"(\S+) to (\S+) times the least noise, every unweighted baseline (\w+) times or more",
            late_in_training,
        ),
    ],
    "sampling/index.md": [
        (
            r"at most (\S+) standard errors off along it, and its variance is (\S+) to (\S+) times .*? is (\S+) "
            r"± (\S+) times the squared gradient for `neyman`, (\S+) ± (\S+) for `spo`, (\S+) ± (\S+) for `mopps`, "
            r"(\S+) ± (\S+) for `greso`, (\S+) ± (\S+) for `near_half` and (\S+) ± (\S+) for `knapsack`",
            sampled_without_bias,
        ),
        (r"\(worth (\S+) ± (\S+)\)", neyman_with_single_completions),
        (r"was ever below (\S+) of uniform sampling .*? got (\S+) ± (\S+) of it", solved_prompts),
        (
            r"gives mastered prompts (\S+) ± (\S+) where .*? gives (\S+) ± (\S+) \((\S+) before training\), and keeps "
            r"(\S+) ± (\S+) of the gain",
            optima_in_conflict,
        ),
    ],
    "methods/kalman.md": [
        (
            r"in (\d+) of (\d+) settings .*? down to (\S+) of its error\), but not after a jump \((\S+) at G = 8\) or "
            r"under a saturating drift \((\S+)\)",
            kalman_on_its_page,
        )
    ],
    "methods/kae_eb.md": [(r"all values \((\S+) times KAE's error in `make reproduce`", kae_eb_after_a_jump)],
    "methods/kae_stream.md": [
        (
            r"value MSE is (\S+) × 0\.001, GRPO's (\S+), \S+ over all copies (\S+) and .*? of the step (\S+)\. It",
            one_shot_on_its_page,
        )
    ],
    "methods/oracle.md": [(r"table 1: (\d+) %", noise_of_the_oracle_pool)],
    "methods/bandwidth-selectors.md": [
        (r"with one completion per prompt it costs (\d+) to (\d+) % where", plug_in_with_one_completion)
    ],
}


def noises_said() -> dict[str, list[str]]:
    rows = re.findall(r"^\| (.*?, G = \d) \| (.*?) \|$", (DOCS / "best_baselines.md").read_text(), re.MULTILINE)
    return {setting: cells.split(" | ") for setting, cells in rows}


def noises_found(tables: Tables) -> dict[str, list[str]]:
    methods = ("kae_eb, weighted", "kae, weighted", "reinforce++, weighted", "kae_eb", "none", "oracle")
    frame = tables["best_baselines"].set_index(["regime", "group_size", "method"])[RATIO_WITH_ERROR]
    found = {}
    for regime, size in frame.index.droplevel("method").unique():
        ratios = (frame.loc[(regime, size, method)] for method in methods)
        found[f"{regime}, G = {size}"] = [f"{ratio:.3f} ± {error:.3f}" for ratio, error in ratios]
    return found


def selectors_said() -> dict[str, list[str]]:
    rows = re.findall(
        r"^\| `(\w+)`.*? \| (.*?) \|$", (DOCS / "methods/bandwidth-selectors.md").read_text(), re.MULTILINE
    )
    return {name: cells.split(" | ") for name, cells in rows}


def selectors_found(tables: Tables) -> dict[str, list[str]]:
    found = (
        tables["selectors"].query("group_size == 8").pivot_table(index="method", columns="path", values="regret_ratio")
    )
    return {
        name: [f"{row[path]:.2f}" for path in ("static", "random_walk", "linear")] for name, row in found.iterrows()
    }


def defaults_said() -> dict[str, list[str]]:
    rows = re.findall(r"^\| `(.*?)` \| (.*? \| .*?) \|$", (DOCS / "efficiency.md").read_text(), re.MULTILINE)
    return {name: cells.split(" | ")[:4] for name, cells in rows}  # what a step costs is a benchmark's


def defaults_found(tables: Tables) -> dict[str, list[str]]:
    def cell(row: pd.Series, name: str, places: int) -> str:
        return f"{row[name]:.{places}f} ± {row[f'{name}_mcse']:.{places}f}"

    return {
        row["method"]: [
            cell(row, "max_ratio_to_best", 2),
            setting(row),
            cell(row, "mean_ratio_to_best", 3),
            cell(row, "max_ratio_to_known", 2),
        ]
        for _, row in tables["efficiency_worst"].iterrows()
    }


def ways_said() -> dict[str, list[str]]:
    rows = re.findall(
        r"^\| ((?:GRPO|KAE-EB), .*?) \| (.*?) \| (.*?) ?\|$", (DOCS / "sampling/index.md").read_text(), re.MULTILINE
    )
    return {way: [value, difference] for way, value, difference in rows}


def ways_found(tables: Tables) -> dict[str, list[str]]:
    rows = tables["sampling_learning"].set_index("method")
    cells = {
        way: [plus_minus(row, f"objective_{STEPS}", 3), plus_minus(row, "difference", 3)]
        for way, row in rows.iterrows()
    }
    return {
        NAMES[way]: [" ± ".join(value), " ± ".join(difference) if way != REFERENCE else ""]
        for way, (value, difference) in cells.items()
    }


@pytest.mark.slow
def test_every_number_that_a_page_quotes_from_a_study_is_what_the_study_gives(tmp_path, monkeypatch):
    monkeypatch.setattr(report_module, "log_sources", lambda data: ())  # logs are no study
    report = reproduce(tmp_path, jobs=1, sections=QUOTED)
    assert not report.failures
    tables = {path.stem: pd.read_csv(path) for path in tmp_path.glob("*.csv")}
    said: dict[str, object] = {"selectors": selectors_said(), "defaults": defaults_said()}
    said |= {"noises": noises_said(), "ways": ways_said()}
    found: dict[str, object] = {"selectors": selectors_found(tables), "defaults": defaults_found(tables)}
    found |= {"noises": noises_found(tables), "ways": ways_found(tables)}
    for page, claims in CLAIMS.items():
        for pattern, measured in claims:
            place = f"{page}: {measured.__name__}"
            sentence = re.search(pattern, text_of(page))
            said[place] = list(sentence.groups()) if sentence else "no such sentence"
            found[place] = measured(tables)
    assert said == found
