"""Squared norms of scores in the parameters, against a loop over transformers' models."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from llm_experiments.training.stacked.model import StackedDecoder
from llm_experiments.training.stacked.score_norms import exact_norms


def test_exact_norms_are_those_of_a_loop(folders, codec, pools):
    model, parameters = StackedDecoder.load(folders[:2])
    prompts = torch.stack([codec.tokens([problem.prompt for problem in pool.problems[:4]]) for pool in pools[:2]])
    end, pad = codec.end, codec.pad
    rows = torch.tensor([[97, 98, end, pad], [99, 50, 51, 52], [end, pad, pad, pad], [48, 48, 48, 48]])
    completions = torch.stack([rows, rows.flip(0)])
    found = exact_norms(model, parameters, prompts, completions, end=end, temperature=0.7)
    assert found.shape == (2, 4)
    for run, folder in enumerate(folders[:2]):
        plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for prompt, completion, norm in zip(prompts[run].tolist(), completions[run].tolist(), found[run], strict=True):
            said = completion[: completion.index(end) + 1] if end in completion else completion
            logits = plain(input_ids=torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1]
            plain.zero_grad()
            (logits / 0.7).log_softmax(-1).gather(1, torch.tensor(said)[:, None]).sum().backward()
            expected = sum(float(each.grad.square().sum()) for each in plain.parameters())
            assert float(norm) == pytest.approx(expected, rel=1e-3)
