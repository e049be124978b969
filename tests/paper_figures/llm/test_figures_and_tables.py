"""Tables and figures of a diagnostic run: from the results folder alone, and true to it."""

import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from llm_experiments.diagnose.assumption6 import score_norm_summary, score_norm_table
from llm_experiments.diagnose.estimators import GRADIENT_REFERENCES
from llm_experiments.diagnose.gradient_mse import prompt_gradient_errors
from llm_experiments.diagnose.pool_rewards import PoolRewards
from llm_experiments.diagnose.results import Results, read_results, write_results
from llm_experiments.diagnose.sensitivity import value_sensitivity
from llm_experiments.diagnose.value_mse import value_errors
from paper_figures import results as command
from paper_figures.llm import figures, tables
from paper_figures.results import diagnosis as build
from paper_figures.shared import output
from tests.helpers.commands import app

RESULTS = Path(__file__).parents[3] / "results"
STEPS = (4, 9)


def made_up_pools(prompts: int = 24, n: int = 24):
    """Pools and Gram matrices of two steps: wrong completions are longer, and so are their scores."""
    rng = np.random.default_rng(7)
    for step in STEPS:
        value = rng.beta(1.5, 1.2, prompts)
        target = (rng.random((prompts, n)) < value[:, None]).astype(float)
        history = (rng.random((prompts, 4, 8)) < value[:, None, None]).astype(float)
        length = [rng.poisson(np.where(reward > 0, 4.0, 9.0)) + 1.0 for reward in (target, history)]
        score = rng.normal(size=(prompts, n, 60)) * np.sqrt(length[0])[..., None] + 0.4 * target[..., None]
        gram = score @ score.swapaxes(1, 2)
        pool = PoolRewards(step, target, history).with_weights("length", *length)
        yield pool.with_weights("exact", np.diagonal(gram, axis1=1, axis2=2), 60 * length[1]), gram


@pytest.fixture(scope="module")
def results() -> Results:
    frames = defaultdict(list)
    sizes = {"group_size": 4, "seed": 0}
    boot = {"n_boot": 200, "seed": 0}
    for pool, gram in made_up_pools():
        value = value_errors(pool, n_oracle=16, repeats=10, **sizes)
        pooled, unbiased = (
            prompt_gradient_errors(pool, gram, repeats=10, debiased=debiased, **sizes) for debiased in (False, True)
        )
        frames["value_mse"].append(value.table())
        frames["value_mse_differences"].append(value.differences(**boot))
        frames["value_sensitivity"].append(
            value_sensitivity(
                pool, kernels=("triangular", "exponential"), bandwidths=(2, 5, 10, 20, 40), n_oracle=16, repeats=10,
                n_boot=200, **sizes,
            )
        )  # fmt: skip
        for name, found in (("gradient_mse", pooled), ("gradient_mse_debiased", unbiased)):
            frames[name].append(found.table())
            frames[f"{name}_differences"].append(found.differences(GRADIENT_REFERENCES, **boot))
        frames["score_norms"].append(score_norm_table(pool.step, pool.target_weight["exact"], pool.target))
    frames["score_norms_summary"] = [score_norm_summary(pd.concat(frames["score_norms"]))]
    whole = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}
    return Results(**whole, provenance={"seed": 0, "model": "made up"})


def test_results_come_back_as_they_were_to_six_digits(results, tmp_path):
    write_results(tmp_path, results)
    back = read_results(tmp_path)
    assert back.provenance == results.provenance
    assert set(back.frames()) == set(results.frames())
    for name, frame in results.frames().items():
        pd.testing.assert_frame_equal(back.frames()[name], frame, rtol=1e-5, check_dtype=False)


def test_a_stage_that_was_not_run_leaves_the_files_of_the_others(results, tmp_path):
    write_results(tmp_path, results)
    write_results(tmp_path, Results(value_mse=results.value_mse.iloc[:3], provenance={}))
    back = read_results(tmp_path)
    assert len(back.value_mse) == 3 and len(back.gradient_mse) == len(results.gradient_mse)


def test_a_reduction_has_no_lower_end_where_the_ratio_may_be_0():
    row = {"step": 4, "method": "grpo", "reference": "kae", "ratio": 0.5, "ratio_low": -0.1, "ratio_high": 0.8}
    (found,) = tables.reductions(pd.DataFrame([row])).itertuples()
    assert (found.low, found.reduction_pct, found.high) == (-np.inf, -100.0, pytest.approx(-25.0))


def test_the_command_builds_all_from_the_folder_alone(results, tmp_path):
    write_results(tmp_path, results)
    done = CliRunner().invoke(app(command.main), [str(tmp_path)])
    assert done.exit_code == 0, done.output
    for name in ("value_sensitivity", "assumption6"):
        assert (tmp_path / "figures" / f"llm_{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "figures" / f"llm_{name}.pdf").read_bytes().startswith(b"%PDF")
    for name in ("table1", "table2", "weighted_kae_eb"):
        for ending in ("md", "tex"):
            assert (tmp_path / "tables" / f"llm_{name}.{ending}").stat().st_size > 200


@pytest.mark.parametrize("run", ["smollm2", "tiny", "tiny_trained"])
def test_committed_tables_are_built_from_the_committed_results(run, tmp_path, monkeypatch):
    monkeypatch.setattr(output, "render", lambda figure, kind: kind.encode())  # pixels are looked at elsewhere
    committed = RESULTS / run
    for path in (*committed.glob("*.csv"), committed / "provenance.json"):
        shutil.copy(path, tmp_path)
    build(tmp_path)
    built, there = ({path.name: path for path in (each / "tables").glob("*.md")} for each in (tmp_path, committed))
    assert there and {name: built[name].read_text() for name in there} == {k: p.read_text() for k, p in there.items()}
    assert len(list((tmp_path / "figures").glob("llm_*.png"))) == 2


def test_results_of_the_value_stage_alone_are_enough(results, tmp_path):
    write_results(tmp_path, Results(value_mse=results.value_mse, value_mse_differences=results.value_mse_differences))
    build(tmp_path)
    assert {path.name for path in (tmp_path / "tables").glob("*.md")} == {"llm_table1.md"}


def test_score_norms_on_the_diagonal_are_drawn_where_they_are(results):
    figure = figures.assumption6(results.score_norms)
    upper = figure.axes[0].lines[0].get_xydata()
    part = results.score_norms.query("step == 4").dropna(subset=["norm2_right", "norm2_wrong"])
    np.testing.assert_allclose(upper, part[["norm2_right", "norm2_wrong"]].to_numpy())
    assert (upper[:, 1] > upper[:, 0]).mean() > 0.9  # wrong ones are longer in these pools
