"""One and the same update of a run, drawn many times: other prompts, other completions, the same past."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from llm_experiments.seeding import seed_of
from llm_experiments.training.stacked.loop import StackedTraining

AT_ONCE = 32  # updates


@dataclass(frozen=True, eq=False)
class Redraws:
    """R updates from N completions each.

    Attributes
    ----------
    gradients : Tensor, shape (R, D)
        As they come to the optimiser.
    clipped : float
        Share of them whose norm was reduced.
    generated : float
        Completions of each, those of dropped groups included.
    rows : ndarray of int, shape (R * N,)
        Of the run's pool.
    values, correction : ndarray, shape (R * N,)
    """

    gradients: torch.Tensor
    clipped: float
    generated: float
    rows: np.ndarray
    values: np.ndarray
    correction: np.ndarray


class KnownValues:
    """In the place of an estimator: the true values.

    Parameters
    ----------
    values : mapping
        Of each prompt id.
    """

    def __init__(self, values: Mapping[Hashable, float]):
        self._known = values
        self.values = np.empty(0)

    def step(self, prompt_ids: Sequence[Hashable], rewards: np.ndarray, step: int, *, weights: object) -> np.ndarray:
        """Advantages."""
        self.values = np.array([self._known[name] for name in prompt_ids])
        return rewards - self.values


def redraw(
    training: StackedTraining, run: int, n: int, seed: int, known: Mapping[Hashable, float] | None = None
) -> Redraws:
    """What a run's next update could be.

    Prompts are drawn as at the beginning of an epoch, so that each may come. Nothing of the run changes.

    Parameters
    ----------
    training : StackedTraining
    run : int
    n : int
        R.
    seed : int
        Designs with the same seed and group size meet the same prompts and completions.
    known : mapping, optional
        True values of the run's prompts, used in place of its estimator's.
    """
    gradients, norms, generated, rows, values, correction = [], [], [], [], [], []
    for first in range(0, n, AT_ONCE):
        seeds = [seed_of(seed, "redraw", draw) for draw in range(first, min(first + AT_ONCE, n))]
        copies = training.copies(run, seeds)
        if known is not None:
            for each in copies.runs:
                each.estimator = KnownValues(known)
        before = copies.generated
        found, norm = copies.gradients()
        gradients.append(found)
        norms.append(norm)
        generated.append(copies.generated - before)
        for each in copies.runs:
            assert each.latest is not None  # it has just learnt
            rows.append(each.latest.rows)
            correction.append(each.latest.correction)
            values.append(np.asarray(each.estimator.values))
    return Redraws(
        torch.cat(gradients),
        float((torch.cat(norms) > training.config.max_grad_norm).float().mean()),
        float(np.concatenate(generated).mean()),
        np.concatenate(rows),
        np.concatenate(values),
        np.concatenate(correction),
    )
