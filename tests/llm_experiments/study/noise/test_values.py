"""Chances and their gradients against transformers, one thought at a time."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from llm_experiments.study.noise.values import THOUGHTS, Thoughts, value_error
from llm_experiments.training.stacked.model import StackedDecoder


@pytest.fixture(scope="module")
def known(folder, codec, pool):
    model, parameters = StackedDecoder.load([folder])
    problems = pool.problems[:5]
    thoughts = Thoughts.sampled(model, parameters, problems, codec, samples=3, seed=2)
    assert not (thoughts.tokens == codec.pad).any()  # which transformers' models would not be trained on
    return model, parameters, problems, thoughts


def test_thoughts_stand_between_prompt_and_answer(known, codec):
    _, _, problems, thoughts = known
    for problem, rows in zip(problems, thoughts.tokens, strict=True):
        for row in rows.tolist():
            assert row[: -THOUGHTS - 1] == codec.tokens([problem.prompt])[0].tolist()
            assert row[-1:] == codec.tokens([problem.answer])[0].tolist()
    assert len({tuple(row) for row in thoughts.tokens.flatten(0, 1)[:, -THOUGHTS - 1 : -1].tolist()}) > 10


def test_chances_and_gradients_are_those_of_a_plain_loop(known, folder):
    model, parameters, problems, thoughts = known
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    names = [name for name, _ in plain.named_parameters()]
    chances, gradients = thoughts.chances(model, parameters)[0], thoughts.gradients(model, parameters)
    sizes = [each[0].numel() for each in parameters.values()]
    places = dict(zip(parameters, gradients.split(sizes, 1), strict=True))
    for number in range(len(problems)):
        found = []
        for row in thoughts.tokens[number]:
            scores = plain(input_ids=row[None]).logits[0].log_softmax(-1)
            found.append((scores[-2, row[-1]] + scores[-1, thoughts.end]).exp())
        torch.testing.assert_close(chances[number], torch.stack(found), rtol=1e-4, atol=1e-9)
        expected = torch.autograd.grad(torch.stack(found).mean(), list(plain.parameters()))
        for name, each in zip(names, expected, strict=True):
            torch.testing.assert_close(places[name][number], each.flatten(), rtol=1e-3, atol=1e-9)


def test_the_error_of_values_is_not_that_of_the_truth():
    rng = np.random.default_rng(0)
    chances = 0.5 + 0.2 * rng.standard_normal((100_000, 4))
    assigned = np.full(100_000, 0.6)
    assert value_error(assigned, chances, np.ones(100_000)) == pytest.approx(0.01, abs=5e-4)
    assert ((assigned - chances.mean(1)) ** 2).mean() == pytest.approx(0.02, abs=5e-4)


def test_the_error_is_weighted():
    assigned, chances = np.array([0.0, 1.5]), np.full((2, 2), 0.5)
    assert value_error(assigned, chances, np.array([1.0, 3.0])) == pytest.approx(0.25 / 4 + 0.75)
