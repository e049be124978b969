"""Verdicts on curves whose completions are known."""

import numpy as np
import pandas as pd
import pytest

from simulations.baseline_law import judgement
from simulations.baseline_law.cells import BASES, CELLS, SEEDS, named

CELL = named("habit_adamw_8")
NEEDED = dict(zip(CELL.designs, np.geomspace(0.5, 2.0, len(CELL.designs)), strict=True))


def runs_of(needed, noise=0.0):
    """Runs that need so many completions of what GRPO-4 needs, on every base."""
    checks = CELL.budget.checks() * CELL.batch
    rng, rows = np.random.default_rng(0), []
    for design, share in needed.items():
        for base in range(BASES):
            for seed in range(SEEDS):
                own = share * np.exp(noise * rng.normal())
                curve = 1 - np.exp(-2 * checks / (own * checks[-1]))
                rows.append({"cell": CELL.name, "design": design, "base": base, "seed": seed, "area": curve.mean()})
                rows[-1] |= dict(zip(map(str, checks), curve, strict=True))
    return pd.DataFrame(rows)


def tuning_of(runs):
    return runs[["cell", "design", "base", "area"]].assign(rate=1.0)


def predicted(needed):
    return pd.DataFrame({"cell": CELL.name, "design": list(needed), "completions": list(needed.values())})


def judged(needed, law, noise=0.0):
    runs = runs_of(needed, noise)
    table = judgement.measured(CELL, runs, tuning_of(runs), predicted(law))
    return runs, table, judgement.verdict(CELL, runs, table)


def test_completions_are_those_of_the_curves():
    _, table, verdict = judged(NEEDED, NEEDED)
    reference = min(CELL.group_designs, key=lambda name: NEEDED[name])
    assert verdict["reference"] == reference
    expected = table["design"].map(NEEDED) / NEEDED[reference]
    np.testing.assert_allclose(table["completions"], expected, rtol=0.01)  # curves are lines between checks
    assert verdict["rank_correlation"] == pytest.approx(1.0) and verdict["rank_se"] == 0
    assert verdict["within_factor"] == len(CELL.designs) - 1 and verdict["rule"]
    assert verdict["slope"] == pytest.approx(1.0, abs=0.02)


def test_a_law_in_the_wrong_order_fails():
    turned = dict(zip(NEEDED, list(NEEDED.values())[::-1], strict=True))
    verdict = judged(NEEDED, turned)[2]
    assert verdict["rank_correlation"] == pytest.approx(-1.0) and not verdict["rule"]


def test_the_right_order_with_the_wrong_size_fails_by_the_factor():
    law = {name: share**4 for name, share in NEEDED.items()}
    verdict = judged(NEEDED, law)[2]
    assert verdict["rank_correlation"] == pytest.approx(1.0) and not verdict["rule"]
    assert verdict["slope"] == pytest.approx(0.25, abs=0.02)


def test_targets_out_of_reach_rank_last():
    found = pd.Series({"a": 1.0, "b": 2.0, "c": np.inf})
    assert judgement.rank_correlation(pd.Series({"a": 0.1, "b": 0.2, "c": 0.3}), found) == pytest.approx(1.0)


def test_contrasts_are_paired_over_bases():
    runs = runs_of(NEEDED, noise=0.05)
    table = judgement.contrasts(CELL, runs).set_index(["design", "other"])
    areas = runs.pivot_table(index="base", columns="design", values="area")
    gap = areas["none"] - areas["value"]
    row = table.loc[("none", "value")]
    assert row["difference"] == pytest.approx(gap.mean())
    assert row["half"] == pytest.approx(2.570582 * gap.std(ddof=1) / np.sqrt(BASES), rel=1e-6)
    assert row["p"] == table.loc[("value", "none"), "p"]


def test_cells_are_what_the_plan_says():
    main = [cell for cell in CELLS if not cell.held_out]
    assert len({cell.name for cell in CELLS}) == len(CELLS) >= 12 and len(main) == 23
    assert {cell.optimiser for cell in main} == {"adamw", "sgd", "muon"}
    assert all(len(cell.designs) == (13 if cell.batch == 8 else 15) for cell in CELLS)
    with pytest.raises(ValueError, match="unknown 'nowhere'"):
        named("nowhere")


def test_a_reference_counts_in_the_order_alone_and_endless_ratios_not_in_the_slope():
    law = pd.Series({"a": 0.5, "ref": 1.0, "b": 2.0, "c": 4.0})
    found = pd.Series({"a": 0.25, "ref": 1.0, "b": 4.0, "c": np.inf})
    row = judgement.agreement(law, found, "ref")
    assert row["rank_correlation"] == pytest.approx(1.0)
    assert row["slope"] == pytest.approx(2.0)
    assert row["within_factor"] == 0 and row["median_factor"] == pytest.approx(2.0)
