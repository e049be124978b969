"""What Tables 1 and 2, the sensitivity figure and the audit say about the paper's claims."""

import pandas as pd

from paper_figures.audit import counts, recomputed, sampling_error
from paper_figures.shared import paper
from paper_figures.shared.finding import FAILS, HOLDS, Finding, above, below, critical, equal, together
from paper_figures.shared.tidy import span
from paper_figures.studies import pool_sizes, sensitivity, table1, table2
from simulations.bandits.calibration import INPUTS, calibrate
from simulations.bandits.value_diagnostic import ValueDiagnostic
from simulations.studies.sensitivity import BANDWIDTHS
from simulations.studies.table1 import DIAGNOSTIC
from simulations.studies.table2 import DIAGNOSTIC as GRADIENT
from simulations.studies.table2 import expected_reduction

SMALL_SHARE = 10.0  # per cent of an MSE that may be the oracle pool's noise and pass for little


def of_table1(summary: pd.DataFrame) -> list[Finding]:
    """Closed forms, agreement with the paper over all cells, order of the methods, and the oracle pool's noise."""
    entries, reductions = table1.table(summary), table1.reductions(summary)
    exact = _exact(entries, DIAGNOSTIC)
    fitted = pool_sizes.oracle_fit(summary)
    rest = pool_sizes.oracle_pool(summary).query("bandwidth == 10 and fitted_to == 'math'").iloc[0]
    inputs = entries[entries["role"] == "input"]
    off = inputs.loc[inputs["off_pct"].abs().idxmax()]
    ours, reinforce = entries[entries["method"] == "kae"], reductions[reductions["versus"] == "reinforce++"]
    share = 100 * (1 - ours["mse_debiased"] / ours["mse"])
    return [
        Finding(
            "KAE's row of Table 1 agrees with its closed form, over all six cells, and so does what is simulated",
            together(fitted.verdict, exact[0]),
            f"{fitted.agreement}, with the oracle pool fitted: {fitted}; fitted to MATH alone it predicts GSM8K's "
            f"cells with p = {rest['held_out_p']:.2g}; simulated against closed form: {exact[1]}",
            "paper",
            ("table1",),
        ),
        Finding(
            "The populations give back the GRPO and REINFORCE++ rows that they are solved from",
            equal(inputs["mse"], inputs["mcse"], inputs["paper"]),
            f"farthest off {off['off_pct']:+.1f} %, {paper.LABELS[off['dataset']]} step {off['step']}",
        ),
        _smallest(reductions, "value", "table1_smallest"),
        _later_steps(),
        Finding(
            "KAE lowers REINFORCE++'s value MSE by over 90 % in every cell",
            above(reinforce["reduction_pct"], reinforce["mcse"], 90.0),
            _beside(reductions, "reinforce++"),
            "paper",
            ("table1_reinforce",),
        ),
        Finding(
            f"At most {SMALL_SHARE:g} % of KAE's MSE in Table 1 is noise of the oracle pool",
            below(share, 100 * ours["mcse_debiased"] / ours["mse"], SMALL_SHARE),
            f"{span(share, '.0f')} % of it is, by the debiased MSE",
        ),
    ]


def of_table2(summary: pd.DataFrame) -> list[Finding]:
    """Closed forms, agreement with the paper's reductions over all cells, and the order of the methods.

    Levels depend on the model's score norms and are not judged.
    """
    reductions = table2.reductions(summary)
    expected = [
        expected_reduction(GRADIENT, *INPUTS[row.dataset, row.step], row.versus) for row in reductions.itertuples()
    ]
    exact = _simulated(reductions["reduction_pct"], reductions["mcse"], expected)
    fitted = pool_sizes.reference_fit(summary)
    shared = pool_sizes.reference_fit(summary, prompts="shared")
    table = pool_sizes.reference_pool(summary).set_index(["prompts", "versus", "fitted_to"])
    found = [
        Finding(
            "Both percentage rows of Table 2 agree with their closed forms, over all six cells, and so does what is "
            "simulated",
            together(fitted.verdict, exact[0]),
            f"{fitted.agreement}, with the reference pool fitted: {fitted}; fitted to MATH alone it predicts GSM8K's "
            f"cells with p = {table.loc[('separate', 'both', 'math'), 'held_out_p']:.2g}. This verdict hangs on "
            "whether Tables 1 and 2 were measured on the same prompts, which the paper does not say: separate prompts "
            f"give p = {fitted.p:.2g}, shared ones p = {shared.p:.1g}. "
            f"Simulated against closed form: {exact[1]}",
            "paper",
            ("table2",),
        )
    ]
    for versus in ("grpo", "reinforce++"):
        one = pool_sizes.reference_fit(summary, versus)
        found.append(
            Finding(
                f"KAE lowers {paper.LABELS[versus]}'s gradient MSE by what Table 2 says",
                together(one.verdict, exact[0]),
                f"{_beside(reductions, versus)}; {one.agreement}, with a reference pool of {one} for this row alone",
                "paper",
                (f"table2_{versus}",),
            )
        )
    return [*found, _smallest(reductions, "gradient", "table2_smallest")]


def of_sensitivity(summary: pd.DataFrame) -> list[Finding]:
    """KAE below GRPO's and REINFORCE++'s levels at every kernel and bandwidth."""
    points = sensitivity.table(summary)
    curves = points[points["kernel"].notna()]
    found = []
    for name in ("grpo", "reinforce++"):
        level = points[points["method"] == name].set_index("step").loc[curves["step"]].reset_index()
        difference = curves["mse"].to_numpy() - level["mse"].to_numpy()
        error = (curves["mcse"].to_numpy() ** 2 + level["mcse"].to_numpy() ** 2) ** 0.5  # unpaired, so too large
        ratio = curves["mse"].to_numpy() / level["mse"].to_numpy()
        found.append(
            Finding(
                f"At every bandwidth from {min(BANDWIDTHS)} to {max(BANDWIDTHS)} steps and for both kernels KAE's "
                f"value MSE is smaller than {paper.LABELS[name]}'s",
                below(difference, error),
                f"{span(ratio)} times it",
                "paper",
                (f"sensitivity_{name}",),
            )
        )
    return found


def of_audit() -> list[Finding]:
    """What the paper's numbers say about each other."""
    percentages, claims, averages = recomputed.reductions(), recomputed.text_claims(), recomputed.averages()
    accuracies, differences = counts.accuracy_counts(), sampling_error.difference_errors()
    differing = claims.loc[claims["verdict"] == "differs", "claim"]
    clear = (differences["verdict"] == "clear").sum()
    stated = {
        "The percentage rows of Tables 1 and 2 follow from their entries": (percentages, ""),
        "The numbers in the text follow from the tables": (
            claims,
            f"; differing: {'; '.join(differing)}" if len(differing) else "",
        ),
        "The average columns of Tables 3 and 4 are the means of their columns": (averages, ""),
    }
    return [
        *(
            Finding(claim, FAILS if (frame["verdict"] == "differs").any() else HOLDS, _tally(frame) + more, "paper")
            for claim, (frame, more) in stated.items()
        ),
        Finding(
            "Every accuracy of Tables 3 and 4 is a count over the benchmark's size",
            HOLDS if (accuracies["verdict"] == "k/n").all() else FAILS,
            _tally(accuracies),
        ),
        Finding(
            "KAE's differences to the other methods in Tables 3 and 4 exceed their sampling error",
            HOLDS if clear == len(differences) else FAILS,
            f"{clear} of {len(differences)} do, with independent completions; training runs vary on top of that",
        ),
    ]


def _exact(entries: pd.DataFrame, diagnostic: ValueDiagnostic) -> tuple[str, str]:
    """Whether simulated levels agree with closed forms, which do not use the library's estimators."""
    weights = diagnostic.weights()
    expected = []
    for row in entries.itertuples():
        population = calibrate(*INPUTS[row.dataset, row.step], diagnostic)
        spread = population.reward_variance, population.value_variance
        expected.append(diagnostic.expected_mse(weights[row.method], *spread))
    return _simulated(entries["mse"], entries["mcse"], expected)


def _simulated(ours: pd.Series, mcse: pd.Series, expected: list[float]) -> tuple[str, str]:
    z = ((ours - expected) / mcse).abs().max()
    return equal(ours, mcse, expected), (
        f"largest of {len(ours)} deviations {z:.1f} standard errors, {critical(len(ours)):.1f} allowed"
    )


def _smallest(reductions: pd.DataFrame, kind: str, claim: str) -> Finding:
    return Finding(
        f"KAE's {kind} MSE is the smallest in all cells",
        above(reductions["advantage"], reductions["advantage_mcse"]),
        f"smaller by {span(reductions['reduction_pct'], '.1f')} % than the other two's",
        "paper",
        (claim,),
    )


def _later_steps() -> Finding:
    """From the paper's own entries."""
    entries = paper.levels(1).query("dataset == 'gsm8k'").pivot_table(index="method", columns="step", values="mse")
    later = entries[[90, 170]].div(entries[10], axis=0)
    return Finding(
        "On GSM8K every method's printed value MSE is smaller at steps 90 and 170 than at step 10",
        HOLDS if (later < 1).all(axis=None) else FAILS,
        f"{span(later.to_numpy().ravel())} times it; from step 90 to 170 REINFORCE++'s does not fall",
        "paper",
        ("table1_steps",),
    )


def _beside(reductions: pd.DataFrame, versus: str) -> str:
    part = reductions[reductions["versus"] == versus]
    return f"{span(part['reduction_pct'], '.1f')} % here, {span(part['paper'], '.1f')} % there"


def _tally(frame: pd.DataFrame) -> str:
    """ "exact: 22, within rounding: 2": how often each verdict occurs."""
    return ", ".join(f"{verdict}: {count}" for verdict, count in frame["verdict"].value_counts().items())
