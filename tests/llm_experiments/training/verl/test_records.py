"""A run on verl becomes records, curves and tests as a run on TRL leaves them, from what verl writes out."""

import json

import numpy as np
import pandas as pd
import pytest

from llm_experiments.config import checked
from llm_experiments.training.collect import collect
from llm_experiments.training.config import RunConfig, run_label
from llm_experiments.training.identity import IDENTITY, identity
from llm_experiments.training.verl.command import ROLLOUTS, VALIDATION
from llm_experiments.training.verl.records import write_tables
from paper_figures.training.beside_paper import curves_beside
from tests.helpers.verl_runs import SMALL

N_STEPS = 12


def write(folder, number, rows):
    """As verl's `_write_generations` does: the separators of lines in a completion stand there as they are."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {"input": prompt, "output": "a\u2028b\x85", "gts": "1", "score": score, "step": number}
        for prompt, score in rows
    ]
    (folder / f"{number}.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def made_run(root, method="kae:bandwidth=10", reuse=5, name="small"):
    updates = SMALL["updates"] | {"steps": N_STEPS, "reuse": reuse}
    test = SMALL["test"] | {"samples": 2}
    run = checked(RunConfig, "small", SMALL | {"name": name, "method": method, "updates": updates, "test": test})
    folder = root / run_label(run)
    rng = np.random.default_rng(3)
    for step in range(1, N_STEPS + 1):
        prompts = [f"p{k}" for k in range(8) for _ in range(2)]
        write(folder / ROLLOUTS, step, [(prompt, float(rng.random() < 0.5)) for prompt in prompts])
    for step in (0, 5, 10, 12):  # the order of completions is verl's own
        write(folder / VALIDATION, step, [("q1", 1.0), ("q2", 0.0), ("q1", 0.0), ("q2", 0.0)])
    (folder / IDENTITY).write_text(json.dumps(identity(run) | {"processes": 2}))
    return folder


def test_curve_and_tests_are_those_of_the_completions(tmp_path):
    folder = made_run(tmp_path)
    write_tables(folder)
    curve, test = pd.read_csv(folder / "curve.csv"), pd.read_csv(folder / "test.csv")
    assert list(curve["step"]) == list(range(N_STEPS)) and list(test["step"]) == [0, 5, 10, 12]
    scores = [json.loads(line)["score"] for line in (folder / ROLLOUTS / "3.jsonl").read_text().split("\n")[:-1]]
    assert curve.loc[2, "mean_reward"] == pytest.approx(np.mean(scores))
    by_prompt = np.reshape(scores, (8, 2)).mean(axis=1)
    assert curve.loc[2, "se"] == pytest.approx(by_prompt.std(ddof=1) / np.sqrt(8), rel=1e-5)
    assert (test["accuracy"] == 0.25).all() and (test["pass_at_samples"] == 0.5).all()
    assert test["greedy"].isna().all() and (test["n_problems"] == 2).all()
    assert len(pd.read_csv(folder / "rewards.csv")) == 16 * N_STEPS


def test_a_test_where_an_interrupted_run_went_on_is_left_out(tmp_path):
    folder = made_run(tmp_path)
    write(folder / VALIDATION, 7, [("q1", 1.0), ("q2", 1.0), ("q1", 1.0), ("q2", 1.0)])
    write_tables(folder)
    assert list(pd.read_csv(folder / "test.csv")["step"]) == [0, 5, 10, 12]


def test_runs_reach_the_results_and_the_papers_figure_is_drawn_of_them(tmp_path):
    runs = tmp_path / "runs"
    for method, reuse in (("none", 1), ("none", 5), ("reinforce++", 1), ("kae:bandwidth=10", 10)):
        write_tables(made_run(runs, method, 10 if reuse == 5 else reuse))
    results = tmp_path / "results"
    assert len(collect(runs, results)) == 4
    curves, tests = pd.read_csv(results / "curves.csv.gz"), pd.read_csv(results / "tests.csv")
    assert set(curves["method"]) == {"none", "reinforce++", "kae:bandwidth=10"} and len(tests) == 16
    drawn, reached = curves_beside(results, "figure1")
    assert [len(axes.lines) for axes in drawn.axes] == [4, 4] and len(reached) == 4
