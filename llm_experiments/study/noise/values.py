"""Values of a world's prompts, and their gradients, with as little chance as possible.

An answer is a thought of free letters, one character, and the end. Given the thought, the chance of the right character
and the end behind it is exact; only thoughts are sampled, and answers hardly depend on them. Completions with a thought
of another length are taken to be wrong: base models give them less than one in a thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from llm_experiments.tasks.base import Problem
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.model import Parameters, StackedDecoder
from llm_experiments.training.stacked.sampling import sample

THOUGHTS = 4  # letters
AT_ONCE = 64  # gradients of single problems


@dataclass(frozen=True, eq=False)
class Thoughts:
    """Problems with sampled thoughts, each followed by the right answer.

    Attributes
    ----------
    tokens : Tensor of int, shape (problems, samples, P + THOUGHTS + 1)
    end : int
    """

    tokens: torch.Tensor
    end: int

    @classmethod
    def sampled(
        cls,
        model: StackedDecoder,
        parameters: Parameters,
        problems: Sequence[Problem],
        codec: TokenCodec,
        *,
        samples: int,
        seed: int,
    ) -> Thoughts:
        """Thoughts of one model, given as a stack of one."""
        prompts = codec.tokens([each.prompt for each in problems])
        answers = codec.tokens([each.answer for each in problems])
        if answers.shape[1] != 1:
            raise ValueError("problems: answers must be one character.")
        rows = prompts.repeat_interleave(samples, 0)
        uniforms = torch.rand(1, len(rows), THOUGHTS, generator=torch.Generator().manual_seed(seed))
        thoughts = sample(model, parameters, rows[None], uniforms, end=codec.end, pad=codec.pad)[0]
        tokens = torch.cat([rows, thoughts, answers.repeat_interleave(samples, 0)], 1)
        return cls(tokens.view(len(problems), samples, -1), codec.end)

    def chances(self, model: StackedDecoder, parameters: Parameters) -> torch.Tensor:
        """Chance of the right answer after each thought, shape (runs, problems, samples), for a stack of models."""
        runs = len(next(iter(parameters.values())))
        return _chances(model, parameters, self.tokens.flatten(0, 1).expand(runs, -1, -1), self.end).view(
            runs, *self.tokens.shape[:2]
        )

    def gradients(self, model: StackedDecoder, parameters: Parameters) -> torch.Tensor:
        """Gradient of each problem's chance, the mean over its thoughts, shape (problems, D), for a stack of one."""
        found = []
        for part in self.tokens.split(AT_ONCE):
            own = {name: each.detach().repeat(len(part), *[1] * (each.ndim - 1)) for name, each in parameters.items()}
            for each in own.values():
                each.requires_grad_()
            chances = _chances(model, own, part, self.end).mean(1)
            found.append(torch.cat([g.flatten(1) for g in torch.autograd.grad(chances.sum(), list(own.values()))], 1))
        return torch.cat(found)


def value_error(assigned: np.ndarray, chances: np.ndarray, weight: np.ndarray) -> float:
    """Mean squared error of values, without the error of the truth itself.

    Parameters
    ----------
    assigned, weight : ndarray, shape (N,)
        Values, and what each counts.
    chances : ndarray, shape (N, samples)
        Independent estimates of the true value, without bias.
    """
    own = chances.var(1, ddof=1) / chances.shape[1]
    return float(np.average((assigned - chances.mean(1)) ** 2 - own, weights=weight))


def _chances(model: StackedDecoder, parameters: Parameters, tokens: torch.Tensor, end: int) -> torch.Tensor:
    """Of the last token and the end behind it, shape (runs, rows)."""
    scores = F.log_softmax(model.logits(parameters, tokens, skip=tokens.shape[2] - 2), -1)
    answer = scores[:, :, 0].gather(-1, tokens[:, :, -1:])[..., 0]
    return (answer + scores[:, :, 1, end]).exp()
