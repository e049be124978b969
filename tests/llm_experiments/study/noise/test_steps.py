"""Effects of updates against a loop over models, and where they are known."""

import pytest
import torch

from llm_experiments.study.noise.steps import effects, moved
from llm_experiments.study.noise.values import Thoughts
from llm_experiments.training.stacked.model import StackedDecoder


@pytest.fixture(scope="module")
def known(folder, codec, pool):
    model, parameters = StackedDecoder.load([folder])
    thoughts = Thoughts.sampled(model, parameters, pool.problems[:6], codec, samples=2, seed=1)
    size = sum(each[0].numel() for each in parameters.values())
    moves = 0.02 * torch.randn(11, size, generator=torch.Generator().manual_seed(0))
    return model, parameters, thoughts, moves


def test_effects_are_those_of_a_loop_over_models(known):
    model, parameters, thoughts, moves = known
    found = effects(model, parameters, thoughts, moves, pairs=10)

    def value(move):
        place, other = 0, {}
        for name, each in parameters.items():
            other[name] = each + move[place : place + each.numel()].view(each.shape)
            place += each.numel()
        return thoughts.chances(model, other)[0].mean(1)

    mean = moves.mean(0)
    middle = value(mean)
    torch.testing.assert_close(found.mean, middle - value(0 * mean), rtol=1e-3, atol=1e-8)
    costs = [(value(move) + value(2 * mean - move)) / 2 - middle for move in moves[:10]]
    torch.testing.assert_close(found.cost, torch.stack(costs).mean(0), rtol=1e-3, atol=1e-9)
    assert found.cost.abs().max() > 1e-6


def test_updates_without_noise_cost_nothing(known):
    model, parameters, thoughts, moves = known
    found = effects(model, parameters, thoughts, moves[:1].repeat(4, 1), pairs=4)
    torch.testing.assert_close(found.cost, torch.zeros(6), rtol=0, atol=1e-8)


def test_small_moves_do_what_gradients_say(known):
    model, parameters, thoughts, _ = known
    gradients = thoughts.gradients(model, parameters)
    move = 1e-2 * gradients[:1] / gradients[0].norm()
    before, after = (thoughts.chances(model, moved(parameters, by)).mean(2)[0] for by in (0 * move, move))
    torch.testing.assert_close(after - before, gradients @ move[0], rtol=0.05, atol=1e-8)
