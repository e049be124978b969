"""An offline pass over the problems of training runs: resumable, and what runs on TRL and verl then begin with."""

import json
import re
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from kaestat import AdvantageEstimator, Prior
from kaestat.integrations.trl import STATE_FILE
from kaestat.integrations.verl.prior import prior_of_data_file
from llm_experiments import cli
from llm_experiments.prior import PriorPass
from llm_experiments.training.config import RunConfig
from llm_experiments.training.run import TrainingRun
from llm_experiments.training.verl.command import Machines, verl_overrides
from llm_experiments.training.verl.data import prepare_data
from tests.helpers import verl_runs
from tests.helpers.small_policies import SIZE, small_policy

SMALL = {
    "name": "small",
    "model": {"name": "tiny", "chat": False, "pretraining": {"steps": 20, "batch_size": 32}},
    "task": {"name": "arithmetic", "n_prompts": 12, "options": {"kinds": ["add-1"], "style": "bare"}},
    "sampling": {"temperature": 1.0, "max_new_tokens": 4, "batch_size": 12},
    "method": "kae:bandwidth=20",
    "updates": {"steps": 2, "prompts": 4, "group_size": 1, "learning_rate": 1e-3, "micro_batch": 4, "save_every": 2},
}


@contextmanager
def no_progress(part, total):
    yield lambda: None


def right_sum(prompt):
    return str(sum(map(int, re.findall(r"\d+", prompt))))


@pytest.fixture
def policy(monkeypatch):
    """A random policy that counts how often it is asked, and is right about half of the time."""
    policy = small_policy(0, max_new_tokens=4, temperature=1.0, size=replace(SIZE, context=128))
    inner, policy.asked = policy.sample_groups, []

    def sample_groups(prompts, n, *, seed):
        policy.asked += prompts
        groups = inner(prompts, n, seed=seed)
        return [
            [replace(each, text=right_sum(prompt) if sum(each.token_ids) % 2 else "no") for each in group]
            for prompt, group in zip(prompts, groups, strict=True)
        ]

    policy.sample_groups = sample_groups
    monkeypatch.setattr("llm_experiments.training.start.load_policy", lambda *_, **__: policy)
    return policy


def offline(folder, *configs, completions=4, out="prior.jsonl", **options):
    runs = [RunConfig(**config) for config in configs or [SMALL]]
    return PriorPass(
        runs,
        name="small",
        completions=completions,
        out=folder / out,
        data=None,
        folder=folder / "runs",
        progress=no_progress,
        **options,
    )


@pytest.mark.parametrize("out", ["prior.jsonl", "prior.csv", "prior.parquet"])
def test_the_file_has_the_mean_of_what_was_graded_and_where_it_comes_from(tmp_path, policy, out):
    found = offline(tmp_path, out=out).run()
    pools = [pd.read_parquet(path) for path in sorted((tmp_path / "runs" / "priors").rglob("*.parquet"))]
    assert found.table["prior_mean"].tolist() == [pool["reward"].mean() for pool in pools]
    assert found.mean == pytest.approx(found.table["prior_mean"].mean()) and 0 < found.mean < 1
    assert found.se == pytest.approx(found.table["prior_mean"].std(ddof=1) / np.sqrt(12))
    prior = Prior.read(found.path)
    assert prior.prompt_ids == found.table["prompt_id"].tolist()
    assert prior.sums["total"].tolist() == [pool["reward"].sum() for pool in pools]
    assert set(prior.sums["count"]) == {4.0}
    origin = json.loads((tmp_path / "prior.provenance.json").read_text())
    assert (origin["completions"], origin["seed"], len(origin["weights"])) == (4, 0, 64)


def test_a_killed_pass_goes_on_to_the_same_rates(tmp_path, policy):
    whole = offline(tmp_path / "whole").run().path.read_bytes()
    asked, policy.asked = len(policy.asked), []

    class Killed(BaseException):
        pass

    inner, calls = policy.sample_groups, []

    def dies(prompts, n, *, seed):
        calls.append(prompts)
        if len(calls) == 3:
            raise Killed
        return inner(prompts, n, seed=seed)

    policy.sample_groups = dies
    with pytest.raises(Killed):
        offline(tmp_path / "killed").run()
    assert not (tmp_path / "killed" / "prior.jsonl").exists()
    policy.sample_groups = inner
    assert offline(tmp_path / "killed").run().path.read_bytes() == whole
    assert len(policy.asked) == asked  # what was there was not sampled again


def test_the_problems_of_all_seeds_are_asked_once_each(tmp_path, policy):
    found = offline(tmp_path, SMALL | {"seed": 0}, SMALL | {"seed": 1}).run().table["prompt_id"]
    alone = [set(offline(tmp_path / str(seed), SMALL | {"seed": seed}).run().table["prompt_id"]) for seed in (0, 1)]
    assert set(found) == alone[0] | alone[1] and found.is_unique and alone[0] != alone[1]


def test_other_settings_weights_and_runs_are_refused(tmp_path, policy):
    offline(tmp_path).run()
    with pytest.raises(ValueError, match="completions"):
        offline(tmp_path, completions=8).run()
    with pytest.raises(ValueError, match="model_seed: the runs differ"):
        offline(tmp_path, SMALL, SMALL | {"model_seed": 1})
    with pytest.raises(ValueError, match=r"kept in \.csv"):
        offline(tmp_path, out="prior.xlsx")
    next((tmp_path / "runs" / "priors").rglob("00000.parquet")).unlink()
    policy.model.get_input_embeddings().weight.data.mul_(1.001)
    with pytest.raises(ValueError, match="other weights"):
        offline(tmp_path).run()


def test_another_model_is_asked_as_the_runs_ask_theirs(tmp_path, monkeypatch, policy):
    asked = []
    monkeypatch.setattr(
        "llm_experiments.training.start.load_policy", lambda model, *_, **__: asked.append(model) or policy
    )
    offline(tmp_path, model="some/model").run()
    assert [(each.name, each.chat, each.pretraining) for each in asked] == [("some/model", False, None)]


def test_a_run_on_trl_begins_with_it(tmp_path, policy):
    rates = offline(tmp_path).run()
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"prior": {"path": str(rates.path), "step": -3}}))
    config = RunConfig(**yaml.safe_load(path.read_text()))
    run = TrainingRun(config, runs=tmp_path / "runs", progress=no_progress)
    run.run()
    kept = AdvantageEstimator.load(run.folder / "checkpoints" / "checkpoint-2" / STATE_FILE)
    by_hand = config.estimator()
    by_hand.add_prior(Prior.read(rates.path, step=-3))
    for step, part in pd.read_csv(run.folder / "rewards.csv").groupby("step"):
        by_hand.step(part["prompt"].tolist(), part["reward"].to_numpy(), step)
    ids = rates.table["prompt_id"].tolist()
    assert kept.predict(ids, 2).value.tolist() == by_hand.predict(ids, 2).value.tolist()
    cold = RunConfig(**SMALL).estimator()
    assert kept.predict(ids, 2).value.tolist() != cold.predict(ids, 2).value.tolist()


def test_a_run_on_verl_begins_with_it(tmp_path):
    verl_runs.write_rows(tmp_path / "rows.jsonl", verl_runs.ROWS)
    tested = [row | {"question": row["question"] + "!"} for row in verl_runs.ROWS]
    verl_runs.write_rows(tmp_path / "test.jsonl", tested)
    ids = [f"gsm8k/train/{index}" for index in range(2)]
    rows = [
        {"prompt_id": key, "prior_mean": 0.25, "prior_count": count} for key, count in zip(ids, (8, 4), strict=True)
    ]
    verl_runs.write_rows(tmp_path / "prior.jsonl", rows)
    config = RunConfig(**verl_runs.SMALL | {"prior": {"path": str(tmp_path / "prior.jsonl"), "step": -5}})
    files = prepare_data(config, tmp_path / "data", data=tmp_path)
    found = prior_of_data_file(str(files.train), "extra_info.problem_id", -5)
    assert (found.prompt_ids, found.sums["total"].tolist(), found.step) == (ids, [2.0, 1.0], -5)
    options = dict(each.split("=", 1) for each in verl_overrides(config, Machines(2), verl_runs.PLACES))
    assert options["+algorithm.kaestat.prior"] == options["data.train_files"]
    assert options["+algorithm.kaestat.prior_step"] == "-5"


def test_what_does_not_go_with_a_prior_is_refused_before_a_model_is_loaded(tmp_path):
    warm = SMALL | {"prior": {"path": str(tmp_path / "prior.jsonl")}}
    with pytest.raises(ValueError, match="leave prior or weights out"):
        RunConfig(**warm | {"weights": "length"})
    with pytest.raises(FileNotFoundError, match="python -m llm_experiments prior"):
        TrainingRun(RunConfig(**warm), runs=tmp_path, progress=no_progress).run()
    assert RunConfig(**warm | {"method": "none"}).read_prior() is None  # the cold variants of an experiment


def test_the_command_says_what_it_found_and_where(tmp_path, policy, monkeypatch):
    monkeypatch.chdir(tmp_path)
    variants = [{"method": "kae"}, {"method": "none"}]
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL | {"variants": variants, "seeds": [0, 1]}))
    result = CliRunner().invoke(cli.app, ["prior", "--config", "small.yaml"], catch_exceptions=False)
    assert result.exit_code == 0 and "x 8 completions: mean reward 0." in result.output
    assert set(Prior.read("runs/priors/small.jsonl").sums["count"]) == {8.0}
