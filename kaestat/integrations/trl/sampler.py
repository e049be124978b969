"""The order of prompts: TRL's own, resumed exactly and with minibatches reused; or as a `PromptSampler` draws them."""

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import torch
from torch.utils.data import Sampler
from trl.trainer.utils import RepeatSampler

from kaestat.integrations.shared.tracked_sampler import TrackedSampler


class ReuseSampler(RepeatSampler):
    """TRL's ``RepeatSampler`` with an order that depends only on ``epoch()``, so that resumed runs have it too."""

    def __init__(self, *args: Any, epoch: Callable[[], int], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self._epoch()):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()


class DrawnPrompts(Sampler[int]):
    """Rows of a data set as the `PromptSampler` draws them for each generation, whose number ``generation`` returns.

    The data loader prefetches a batch, so a draw may not know the rewards of the previous generation.
    """

    def __init__(self, drawn: TrackedSampler, *, repeat_count: int, generation: Callable[[], int]):
        self._drawn, self._budget = drawn, drawn.sampler.budget
        self._repeat_count, self._generation = repeat_count, generation
        self._behind = 0

    def __len__(self) -> int:
        """Rows of an epoch: as many generations as would have every prompt once."""
        groups = self._budget // (self._drawn.sampler.group_size or 1)
        return max(1, len(self._drawn.row) // groups) * self._budget * self._repeat_count

    def resume_after(self, batches: int) -> None:
        """Start the next iteration after so many of its epoch's batches, whose rows the data loader discards."""
        self._behind = batches

    def __iter__(self) -> Iterator[int]:
        """Draw generation after generation; each is drawn when its first row is asked for."""
        behind, self._behind = self._behind, 0
        yield from repeat(0, behind * self._budget)  # drawn before the checkpoint, and discarded now
        begun, batches_used = divmod(behind, self._repeat_count)
        generation = self._generation()
        for place in range(len(self) // (self._budget * self._repeat_count) - begun):
            rows = [self._drawn.row[key] for key in self._drawn.draw(generation + place).rows()]
            for _ in range(self._repeat_count - (batches_used if place == 0 else 0)):
                yield from rows
