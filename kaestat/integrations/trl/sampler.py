"""The order of prompts: TRL's own, with each minibatch used for several generations, also after a resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized

import torch
from trl.trainer.utils import RepeatSampler


class ReuseSampler(RepeatSampler):
    """TRL's ``RepeatSampler`` with an order that depends only on the epoch, not on the number of iterations.

    TRL's sampler draws a new permutation for each iteration, so a run resumed in its third epoch starts again with the
    permutation of the first: some prompts come too often and others never. Here epoch e has TRL's e-th permutation in
    every session. ``epoch`` returns the current one (0-based) when an iteration begins; other arguments are TRL's.
    """

    def __init__(
        self,
        data_source: Sized,
        mini_repeat_count: int,
        *,
        batch_size: int,
        repeat_count: int,
        shuffle: bool,
        seed: int,
        epoch: Callable[[], int],
    ):
        super().__init__(data_source, mini_repeat_count, batch_size, repeat_count, shuffle, seed)
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self._epoch()):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()
