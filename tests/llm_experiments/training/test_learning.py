"""Smoke test of whole training runs: with every method that should learn, held-out accuracy rises beyond noise.

A small model says the first digit of a number in half of all cases and gives up in the other half. Held-out numbers are
the multiples of three. Each run takes seconds; the committed results of ``results/training`` are the full form.
"""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from llm_experiments.config import PretrainingConfig, TaskConfig
from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import TinySize, pretrain
from llm_experiments.tasks.base import Problem, Task
from llm_experiments.training.config import RunConfig
from llm_experiments.training.run import TrainingRun
from tests.helpers.silence import silent

SIZE = TinySize(width=64, layers=2, heads=4, key_value_heads=2, feed_forward=128, context=32)
NUMBERS = range(100, 1000)
HELD_OUT = 3  # every third number
STEPS, COMPLETIONS = 40, 64
# Method, completions per prompt, weights, scale, reuse.
METHODS = [
    ("none", 1, "none", None, 1),
    ("reinforce++", 1, "score_norm", "none", 1),
    ("spo", 1, "none", None, 1),
    ("kae:bandwidth=20", 1, "none", None, 1),
    ("kae:bandwidth=10", 1, "none", None, 5),
    ("kae_eb:bandwidth=20", 1, "none", None, 1),
    ("dr_grpo", 4, "none", None, 1),
    ("gpg", 4, "none", None, 1),
    ("kae:bandwidth=20", 4, "score_norm", None, 1),
]

QUICK = ("kae:bandwidth=20", 1, "none", None, 1)


@dataclass(frozen=True)
class FirstDigits(Task):
    """Asks for the first digit."""

    problems: tuple[Problem, ...]

    def rewards(self, problem, texts):
        return [float(text == problem.answer) for text in texts]


@pytest.fixture(scope="module")
def hesitant_model(tmp_path_factory):
    """Folder of a model that answers in half of all cases."""
    rng = np.random.default_rng(0)
    examples = [(f"{n}=", str(n)[0] if rng.random() < 0.5 else "?") for n in NUMBERS]
    config = PretrainingConfig(steps=150, batch_size=64, learning_rate=4e-3)
    folder = tmp_path_factory.mktemp("models") / "hesitant"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same weights whatever the machine
    save_model(folder, *pretrain(examples, config, 0, size=SIZE))
    torch.set_num_threads(threads)
    return folder


@pytest.fixture(autouse=True)
def digits(monkeypatch):
    def load(config: TaskConfig, *, seed):
        held_out = config.name == "file"
        return FirstDigits(
            tuple(Problem(str(n), f"{n}=", str(n)[0]) for n in NUMBERS if (n % HELD_OUT == 0) == held_out)
        )

    monkeypatch.setattr("llm_experiments.training.start.load_task", load)


def rewards_before_and_after(model, folder, learning_rate, method, group_size, weights, scale, reuse):
    """Held-out rewards, shape (problems, samples), of the first test and the last."""
    config = RunConfig(
        name="smoke",
        model={"name": str(model), "chat": False},
        task={"name": "arithmetic"},
        sampling={"temperature": 1.0, "max_new_tokens": 4, "batch_size": 512},
        method=method,
        weights=weights,
        scale=scale,
        updates={
            "steps": STEPS,
            "prompts": COMPLETIONS // group_size,
            "group_size": group_size,
            "reuse": reuse,
            "learning_rate": learning_rate,
            "micro_batch": COMPLETIONS,
            "save_every": STEPS,
        },
        test={"task": {"name": "file"}, "every": STEPS, "samples": 4},
    )
    run = TrainingRun(config, runs=folder, progress=silent)
    run.run()
    tests = [json.loads((run.folder / "tests" / f"{step:06d}.json").read_text()) for step in (0, STEPS)]
    return [np.array(each["sampled"]) for each in tests]


def rise(before, after) -> float:
    """Gain in accuracy in units of its standard error, paired by problem."""
    gain = after.mean(axis=1) - before.mean(axis=1)
    return float(gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain))))


@pytest.mark.parametrize(
    "variant",
    [variant if variant == QUICK else pytest.param(variant, marks=pytest.mark.slow) for variant in METHODS],
    ids=lambda each: f"{each[0]}-G{each[1]}-{each[2]}-J{each[4]}",
)
def test_held_out_accuracy_rises_beyond_noise(variant, hesitant_model, tmp_path):
    before, after = rewards_before_and_after(hesitant_model, tmp_path, 5e-4, *variant)
    assert len(before) == 300
    assert rise(before, after) > 6
    assert after.mean() - before.mean() > 0.15


@pytest.mark.slow
def test_without_updates_that_matter_no_rise_is_found(hesitant_model, tmp_path):
    """The negative control of the test above."""
    before, after = rewards_before_and_after(hesitant_model, tmp_path, 1e-12, *METHODS[0])
    assert abs(rise(before, after)) < 5
