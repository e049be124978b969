"""The command on a small model made in the test: tables, resumed to the byte, and refused by name when wrong."""

import copy
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import load_file

from llm_experiments import cli
from llm_experiments.law.cell import Cell
from llm_experiments.law.config import load_law
from llm_experiments.law.prediction import moments_of, predictions
from llm_experiments.law.summary import prompt_table, summary_table
from tests.helpers.silence import silent
from tests.helpers.small_diagnosis import call

CONFIG = {
    "name": "smoke",
    "n_boot": 100,
    "model": {
        "name": "tiny",
        "chat": False,
        "pretraining": {"steps": 60, "batch_size": 64, "learning_rate": 8e-3, "width": 16, "layers": 1},
    },
    "task": {"name": "arithmetic", "n_prompts": 4, "options": {"kinds": ["add-1"], "style": "bare"}},
    "sampling": {"temperature": 1.0, "max_new_tokens": 3, "batch_size": 64},
    "completions": 16,
    "history": 12,
    "training": {"method": "kae_eb", "group_size": 4, "learning_rate": 1e-3},
    "cells": {"one": {"steps": [0, 2]}, "two": {"seed": 7}},
}
TABLES = ("completions.csv.gz", "prompts.csv", "summary.csv", "predictions.csv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("law")
    assert call("law", folder, CONFIG) == 0
    return folder


def test_every_completion_has_a_row_and_every_prompt_its_inputs(finished):
    place = finished / "results" / "law" / "smoke"
    rows, prompts = pd.read_csv(place / "completions.csv.gz"), pd.read_csv(place / "prompts.csv")
    assert len(rows) == 3 * 4 * 16  # cells and steps, prompts, completions
    assert set(zip(rows["cell"], rows["step"], strict=True)) == {("one", 0), ("one", 2), ("two", 0)}
    assert set(rows["reward"]) <= {0, 1} and (rows[["plain", "adam", "logits"]] > 0).all().all()
    assert len(prompts) == 3 * 4 * 3
    one = prompts[(prompts["cell"] == "one") & (prompts["step"] == 0) & (prompts["metric"] == "plain")].iloc[0]
    own = rows[(rows["cell"] == "one") & (rows["step"] == 0) & (rows["prompt"] == one["prompt"])]
    assert one["wrong"] == pytest.approx(own[own["reward"] == 0]["plain"].mean(), rel=1e-3)
    summary = pd.read_csv(place / "summary.csv").set_index(["cell", "step", "metric", "quantity"])
    assert summary.loc[("one", 2, "adam", "p"), "value"] == pytest.approx(
        rows[(rows["cell"] == "one") & (rows["step"] == 2)]["reward"].mean()
    )
    provenance = json.loads((place / "provenance.json").read_text())
    assert set(provenance["cells"]) == {"one", "two"} and str(finished) not in json.dumps(provenance)


def test_resumed_after_any_loss_the_tables_are_the_same_to_the_byte(finished):
    place = finished / "results" / "law" / "smoke"
    before = {name: (place / name).read_bytes() for name in TABLES}
    work = finished / "runs" / "law" / "smoke" / "one"
    for kept in sorted(work.glob("scores/*/step-000000/*.scores"))[2:]:
        kept.unlink()
    shutil.rmtree(next(work.glob("scores/*/step-000002")))
    for pool in sorted(work.glob("pools/step-000002/*.parquet"))[1:]:
        pool.unlink()
    shutil.rmtree(place)
    assert call("law", finished, CONFIG, "--cell", "one") == 0
    assert {name: (place / name).read_bytes() for name in TABLES} == before


def test_bad_configurations_name_the_argument(finished, capsys):
    def refused(message, *arguments, **changes):
        assert call("law", finished, copy.deepcopy(CONFIG) | changes, *arguments) == cli.FAILED
        assert message in capsys.readouterr().err

    refused("completions: Input should be greater than or equal to 4", completions=3)
    refused("steps must be different, increasing and at least 0, got [3, 1]", cells={"a": {"steps": [3, 1]}})
    refused("steps after 0 need training", training=None)
    refused("{step", training=None, checkpoints="x")
    refused("cells.a.nonsense: Extra inputs are not permitted", cells={"a": {"nonsense": 1}})
    refused("cells must map names to settings, got list", cells=[1])
    refused("'a/b' names a folder", cells={"a/b": {}})
    refused("cell 'three' is none of the file's: one, two", "--cell", "three")
    refused("teaching is for language models in the worlds columns, workings", teaching={"steps": 2})
    refused("task.n_prompts must be at least 2", task=CONFIG["task"] | {"n_prompts": 1})
    refused("sampling.engine must be transformers", sampling=CONFIG["sampling"] | {"engine": "vllm"})


def test_updates_are_made_in_float32_whatever_the_norms_are_taken_in(tmp_path):
    """A step of 2e-5 is less than bfloat16 tells apart from a weight of .01: nearly all of it would be lost."""
    model = CONFIG["model"] | {"dtype": "bfloat16"}
    training = CONFIG["training"] | {"learning_rate": 2e-5}
    path = tmp_path / "law.yaml"
    path.write_text(
        yaml.safe_dump(CONFIG | {"model": model, "training": training, "cells": {"one": {"steps": [0, 4]}}})
    )
    config = load_law(path).cells["one"]
    cell = Cell("one", config, runs=tmp_path, folder=tmp_path / "one", data=None, progress=silent)
    for step in (0, 4):
        cell._make_checkpoint(step)
    before, after = (load_file(cell._checkpoint(step) / "model.safetensors") for step in (0, 4))
    assert all(each.dtype == torch.float32 for each in after.values())
    moved = torch.cat([(after[name] - each).abs().flatten() for name, each in before.items() if "proj" in name])
    assert (moved > 1e-5).float().mean() > 0.5 and moved.max() < 1.2e-4
    cell._load(4)
    assert cell._policy.model.dtype == torch.bfloat16


def test_the_law_reads_what_was_measured():
    """By hand: four prompts of value one half whose wrong answers weigh twice as much."""
    own = pd.DataFrame({"value": [0.5, 0.5, 0.5, 0.0], "right": [1.0, 1.0, 1.0, np.nan], "wrong": 2.0, "signal": 0.1})
    own = own.assign(right_square=own["right"] ** 2, wrong_square=4.0, cell="made", step=0, metric="plain")
    gram = np.full((4, 4), 0.03) + np.eye(4)
    moments = moments_of(own, gram)
    assert moments.common == pytest.approx(0.03) and moments.right[3] == 1.0
    assert moments.best.tolist() == pytest.approx([1 / 3] * 3 + [0.0])
    twice = moments_of(own, gram, np.array([0, 0, 1, 2]))
    assert twice.common == pytest.approx(0.03)  # a prompt that is drawn twice did not meet itself
    found = predictions("made", own, {(0, "plain"): gram}).set_index("design")
    assert found.loc["none", "noise"] == pytest.approx(0.5 * 0.75 - 0.03)  # E[W R] less the common part of the signal
    assert found.loc["grpo_8", "ratio"] == 1 and found.loc["best", "rank"] != found.loc["best", "rank"]
    assert found["noise"].is_monotonic_increasing and found["rank"].max() == len(found) - 3
    assert found["rank"].idxmin() == "weighted_history"
    nothing = own.assign(value=0.0)
    assert predictions("made", nothing, {(0, "plain"): gram}).empty


def made_prompts(rho, n_prompts=200, n=40, seed=0):
    """Completions of prompts of value .4 whose wrong answers weigh rho times right ones, twice that if long."""
    rng = np.random.default_rng(seed)
    rewards = rng.random((n_prompts, n)) < 0.4
    lengths = rng.integers(1, 3, size=rewards.shape)
    norms = np.where(rewards, 1.0, rho) * lengths * rng.uniform(0.8, 1.2, size=rewards.shape)
    return pd.DataFrame(
        {
            "cell": "made",
            "step": 0,
            "prompt": np.repeat([f"p{k}" for k in range(n_prompts)], n),
            "completion": np.tile(np.arange(n), n_prompts),
            "reward": rewards.ravel().astype(float),
            "length": lengths.ravel(),
            "finished": 1,
            "plain": norms.ravel(),
            "adam": np.ones(norms.size),
            "logits": norms.ravel(),
        }
    )


def test_a_known_ratio_is_found_within_its_error():
    rows = made_prompts(rho=3.0)
    prompts = prompt_table(rows, {name: np.zeros((200, 3)) for name in ("plain", "adam")})
    gram = np.full((200, 200), 2.0) + 50 * np.eye(200)  # all prompts' gradients have the part 2 in common
    found = summary_table("made", rows, prompts, {(0, "plain"): gram}, n_boot=400)
    plain = found[found["metric"] == "plain"].set_index("quantity")
    for name, truth in {"rho": 3.0, "rho_pooled": 3.0, "p": 0.4}.items():
        row = plain.loc[name]
        assert abs(row["value"] - truth) < 4 * row["se"] and row["se"] < 0.05 * truth, name
        assert row["low"] < row["value"] < row["high"]
    assert plain.loc["total_signal", "value"] == pytest.approx(2.0)  # no prompt met itself
    adam = found[found["metric"] == "adam"].set_index("quantity")
    assert adam.loc["rho", "value"] == 1 and "within" not in adam.index
