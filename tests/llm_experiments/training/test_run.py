"""Training runs: refused before they begin, tested along the way, the same after every kind of stop, and they learn."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from typer.testing import CliRunner

import kaestat
from kaestat.integrations.shared.session import TrainerSession
from llm_experiments import cli
from llm_experiments.tasks.arithmetic import arithmetic
from llm_experiments.tasks.base import Problem
from llm_experiments.tasks.mathematics import _problems
from llm_experiments.tasks.sources import SOURCES
from llm_experiments.training.collect import differences, final, run_ends
from llm_experiments.training.config import RunConfig, run_label
from llm_experiments.training.experiment import load_experiment
from llm_experiments.training.run import TrainingRun, trl_config
from llm_experiments.training.shapes import SHAPES
from llm_experiments.training.trl.data import reward_function, training_set
from llm_experiments.training.trl.testing import summarise
from llm_experiments.training.verl.launch import verl_run_config
from tests.helpers.silence import silent
from tests.helpers.small_policies import SIZE, small_policy
from tests.helpers.tiers import slow_after

CONFIGS = sorted((Path(cli.__file__).parent / "configs" / "training").glob("*.yaml"))
SMALL = {
    "name": "small",
    "model": {"name": "tiny", "chat": False, "pretraining": {"steps": 20, "batch_size": 32}},
    "task": {"name": "arithmetic", "n_prompts": 16, "options": {"kinds": ["add-1"], "style": "bare"}},
    "sampling": {"temperature": 1.0, "max_new_tokens": 4, "batch_size": 64},
    "method": "kae:bandwidth=20",
    "updates": {
        "steps": 6, "prompts": 8, "ppo_prompts": 4, "group_size": 2, "learning_rate": 1e-3, "micro_batch": 8,
        "save_every": 2,
    },
    "test": {
        "task": {"name": "arithmetic", "n_prompts": 20, "options": {"kinds": ["add-1"], "style": "bare"}},
        "every": 3,
        "samples": 2,
    },
}  # fmt: skip


def config(**changes) -> RunConfig:
    content = {**SMALL, **{key: value for key, value in changes.items() if key != "updates"}}
    content["updates"] = SMALL["updates"] | changes.get("updates", {})
    return RunConfig(**content)


def training_run(folder: Path, **changes) -> TrainingRun:
    return TrainingRun(config(**changes), runs=folder / "runs", progress=silent)


@pytest.fixture
def models(tmp_path_factory, monkeypatch):
    """A small random policy in place of the trained one: what is tested here does not hang on it."""

    def load(model, sampling, **_):
        settings = {"temperature": sampling.temperature, "max_new_tokens": sampling.max_new_tokens}
        return small_policy(0, **settings, size=replace(SIZE, context=128))

    monkeypatch.setattr("llm_experiments.policies.tiny.tiny_folder", lambda cache, *_, **__: cache)
    monkeypatch.setattr("llm_experiments.starting.load_policy", load)


def test_an_experiment_is_every_variant_with_every_seed(tmp_path):
    path = tmp_path / "experiment.yaml"
    kae = {"method": "kae:bandwidth=9", "weights": "length", "scale": "batch_std", "reuse": 3}
    variants = [{"method": "rloo"}, kae]
    path.write_text(yaml.safe_dump(SMALL | {"variants": variants, "seeds": [4, 7]}))
    runs = load_experiment(path)
    assert [run_label(each) for each in runs] == [
        "rloo-J1-seed-4", "kae-bandwidth9@length-scale-batch_std-J3-seed-4",
        "rloo-J1-seed-7", "kae-bandwidth9@length-scale-batch_std-J3-seed-7",
    ]  # fmt: skip
    assert {each.updates.steps for each in runs} == {6}
    path.write_text(yaml.safe_dump(SMALL | {"variants": [{"method": "grpoo"}], "seeds": [0]}))
    with pytest.raises(ValueError, match="grpoo"):
        load_experiment(path)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_loads_and_makes_trls(path, tmp_path):
    loaded, *_ = load_experiment(path)
    assert loaded.name == path.stem
    plain = loaded.model_copy(update={"sampling": loaded.sampling.model_copy(update={"engine": "transformers"})})
    plain = plain.model_copy(update={"model": plain.model.model_copy(update={"dtype": "float32"})})
    args = trl_config(plain, tmp_path)
    sizes = loaded.updates
    assert args.generation_batch_size == sizes.prompts * sizes.group_size
    assert args.num_generations == sizes.group_size
    assert args.max_steps == sizes.steps * sizes.prompts // (sizes.ppo_prompts or sizes.prompts)
    assert args.gradient_accumulation_steps * sizes.micro_batch == sizes.update_prompts * sizes.group_size
    assert (args.beta, args.entropy_coef, args.lr_scheduler_type) == (0.0, 0.0, "constant")


def test_the_papers_training_sets_and_numbers_of_runs():
    """MATH's levels 3 to 5 for the 7B model, all of it for the 1.5B; GSM8K five times, MATH once (section 5.3)."""
    runs = {path.stem: load_experiment(path) for path in CONFIGS if "qwen" in path.stem}
    rows = [{"problem": f"{level}?", "answer": "1", "level": f"Level {level}"} for level in (1, 2, 3, 4, 5)]
    levels = {}
    for name, (first, *_) in runs.items():
        if first.task.name == "math":
            chosen = first.task.options.get("levels")
            problems = _problems(rows, SOURCES["math"], prefix="math/train", levels=chosen, origin="rows")
            levels[name] = [int(problem.level) for problem in problems]
    assert levels["math_qwen2.5_math_1.5b_g1"] == [1, 2, 3, 4, 5]
    assert levels["math_qwen2.5_math_7b_g8"] == [3, 4, 5]
    seeds = {name: {run.seed for run in each} for name, each in runs.items()}
    assert len(seeds["gsm8k_qwen2.5_1.5b_g1"]) == 5 and len(seeds["math_qwen2.5_math_1.5b_g1"]) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"method": "grpo", "updates": {"group_size": 1, "micro_batch": 4}},
            "group_size=1: .* no group has more",
        ),
        (
            {"method": "rloo", "updates": {"group_size": 1, "micro_batch": 4}},
            "group_size=1: .* no group has more",
        ),
        ({"method": "nothing"}, "unknown name 'nothing'"),
        ({"method": "kae:bandwith=3"}, "bandwith"),
        ({"method": "spo", "weights": "length"}, "does not average rewards"),
        (
            {"method": "reinforce++", "weights": "length"},
            "advantages are the same without weights=length; set scale='none'",
        ),
        ({"method": "opo"}, "method 'opo' averages by weights of completions; choose length or score_norm"),
        ({"updates": {"ppo_prompts": 3}}, "multiple of ppo_prompts"),
        ({"updates": {"micro_batch": 3}}, "multiple of micro_batch"),
        ({"updates": {"prompts": 32, "ppo_prompts": 16}}, "exceeds the training set of 16"),
        ({"updates": {"rewse": 2}}, "rewse"),
    ],
)
def test_a_contradiction_is_refused_before_anything_is_loaded(changes, message, tmp_path):
    path = tmp_path / "run.yaml"
    content = {**SMALL, **{key: value for key, value in changes.items() if key != "updates"}}
    path.write_text(yaml.safe_dump(content | {"updates": SMALL["updates"] | changes.get("updates", {})}))
    with pytest.raises(ValueError, match=message):
        verl_run_config(path)


def test_a_run_that_does_not_fit_is_warned_of_and_goes_on(models, tmp_path, monkeypatch):
    huge = replace(SHAPES["qwen2.5-math-7b"], layers=10**6)
    monkeypatch.setattr("llm_experiments.training.run.shape_of", lambda model: huge)
    monkeypatch.setattr("llm_experiments.training.run.check_disk", lambda use, folder: "")
    run = training_run(tmp_path, test=None, updates={"steps": 1})
    with pytest.warns(UserWarning, match=r"model tiny: .* GiB .* The run goes on"):
        run.run()
    assert len(pd.read_csv(run.folder / "curve.csv")) == 1


def test_rewards_go_to_the_rows_of_their_problems():
    task = arithmetic(kinds=["add-1"], style="bare")
    one, two = task.problems[0], task.problems[5]
    texts = [two.answer, one.answer, "x", two.answer]
    ids = [two.id, one.id, one.id, one.id]
    expected = [task.rewards(p, [t])[0] for p, t in zip([two, one, one, one], texts, strict=True)]
    assert reward_function(task)(completions=texts, problem_id=ids, prompts=None) == expected
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    assert reward_function(task)(completions=messages, problem_id=ids) == expected


def test_copies_share_their_id_and_chat_prompts_are_messages():
    problems = [Problem("a", "1+1=", "2"), Problem("b", "1+2=", "3")]
    rows = training_set(problems, chat=True, system="Be brief.", copies=3)
    assert rows["problem_id"] == ["a"] * 3 + ["b"] * 3
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert training_set(problems, chat=False, system=None, copies=1)["prompt"] == ["1+1=", "1+2="]


def test_the_curve_and_the_tests_are_those_of_the_records(tmp_path, models):
    run = training_run(tmp_path)
    run.run()
    curve, test = (pd.read_csv(run.folder / f"{name}.csv") for name in ("curve", "test"))
    assert curve["step"].tolist() == list(range(6)) and test["step"].tolist() == [0, 3, 6]
    record = json.loads((run.folder / "records" / "000004.json").read_text())
    assert len(record["rewards"]) == 16 and len(set(record["ids"])) == 8
    assert curve.loc[4, "mean_reward"] == pytest.approx(np.mean(record["rewards"]))
    assert np.isfinite(curve[["entropy", "gradient_norm", "value_error", "mean_length"]]).all(axis=None)
    stored = json.loads((run.folder / "tests" / "000003.json").read_text())
    assert test.loc[1, "greedy"] == pytest.approx(np.mean(stored["greedy"]))
    assert test.loc[1, "accuracy"] == pytest.approx(np.mean(stored["sampled"]))
    assert json.loads((run.folder / "provenance.json").read_text())["config"]["method"] == "kae:bandwidth=20"


def test_a_weighted_runs_log_has_its_score_norms_and_is_what_analyze_reads(tmp_path, models):
    run = training_run(tmp_path, method="kae:bandwidth=20", weights="score_norm", test=None)
    run.run()
    log = kaestat.read_log(run.folder / "rewards.csv")
    records = [json.loads(path.read_text()) for path in sorted((run.folder / "records").glob("*.json"))]
    assert log.weightings == ("weight", "length")
    assert log.n_steps == 6 and log.n_visits == 48
    norms = np.concatenate([record["score_norm"] for record in records])
    np.testing.assert_allclose(np.sort(log.frame["weight"]), np.sort(norms), rtol=1e-5)
    assert log.frame["length"].sum() == sum(sum(record["completion_length"]) for record in records)
    table = kaestat.gradient_risk(log, ["kae:bandwidth=20"])
    assert table["weights"].tolist() == ["none", "score_norm", "length"] and np.isfinite(table["noise"]).all()


def tables(run: TrainingRun) -> pd.DataFrame:
    curve = pd.read_csv(run.folder / "curve.csv").drop(columns="seconds")
    test = pd.read_csv(run.folder / "test.csv").add_prefix("test_")
    return pd.concat([curve, test], axis=1)


@pytest.mark.parametrize("stop_at", slow_after(1, [3, 2]))
def test_a_run_stopped_at_any_step_goes_on_to_the_same_curve(tmp_path, models, monkeypatch, stop_at):
    whole = training_run(tmp_path / "whole")
    whole.run()
    stopped = training_run(tmp_path / "stopped")
    inner = TrainerSession.advantages

    def stops(self, rewards, step, **options):
        if step == stop_at:
            raise KeyboardInterrupt
        return inner(self, rewards, step, **options)

    monkeypatch.setattr(TrainerSession, "advantages", stops)
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    monkeypatch.setattr(TrainerSession, "advantages", inner)
    again = training_run(tmp_path / "stopped")
    again.run()
    pd.testing.assert_frame_equal(tables(again), tables(whole), check_exact=True)


def test_a_finished_run_is_not_made_again_and_its_folder_is_no_other_runs(tmp_path, models, monkeypatch):
    training_run(tmp_path).run()
    monkeypatch.setattr("llm_experiments.starting.load_policy", lambda *_, **__: pytest.fail("loaded a model"))
    training_run(tmp_path).run()
    with pytest.raises(ValueError, match=r"other settings \(updates\)"):
        training_run(tmp_path, updates={"learning_rate": 1e-4}).run()


def test_the_command_runs_methods_and_seeds_in_turn(tmp_path, models):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"test": None}))
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    options = ["--method", "rloo", "--method", "kae", "--scale", "batch_std", "--seed", "0", "--seed", "1"]
    result = CliRunner().invoke(cli.app, ["train", "--config", str(path), *options, *folders], catch_exceptions=False)
    assert result.exit_code == 0
    curves = pd.read_csv(tmp_path / "results" / "training" / "small" / "curves.csv.gz")
    assert {*zip(curves["method"], curves["seed"], strict=True)} == {(m, s) for m in ("rloo", "kae") for s in (0, 1)}
    assert set(curves["scale"]) == {"batch_std"}
    assert not (tmp_path / "results" / "training" / "small" / "tests.csv").exists()  # none were asked for


def runs_of(ends: dict[tuple[str, int], float]) -> pd.DataFrame:
    rows = [
        (method, "none", "own", 1, seed, step, value + 0.01 * (step - 40), value + 0.02 * step, 1.0)
        for (method, seed), value in ends.items()
        for step in (0, 30, 40, 50)
    ]
    columns = ["method", "weights", "scale", "reuse", "seed", "step", "greedy", "accuracy", "pass_at_samples"]
    return pd.DataFrame(rows, columns=columns)


def test_ends_of_runs_are_compared_seed_by_seed():
    values = {("kae", 0): 0.5, ("kae", 1): 0.7, ("kae", 2): 0.6, ("none", 0): 0.4, ("none", 1): 0.65, ("none", 2): 0.5}
    ends = run_ends(runs_of(values))
    assert ends["greedy"].tolist() == pytest.approx(list(values.values()))  # the mean of steps 30, 40, 50
    assert ends["gain"].tolist() == pytest.approx([0.8] * 6)  # 0.02 a step, from step 0 to step 40
    found = final(ends).set_index(["method", "outcome"])
    assert found.loc[("kae", "greedy"), "mean"] == pytest.approx(0.6)
    assert found.loc[("kae", "greedy"), "se"] == pytest.approx(0.1 / np.sqrt(3))
    paired = differences(ends).set_index(["method", "reference", "outcome"]).loc[("kae", "none", "greedy")]
    gaps = np.array([0.1, 0.05, 0.1])
    assert paired["difference"] == pytest.approx(gaps.mean())
    reach = 4.302653 * gaps.std(ddof=1) / np.sqrt(3)  # Student, 2 degrees of freedom
    assert (paired["ci_low"], paired["ci_high"]) == pytest.approx((gaps.mean() - reach, gaps.mean() + reach))


def test_summaries_have_errors_over_problems():
    found = summarise({"greedy": [1.0, 0.0, 1.0, 1.0], "sampled": [[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]]})
    assert found["greedy"] == 0.75 and found["greedy_se"] == pytest.approx(0.25)
    assert found["accuracy"] == 0.5 and found["pass_at_samples"] == 0.75


def test_greedy_answers_are_the_likeliest_tokens():
    policy = small_policy(3, max_new_tokens=5)
    prompts = ["1+1=", "22+3=", "4+4="]
    for prompt, completion in zip(prompts, policy.greedy(prompts), strict=True):
        ids = list(policy.encode(prompt))
        for token in completion.token_ids:
            with torch.no_grad():
                logits = policy.model(torch.tensor([ids])).logits[0, -1]
            assert token == int(logits.argmax())
            ids.append(token)
        assert completion.finished == (completion.token_ids[-1] in policy.eos_ids)
