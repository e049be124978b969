"""The gradient's noise along a run: estimated without bias, for the gradient that is meant, and without any trace."""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from llm_experiments.training.config import RunConfig
from llm_experiments.training.run import TrainingRun, trl_config
from llm_experiments.training.trl.gradient_noise import GradientNoise, gradient_noise
from llm_experiments.training.trl.trainer import RecordingTrainer
from tests.helpers.small_policies import SIZE, small_policy

ARITHMETIC = {"name": "arithmetic", "n_prompts": 16, "options": {"kinds": ["add-1"], "style": "bare"}}
SMALL = {
    "name": "small",
    "model": {"name": "tiny", "chat": False, "pretraining": {"steps": 20, "batch_size": 32}},
    "task": ARITHMETIC,
    "sampling": {"temperature": 0.8, "max_new_tokens": 4, "batch_size": 64},
    "updates": {
        "steps": 5, "prompts": 4, "group_size": 2, "learning_rate": 1e-3, "micro_batch": 4, "save_every": 2,
    },
}  # fmt: skip


@contextmanager
def no_progress(part, total):
    yield lambda: None


@pytest.fixture(autouse=True)
def models(monkeypatch):
    """A small random policy whose answers are right in half of all cases, whatever they are."""

    def load(model, sampling, **_):
        size = replace(SIZE, context=128)
        return small_policy(0, temperature=sampling.temperature, max_new_tokens=sampling.max_new_tokens, size=size)

    monkeypatch.setattr("llm_experiments.training.start.load_policy", load)
    monkeypatch.setattr(
        "llm_experiments.training.run.reward_function",
        lambda task: lambda completions, **_: [float(sum(map(ord, text)) % 2) for text in completions],
    )


def trained(folder, **changes):
    run = TrainingRun(RunConfig(**{**SMALL, **changes}), runs=folder, progress=no_progress)
    run.run()
    return run


def records(run):
    return [json.loads(path.read_text()) for path in sorted((run.folder / "records").glob("*.json"))]


# --- the estimates ----------------------------------------------------------------------------------------------------


def test_the_noise_and_the_signal_of_a_known_gradient():
    """Components are normal around a known mean: over many pairs both estimates come out within five errors."""
    rng = np.random.default_rng(0)
    mean, sd = np.array([2.0, -1.0, 0.0, 0.5]), np.array([1.0, 3.0, 0.5, 2.0])

    def draw(_):
        sample = torch.as_tensor(mean + sd * rng.standard_normal(4))
        return [sample[:1], sample[1:].reshape(3, 1)]

    found = gradient_noise(draw, 4000).summary()
    assert abs(found["gradient_mse"] - (sd**2).sum()) < 5 * found["gradient_mse_se"]
    assert abs(found["gradient_signal"] - (mean**2).sum()) < 5 * found["gradient_signal_se"]
    assert found["gradient_mse_se"] < 0.3 and found["gradient_signal_se"] < 0.3  # so that the two would differ


def test_each_gradient_enters_one_pair():
    asked = []
    noise = gradient_noise(lambda k: asked.append(k) or [torch.tensor([float(k)])], 3)
    assert asked == [0, 1, 2, 3, 4, 5]
    assert noise == GradientNoise(mse=(0.5, 0.5, 0.5), signal=(0.0, 6.0, 20.0))


def test_errors_are_those_of_the_mean_over_pairs():
    found = GradientNoise(mse=(1.0, 3.0), signal=(0.0, 2.0)).summary()
    assert found["gradient_mse"] == 2.0 and found["gradient_mse_se"] == pytest.approx(1.0)
    assert found["pairs"] == 2


# --- in a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "weights"), [("kae:bandwidth=20", "score_norm"), ("spo", "none"), ("grpo", "none")])
def test_measuring_changes_nothing_in_a_run(tmp_path, method, weights):
    changes = {"method": method, "weights": weights}
    plain = trained(tmp_path / "plain", **changes)
    measured = trained(tmp_path / "measured", gradient={"every": 2, "pairs": 2}, **changes)
    read = [pd.read_csv(run.folder / "curve.csv").drop(columns="seconds") for run in (plain, measured)]
    pd.testing.assert_frame_equal(*read, check_exact=True)
    assert [r["rewards"] for r in records(plain)] == [r["rewards"] for r in records(measured)]
    found = pd.read_csv(measured.folder / "gradient.csv")
    assert found["step"].tolist() == [0, 2, 4] and (found["gradient_mse"] > 0).all()
    assert not (plain.folder / "gradient.csv").exists()


def test_measuring_may_be_added_to_a_run_that_was_begun(tmp_path):
    trained(tmp_path)
    trained(tmp_path, gradient={"every": 2, "pairs": 2})  # the same folder: neither refused nor made again


def test_the_gradient_is_that_of_the_sum_of_log_probabilities(tmp_path, monkeypatch):
    """Against the definition, completion by completion, with the policy's own log-probabilities."""
    seen = []
    inner = RecordingTrainer._policy_gradient

    def keeps(self, output):
        gradient = inner(self, output)
        seen.append((output, gradient, [p.detach().clone() for p in self.model.parameters()]))
        return gradient

    monkeypatch.setattr(RecordingTrainer, "_policy_gradient", keeps)
    trained(tmp_path, method="rloo", gradient={"every": 10, "pairs": 2})
    assert len(seen) == 4
    output, gradient, weights = max(seen, key=lambda each: float(each[0]["advantages"].abs().sum()))
    assert float(output["advantages"].abs().sum()) > 0
    policy = small_policy(0, temperature=0.8, max_new_tokens=4, size=replace(SIZE, context=128))
    for parameter, value in zip(policy.model.parameters(), weights, strict=True):
        parameter.data.copy_(value)
    total = 0.0
    for row in range(len(output["advantages"])):
        prompt = output["prompt_ids"][row][output["prompt_mask"][row].bool()].tolist()
        completion = output["completion_ids"][row][output["completion_mask"][row].bool()].tolist()
        log_probs, _ = policy.completion_log_probs(prompt, [completion])
        total = total - output["advantages"][row] * log_probs.sum() / len(output["advantages"])
    expected = torch.autograd.grad(total, list(policy.model.parameters()))
    for found, wanted in zip(gradient, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_a_pair_shares_history_but_no_completions(tmp_path, monkeypatch):
    seen = []
    inner = RecordingTrainer._policy_gradient

    def keeps(self, output):
        seen.append((self.generation, self.advantage_estimator.last_step, output["completion_ids"].clone()))
        return inner(self, output)

    monkeypatch.setattr(RecordingTrainer, "_policy_gradient", keeps)
    trained(tmp_path, method="kae", gradient={"every": 3, "pairs": 2})
    assert [each[:2] for each in seen] == [(1, 0)] * 4 + [(4, 3)] * 4  # each time the step is rehearsed, then undone
    drawn = [tuple(each[2].flatten().tolist()) for each in seen]
    assert len(set(drawn)) == len(drawn)


def test_several_processes_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("WORLD_SIZE", "2")
    config = RunConfig(**SMALL, gradient={"every": 2})
    with pytest.raises(ValueError, match="gradient: its noise is measured by one process, not 2"):
        trl_config(config, tmp_path)
