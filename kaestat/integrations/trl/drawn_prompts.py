"""Prompts drawn by their predicted values, as the order of rows that TRL's data loader asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import repeat

import numpy as np
from torch.utils.data import Sampler

from kaestat.sampling import Draw, PromptSampler


class DrawnPrompts(Sampler[int]):
    """Rows of a data set, one per completion: each generation's as the `PromptSampler` draws them.

    The data loader looks a batch ahead, so a draw may not know the rewards of the generation before it; what it knows
    is the past in any case. A draw that was made ahead is in the sampler's state, and a resumed run begins with it.

    Parameters
    ----------
    sampler : PromptSampler
    ids : sequence of hashables
        Prompt of each row of the data set; rows of the same prompt are one.
    repeat_count : int
        How many batches in a row have the same prompts.
    generation : callable
        Gives the number of the next generation; asked when an iteration begins.
    """

    def __init__(
        self, sampler: PromptSampler, ids: Sequence[Hashable], *, repeat_count: int, generation: Callable[[], int]
    ):
        self.sampler = sampler
        self._row = {key: row for row, key in reversed(list(enumerate(ids)))}
        self._repeat_count, self._generation = repeat_count, generation
        self._draws: dict[int, Draw] = {}
        self._behind = 0

    def __len__(self) -> int:
        """Rows of an epoch: as many generations as would have every prompt once."""
        groups = self.sampler.budget // (self.sampler.group_size or 1)
        return max(1, len(self._row) // groups) * self.sampler.budget * self._repeat_count

    def resume_after(self, batches: int) -> None:
        """Let the next iteration begin after so many of its batches, whose rows the data loader throws away.

        Parameters
        ----------
        batches : int
            Batches of this epoch that were trained on before the checkpoint, each of ``budget`` rows.
        """
        self._behind = batches

    def __iter__(self) -> Iterator[int]:
        """Draw generation after generation; each is drawn when its first row is asked for."""
        behind, self._behind = self._behind, 0
        yield from repeat(0, behind * self.sampler.budget)  # drawn before the checkpoint, and thrown away now
        begun, batches_used = divmod(behind, self._repeat_count)
        generation = self._generation()
        for place in range(len(self) // (self.sampler.budget * self._repeat_count) - begun):
            ahead = self.sampler.last_draw
            there = ahead is not None and ahead.step == generation + place
            draw = ahead if ahead is not None and there else self.sampler.draw(generation + place)
            self._draws[draw.step] = draw
            rows = [self._row[key] for key in draw.rows()]
            for _ in range(self._repeat_count - (batches_used if place == 0 else 0)):
                yield from rows

    def corrections(self, ids: Sequence[Hashable], generation: int) -> tuple[np.ndarray, Draw]:
        """Factor of each completion's advantage, and the draw that it comes from; earlier draws are forgotten.

        Parameters
        ----------
        ids : sequence of hashables, length N
            Prompts of a generation's completions.
        generation : int
            Its number.

        Raises
        ------
        ValueError
            If these are not the prompts that were drawn for it.
        """
        self._draws = {step: draw for step, draw in self._draws.items() if step >= generation}
        draw = self._draws.get(generation)
        if draw is None or Counter(ids) != Counter(dict(zip(draw.prompt_ids, draw.counts.tolist(), strict=True))):
            raise ValueError(
                "prompt_sampler: the prompts of this generation are not those that were drawn. If the trainer sees "
                "other prompts than the data set has (images, an environment's first words), name them with prompt_id."
            )
        return draw.correction_of(ids), draw
