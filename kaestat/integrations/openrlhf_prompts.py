"""OpenRLHF's prompts, drawn by their predicted values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import hash_prompt
from kaestat.integrations.shared.tracked_sampler import TrackedSampler, sampler_of
from kaestat.sampling import Policy, PromptSampler


class DrawnPrompts(TrackedSampler):
    """In the place of OpenRLHF's ``prompts_dataloader``: one prompt at a time, a draw for each rollout batch.

    Parameters
    ----------
    sampler : PromptSampler
    dataset : openrlhf.datasets.PromptDataset
    ids : sequence of hashables
        Prompt of each row.
    step : callable
        Gives the estimator's step; asked when a draw begins.
    """

    def __init__(self, sampler: PromptSampler, dataset: Any, ids: Sequence[Hashable], step: Callable[[], int]):
        super().__init__(sampler)
        self._dataset, self._step = dataset, step
        self._row = {key: row for row, key in reversed(list(enumerate(ids)))}
        self._size = sampler.group_size or 1
        self._done = 0  # prompts of this episode

    def __len__(self) -> int:
        """Prompts of an episode: as many rollout batches as would have every prompt once."""
        batch = self.sampler.budget // self._size
        return max(1, len(self._dataset) // batch) * batch

    def __iter__(self) -> Iterator[Any]:
        """The rest of an episode; each draw is made when its first prompt is asked for."""
        while self._done < len(self):
            for name in self.draw(self._step()).rows()[:: self._size]:
                self._done += 1
                yield self._dataset.collate_fn([self._dataset[self._row[name]]])
        self._done = 0

    def corrections(self, ids: Sequence[Hashable]) -> np.ndarray:
        """Factor of each completion's advantage, shape (N,).

        Raises
        ------
        ValueError
            If the prompts are not those of the last draw.
        """
        draw = self.sampler.last_draw
        if draw is None or Counter(ids) != Counter(draw.rows()):
            raise ValueError(
                "prompt_sampler: the prompts of this step are not those that were drawn; a generator of samples of "
                "your own must take them from prompts_dataloader, as many as a rollout batch has."
            )
        return draw.correction_of(ids)

    def state_dict(self) -> dict[str, Any]:
        """What OpenRLHF saves with its checkpoints: the place in the episode, and the sampler's state."""
        return {"done": self._done % len(self), "sampler": self.sampler_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of `state_dict`.

        Raises
        ------
        ValueError
            If it is of another data loader.
        """
        if set(state) != {"done", "sampler"}:
            raise ValueError(
                "prompt_sampler: this checkpoint was written without one. Resume from one that has it, or leave "
                "prompt_sampler out."
            )
        self.load_sampler_state(state["sampler"])
        self._done = state["done"]


def drawn_prompts(
    given: str | Policy | PromptSampler, dataset: Any, args: Any, estimator: AdvantageEstimator, step: Callable[[], int]
) -> DrawnPrompts:
    """The prompts of a policy's name or of a sampler, for OpenRLHF's arguments and data set.

    Raises
    ------
    ValueError
        If the sampler does not fit them, or OpenRLHF generates other batches than it trains on.
    """
    size, batch = args.rollout.n_samples_per_prompt, args.rollout.batch_size
    if (getattr(args.rollout, "vllm_generate_batch_size", None) or batch) != batch:
        raise ValueError(
            "--rollout.vllm_generate_batch_size puts prompts of one draw into several steps; leave it or "
            "prompt_sampler out."
        )
    if getattr(args.algo, "dynamic_filtering_enable", False):
        raise ValueError(
            "--algo.dynamic_filtering_enable chooses among the prompts that were drawn, which their correction does "
            "not know of; leave it or prompt_sampler out."
        )
    rows = zip(dataset.prompts, dataset.images, strict=True)
    ids = [hash_prompt(named_prompt(text, image)) for text, image in rows]
    sampler = sampler_of(
        given, ids, budget=batch * size, group_size=size, estimator=estimator, seed=int(args.train.seed)
    )
    return DrawnPrompts(sampler, dataset, ids, step)


def named_prompt(text: str, image: Any) -> Any:
    """A prompt as it is hashed: its text, with the images' paths where there are some."""
    return text if not image else [text, [image] if isinstance(image, str) else list(image)]
