"""How good the policies of a stack are on held-out problems: greedy, and at temperatures."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F

from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Task

from .codec import TokenCodec
from .loop import StackedTraining, grade
from .sampling import sample, tokens_that_count

GREEDY = 0.0
AT_ONCE = 256  # answers of each run


class HeldOut:
    """Problems that each run is tested on, asked again and again with the same random numbers.

    tasks: Each run's, of as many problems, with prompts of one length.
    """

    def __init__(self, training: StackedTraining, tasks: Sequence[Task], seeds: Sequence[int]):
        self._training, self._tasks, self._seeds = training, tasks, seeds
        codec, device = training.codec, next(iter(training.parameters.values())).device
        prompts = [codec.tokens([each.prompt for each in task.problems]) for task in tasks]
        self._prompts = torch.stack(prompts).to(device)

    def rewards(self, temperature: float, samples: int) -> np.ndarray:
        """Rewards, shape (runs, problems, samples); one greedy answer at temperature 0."""
        prompts = self._prompts.repeat_interleave(samples, 1)
        texts = [self._codec.texts(own) for own in self._completions(prompts, temperature)]
        found = [
            [grade(task, task.problems[place // samples], text) for place, text in enumerate(own)]
            for task, own in zip(self._tasks, texts, strict=True)
        ]
        return np.array(found).reshape(len(self._tasks), -1, samples)

    @torch.no_grad()
    def entropy(self) -> np.ndarray:
        """Mean entropy of the next token in nats along sampled answers, at temperature 1, shape (runs,)."""
        training, end = self._training, self._codec.end
        completions, total, tokens = self._completions(self._prompts, 1.0), 0.0, 0.0
        for asked, said in zip(self._prompts.split(AT_ONCE, 1), completions.split(AT_ONCE, 1), strict=True):
            answered = torch.cat([asked, said[:, :, :-1]], 2)
            scores = F.log_softmax(training.model.logits(training.parameters, answered, skip=asked.shape[2] - 1), -1)
            counted = tokens_that_count(said, end)
            total += -((scores.exp() * scores).sum(-1) * counted).sum((1, 2)).cpu().numpy()
            tokens += counted.sum((1, 2)).cpu().numpy()
        return np.asarray(total / tokens)

    @property
    def _codec(self) -> TokenCodec:
        return self._training.codec

    def _completions(self, prompts: torch.Tensor, temperature: float) -> torch.Tensor:
        training, tokens = self._training, self._training.config.max_new_tokens
        shape = prompts.shape[1], tokens
        uniforms = torch.stack(
            [torch.rand(*shape, generator=torch.Generator().manual_seed(seed_of(s, "test"))) for s in self._seeds]
        )
        found = [
            sample(
                training.model,
                training.parameters,
                asked,
                drawn,
                end=self._codec.end,
                pad=self._codec.pad,
                temperature=temperature,
            )
            for asked, drawn in zip(prompts.split(AT_ONCE, 1), uniforms.split(AT_ONCE, 1), strict=True)
        ]
        return torch.cat(found, 1)
