"""SkyRL's batches of prompts, drawn by their predicted values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.tracked_sampler import TrackedSampler, sampler_of
from kaestat.sampling import Policy, PromptSampler


class DrawnBatches(TrackedSampler):
    """In the place of SkyRL's data loader: as many batches an epoch, each as the sampler draws it.

    A row of the data set is a prompt, and its number the uid, as in SkyRL.

    Parameters
    ----------
    sampler : PromptSampler
    dataset : skyrl.train.dataset.PromptDataset
    n_batches : int
        Of an epoch.
    step : callable
        Gives the estimator's step; asked at each batch.
    seed : int
        Of the order within a batch, whose tail SkyRL may cut off.
    """

    def __init__(self, sampler: PromptSampler, dataset: Any, *, n_batches: int, step: Callable[[], int], seed: int):
        super().__init__(sampler)
        self._dataset, self._n_batches, self._step, self._seed = dataset, n_batches, step, seed
        self._done = 0  # batches of this epoch

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._n_batches

    def __iter__(self) -> Iterator[Any]:
        """The rest of an epoch; each batch is drawn when it is asked for."""
        while self._done < self._n_batches:
            self._done += 1
            step = self._step()
            draw = self.draw(step)
            order = np.random.default_rng([self._seed, step]).permutation(len(draw.prompt_ids))
            yield self._dataset.collate_fn([self._dataset[int(str(draw.prompt_ids[place]))] for place in order])
        self._done = 0

    def state_dict(self) -> dict[str, Any]:
        """What SkyRL saves with its checkpoints: the place in the epoch, and the sampler's state."""
        return {"done": self._done % self._n_batches, "sampler": self.sampler_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state of `state_dict`."""
        self.load_sampler_state(state["sampler"])
        self._done = state["done"]


def drawn_batches(
    given: str | Policy | PromptSampler, trainer: Any, estimator: AdvantageEstimator, step: Callable[[], int]
) -> DrawnBatches:
    """The batches of a policy's name or of a sampler, for SkyRL's configuration and data set.

    Raises
    ------
    ValueError
        If the sampler does not fit them, or SkyRL chooses once more among what it draws.
    """
    cfg, size = trainer.cfg, trainer.cfg.generator.n_samples_per_prompt
    sampler = sampler_of(
        given,
        [str(row) for row in range(len(trainer.train_dataset))],
        budget=cfg.trainer.train_batch_size * size,
        group_size=size,
        repeats=False,
        estimator=estimator,
        seed=cfg.trainer.seed,
    )
    if cfg.trainer.algorithm.dynamic_sampling.type is not None and sampler.correction != "none":
        raise ValueError(
            "trainer.algorithm.dynamic_sampling chooses among the prompts that were drawn, which their correction does "
            'not know of. Leave it out, or give a PromptSampler with correction="none".'
        )
    return DrawnBatches(
        sampler, trainer.train_dataset, n_batches=len(trainer.train_dataloader), step=step, seed=cfg.trainer.seed
    )
