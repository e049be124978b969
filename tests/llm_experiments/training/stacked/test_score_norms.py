"""Squared norms of scores in the parameters, against a loop over transformers' models."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from llm_experiments.training.stacked.model import StackedDecoder
from llm_experiments.training.stacked.sampling import tokens_that_count
from llm_experiments.training.stacked.score_norms import tapped_norms
from tests.integrations.test_gradient_norms import roots


def scored(model, parameters, prompts, completions, temperature=1.0):
    """Scores of all tokens, shape (runs, rows, tokens), with the parameters that they are of and the taps."""
    own, taps = {name: each.detach().requires_grad_() for name, each in parameters.items()}, []
    tokens = torch.cat([prompts, completions[:, :, :-1]], 2)
    logits = model.logits(own, tokens, skip=prompts.shape[2] - 1, taps=taps)
    return (logits / temperature).log_softmax(-1).gather(-1, completions[..., None])[..., 0], own, taps


def test_exact_norms_are_those_of_a_loop(family, codec, pools):
    model, parameters = StackedDecoder.load(family)
    prompts = torch.stack([codec.tokens([problem.prompt for problem in pool.problems[:4]]) for pool in pools[:2]])
    end, pad = codec.end, codec.pad
    rows = torch.tensor([[97, 98, end, pad], [99, 50, 51, 52], [end, pad, pad, pad], [48, 48, 48, 48]])
    completions = torch.stack([rows, rows.flip(0)])
    scores, _, taps = scored(model, parameters, prompts, completions, temperature=0.7)
    found = tapped_norms((scores * tokens_that_count(completions, end)).sum(2), taps)
    assert found.shape == (2, 4)
    for run, folder in enumerate(family):
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for prompt, completion, norm in zip(prompts[run].tolist(), completions[run].tolist(), found[run], strict=True):
            said = completion[: completion.index(end) + 1] if end in completion else completion
            logits = plain(input_ids=torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1]
            plain.zero_grad()
            (logits / 0.7).log_softmax(-1).gather(1, torch.tensor(said)[:, None]).sum().backward()
            expected = sum(float(each.grad.square().sum()) for each in plain.parameters())
            assert float(norm) == pytest.approx(expected, rel=1e-3)


def test_norms_in_adams_units_are_those_of_gradients_over_the_factored_root(folders, codec, pools):
    """The slow reference: each completion's gradient by itself, divided coordinate by coordinate."""
    model, parameters = StackedDecoder.load(folders[:2])
    random = torch.Generator().manual_seed(1)
    squares = {name: torch.rand(each.shape, generator=random) ** 4 for name, each in parameters.items()}
    prompts = torch.stack([codec.tokens([problem.prompt for problem in pool.problems[:3]]) for pool in pools[:2]])
    completions = torch.randint(97, 103, (2, 3, 4), generator=random)
    scores, own, taps = scored(model, parameters, prompts, completions)
    scores = scores.sum(2)
    found = tapped_norms(scores, taps, squares)
    for run in range(2):
        for row in range(3):
            each = torch.autograd.grad(scores[run, row], list(own.values()), retain_graph=True)
            gradients = dict(zip(own, each, strict=True))
            expected = sum(
                float((gradient[run] / roots("own", {"own": squares[name][run]})).square().sum())
                for name, gradient in gradients.items()
            )
            assert float(found[run, row]) == pytest.approx(expected, rel=1e-3)


def test_a_run_that_has_not_moved_yet_has_plain_norms(folders, codec, pools):
    """All of its first rewards were alike, so that its gradient was 0; the run beside it has Adam's units."""
    model, parameters = StackedDecoder.load([folders[0]] * 2)
    prompts = torch.stack([codec.tokens([problem.prompt for problem in pools[0].problems[:2]])] * 2)
    completions = torch.randint(97, 103, (2, 2, 4), generator=torch.Generator().manual_seed(1))
    scores, own, taps = scored(model, parameters, prompts, completions)
    squares = {name: torch.stack([torch.zeros_like(each[0]), 4 + 0 * each[1]]) for name, each in own.items()}
    plain, adam = (tapped_norms(scores.sum(2), taps, *given) for given in ((), (squares,)))
    torch.testing.assert_close(adam[0], plain[0])
    torch.testing.assert_close(adam[1], plain[1] / 4, rtol=5e-3, atol=0)  # the floor adds a thousandth, or two
