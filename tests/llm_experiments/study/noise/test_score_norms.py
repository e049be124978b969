"""Squared norms of scores against a loop over transformers' model."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from llm_experiments.study.noise.score_norms import _row, score_norms, squared_norms
from llm_experiments.training.stacked.model import StackedQwen2


def test_norms_are_those_of_a_loop(folder, codec, pool):
    model, parameters = StackedQwen2.load([folder])
    prompts = codec.tokens([problem.prompt for problem in pool.problems[:4]])
    end, pad = codec.end, codec.pad
    completions = torch.tensor([[97, 98, end, pad], [99, 50, 51, 52], [end, pad, pad, pad], [48, 48, 48, 48]])
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = squared_norms(model, parameters, prompts, completions, codec.end)
    for prompt, completion, norm in zip(prompts.tolist(), completions.tolist(), found.tolist(), strict=True):
        said = completion[: completion.index(codec.end) + 1] if codec.end in completion else completion
        scores = plain(input_ids=torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        plain.zero_grad()
        scores.gather(1, torch.tensor(said)[:, None]).sum().backward()
        assert norm == pytest.approx(sum(float(each.grad.square().sum()) for each in plain.parameters()), rel=1e-3)


def test_every_kind_has_its_row(folder, codec, pool):
    model, parameters = StackedQwen2.load([folder])
    found = score_norms(model, parameters, pool, codec, tokens=2, times=3, seed=0).set_index("kind")
    kinds = [problem.level for problem in pool.problems]
    assert found["completions"].to_dict() == {kind: 3 * kinds.count(kind) for kind in set(kinds)}
    assert (found["wrong"] > 0).all()


def test_the_best_baseline_lies_below_the_value_where_wrong_answers_weigh_more():
    row = _row("solved", np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 6.0]))
    assert (row["value"], row["right"], row["wrong"], row["best_baseline"]) == (0.75, 1.0, 6.0, pytest.approx(1 / 3))
