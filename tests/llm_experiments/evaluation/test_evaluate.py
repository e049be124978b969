"""Evaluation: errors of accuracies, resumption, and the same score twice from stored completions."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from llm_experiments import cli
from llm_experiments.config import ModelConfig
from llm_experiments.evaluation.accuracy import accuracy, average, difference, pass_at_k
from llm_experiments.evaluation.config import EvaluationConfig
from llm_experiments.evaluation.evaluate import Evaluation
from llm_experiments.evaluation.suites import SETS, parse_suite
from llm_experiments.evaluation.tables import accuracy_table, comparison_table
from llm_experiments.policies.base import Completion
from llm_experiments.policies.presets import prompt_style
from llm_experiments.pools.store import PromptPool
from llm_experiments.training.identity import IDENTITY
from tests.helpers.silence import silent
from tests.helpers.small_policies import SIZE, small_policy

N_PROBLEMS = 7


def test_differences_are_paired():
    rng = np.random.default_rng(303)
    rewards = (rng.random((200, 4)) < rng.beta(0.4, 0.6, size=(200, 1))).astype(float)
    worse = rewards.copy()
    worse[:10] = 0.0
    found = difference(rewards, worse)
    assert found.mean == pytest.approx(rewards[:10].mean(axis=1).sum() / 200)
    assert found.se < 0.3 * np.hypot(accuracy(rewards).se, accuracy(worse).se)
    assert found.ci_low <= found.mean <= found.ci_high


def test_the_average_weighs_sets_alike():
    parts = [accuracy(np.array([[1.0], [0.0]])), accuracy(np.ones((100, 1)))]
    found = average(parts)
    assert found.mean == 0.75 and found.se == pytest.approx(parts[0].se / 2)


@pytest.mark.parametrize("right", range(6))
@pytest.mark.parametrize("k", range(1, 6))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(right, k):
    rewards = np.array([1.0] * right + [0.0] * (5 - right))
    subsets = [max(each) for each in combinations(rewards, k)]
    assert pass_at_k(rewards[None], k)[0] == pytest.approx(np.mean(subsets))


def test_the_papers_suite_has_the_papers_sizes():
    sizes = {each.task: (each.n_problems, each.samples) for each in parse_suite("paper")}
    assert sizes == {
        "aime24": (30, 32),
        "aime25": (30, 32),
        "amc": (83, 32),
        "math500": (500, 1),
        "minerva": (272, 1),
        "olympiadbench": (675, 1),
        "gsm8k": (1319, 1),
    }


@pytest.mark.parametrize("text", ["", "aime23", "aime24:0", "aime24:x", "aime24,aime24:2"])
def test_a_suite_that_cannot_be_read_is_refused(text):
    with pytest.raises(ValueError, match="suite:"):
        parse_suite(text)


@pytest.fixture
def data(tmp_path):
    """Two small sets in files; half of the answers are what the random policy can happen to say."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"problem": f"{k}+{k}=", "answer": str(k % 3)} for k in range(N_PROBLEMS)]
    (folder / "math500.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    rows = [{"question": f"{k}?", "answer": f"so #### {k}"} for k in range(N_PROBLEMS)]
    (folder / "gsm8k_test.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


@pytest.fixture
def policy(monkeypatch):
    """A random policy that counts how often it is asked, and says 0, 1 or 2."""
    policy = small_policy(0, max_new_tokens=4, size=replace(SIZE, context=256))
    inner, policy.asked = policy.sample_groups, []

    def sample_groups(prompts, n, *, seed):
        policy.asked += prompts
        groups = inner(prompts, n, seed=seed)
        return [[replace(each, text=str(sum(each.token_ids) % 3)) for each in group] for group in groups]

    policy.sample_groups = sample_groups
    monkeypatch.setattr("llm_experiments.policies.load_policy", lambda *_, **__: policy)
    return policy


def evaluation(tmp_path, data, name="small", suite="math500:4,gsm8k:2", **options) -> Evaluation:
    config = EvaluationConfig(
        name=name,
        model={"name": "random", "chat": False},
        sampling={"batch_size": 8},
        suite=suite,
        options={"template": "{problem}", "workers": 1},
        **options,
    )
    return Evaluation(config, data=data, runs=tmp_path / "runs", results=tmp_path / "results", progress=silent)


def test_accuracies_are_the_means_of_what_is_stored(tmp_path, data, policy):
    run = evaluation(tmp_path, data)
    table = run.run().set_index("set")
    rewards = pd.read_csv(run.results / "problems.csv")
    for name, samples in (("math500", 4), ("gsm8k", 2)):
        part = rewards[rewards["set"] == name]
        assert len(part) == N_PROBLEMS * samples
        assert table.loc[name, "accuracy"] == pytest.approx(part["reward"].mean())
        by_problem = part.groupby("problem")["reward"].mean()
        assert table.loc[name, "se"] == pytest.approx(by_problem.std(ddof=1) / np.sqrt(N_PROBLEMS))
        assert table.loc[name, "n_problems"] == N_PROBLEMS
        assert table.loc[name, "n_problems_whole"] == SETS[name].n_problems
    assert 0 < table.loc["math500", "accuracy"] < 1
    assert table.loc["average", "accuracy"] == pytest.approx(table["accuracy"].iloc[:2].mean())
    assert json.loads((run.results / "provenance.json").read_text())["local_files"] == ["math500", "gsm8k"]


def test_stored_completions_give_the_same_score_twice_and_are_graded_anew_on_request(tmp_path, data, policy):
    first = evaluation(tmp_path, data).run()
    policy.asked.clear()
    pd.testing.assert_frame_equal(evaluation(tmp_path, data).run(), first)
    pd.testing.assert_frame_equal(evaluation(tmp_path, data).run(regrade=True), first)
    (data / "gsm8k_test.jsonl").write_text((data / "gsm8k_test.jsonl").read_text().replace("#### ", "#### 1000"))
    regraded = evaluation(tmp_path, data).run(regrade=True).set_index("set")
    assert regraded.loc["gsm8k", "accuracy"] == 0.0 and not policy.asked


def test_completions_of_other_weights_are_refused(tmp_path, data, policy):
    evaluation(tmp_path, data, suite="math500:4").run()
    next((tmp_path / "runs" / "evaluations").rglob("00000.parquet")).unlink()
    policy.model.get_input_embeddings().weight.data.mul_(1.001)
    with pytest.raises(ValueError, match="other weights"):
        evaluation(tmp_path, data, suite="math500:4").run()


def test_other_settings_under_the_same_name_are_refused(tmp_path, data, policy):
    evaluation(tmp_path, data, suite="math500:4").run()
    with pytest.raises(ValueError, match="samples"):
        evaluation(tmp_path, data, suite="math500:2").run()


def test_evaluations_on_other_problems_are_not_compared(tmp_path, data, policy):
    one = evaluation(tmp_path, data, name="one", suite="math500")
    two = evaluation(tmp_path, data, name="two", suite="math500", limit=3)
    one.run(), two.run()
    with pytest.raises(ValueError, match="hold other problems"):
        comparison_table(one.results, two.results)
    with pytest.raises(FileNotFoundError, match="results folder of an evaluation"):
        comparison_table(one.results, tmp_path)


def test_the_commands_evaluate_and_compare(tmp_path, data, policy):
    common = ["--data", str(data), "--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    for name, seed in (("one", "0"), ("two", "1")):
        options = ["--model", "random", "--suite", "math500:4", "--name", name, "--seed", seed, "--no-chat"]
        result = CliRunner().invoke(cli.app, ["evaluate", *options, *common], catch_exceptions=False)
        assert result.exit_code == 0 and "math500" in result.output
    folders = [str(tmp_path / "results" / "evaluations" / name) for name in ("one", "two")]
    result = CliRunner().invoke(cli.app, ["compare", *folders], catch_exceptions=False)
    assert result.exit_code == 0 and "difference" in result.output


@pytest.mark.parametrize("place", ["model", "snapshots/step-200"])
def test_a_runs_model_is_asked_as_in_training(tmp_path, place, monkeypatch):
    """The preset's system message is that of the model's name, which its folder no longer tells."""
    model, asked = ModelConfig(name="qwen2.5-1.5b-instruct"), []
    (tmp_path / IDENTITY).write_text(json.dumps({"prompt_style": prompt_style(model)}))
    monkeypatch.setattr(
        "llm_experiments.evaluation.evaluate.Evaluation", lambda config, **_: asked.append(config) or 1 / 0
    )
    for options in ([], ["--system", "Other."], ["--no-chat"]):
        CliRunner().invoke(cli.app, ["evaluate", "--model", str(tmp_path / place), *options])
    assert [prompt_style(each.model) for each in asked] == [prompt_style(model), (True, "Other."), (False, None)]


def test_the_papers_average_is_over_its_six_sets_and_gsm8k_stands_beside(tmp_path):
    accuracies = {"aime24": 0.25, "aime25": 0.5, "amc": 0.0, "math500": 0.75, "minerva": 0.5, "olympiadbench": 0.25}
    rewards = {name: np.repeat([1.0, 0.0], [round(8 * mean), 8 - round(8 * mean)]) for name, mean in accuracies.items()}
    rewards["gsm8k"] = np.ones(8)
    sets = parse_suite("paper")
    assert [each.task for each in sets] == list(rewards)
    rows = [(name, f"{name}/{k}", 0, reward) for name, all_ in rewards.items() for k, reward in enumerate(all_)]
    for folder in ("mine", "theirs"):
        (tmp_path / folder).mkdir()
        frame = pd.DataFrame(rows, columns=["set", "problem", "sample", "reward"])
        if folder == "theirs":
            frame.loc[frame["set"] != "gsm8k", "reward"] = 0.0
        frame.to_csv(tmp_path / folder / "problems.csv", index=False)
    found = comparison_table(tmp_path / "mine", tmp_path / "theirs").set_index("set")
    assert list(found.index) == [*accuracies, "gsm8k", "paper_average"]
    assert found.loc[list(accuracies), "difference"].to_dict() == accuracies and found.loc["gsm8k", "difference"] == 0
    assert found.loc["paper_average", "difference"] == pytest.approx(np.mean(list(accuracies.values())))
    pools = {name: [pool_of(f"{name}/{k}", reward) for k, reward in enumerate(all_)] for name, all_ in rewards.items()}
    table = accuracy_table(sets, pools, seed=0).set_index("set")["accuracy"]
    assert table["gsm8k"] == 1 and table["paper_average"] == pytest.approx(np.mean(list(accuracies.values())))
    assert "average" not in table


def pool_of(problem, reward):
    completion = Completion((1,), (0.0,), "", True)
    return PromptPool(0, "weights", problem, (completion,), np.array([reward]))
