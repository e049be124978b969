"""What the law of the baseline is given: moments of every prompt at a policy, exact, in the optimiser's units."""

from __future__ import annotations

import numpy as np

from kaestat.theory.baseline_law import PromptMoments
from simulations.baseline_law.optimisers import Units
from simulations.baseline_law.world import World

BLOCK = 64  # prompts at a time


def measured(world: World, theta: np.ndarray, units: Units) -> list[PromptMoments]:
    """Moments on the base of each run, by enumeration of all answers of all prompts.

    Parameters
    ----------
    world : World
        Base of each run.
    theta : ndarray, shape (S, r, c, 1)
    units : Units
        Of one arm.
    """
    parts = [slice(start, start + BLOCK) for start in range(0, world.n_prompts, BLOCK)]
    blocks = [_of_block(world.some(block), theta, units) for block in parts]
    columns = [np.concatenate(each, axis=1) for each in zip(*(block[0] for block in blocks), strict=True)]
    gradient = sum(block[1] for block in blocks) / world.n_prompts
    common = units.of_matrix(gradient)[:, 0]
    return [PromptMoments(*(column[run] for column in columns), common[run]) for run in range(len(common))]


def _of_block(world: World, theta: np.ndarray, units: Units) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Moments of some prompts, and the sum of their gradients."""
    policy = world.policy(theta)[..., 0]
    mean = world.mean_features(policy[..., None])[..., 0]
    centred = world.v - mean[:, :, None]
    weight = units.of_scores(world.u, centred[..., None])[..., 0]
    p = np.minimum((policy * world.right).sum(-1), 1.0)  # a sum of probabilities may round to more than 1

    def given(among: np.ndarray, power: int) -> np.ndarray:
        mass = policy * among
        return (mass * weight**power).sum(-1) / mass.sum(-1)

    wrong = 1 - world.right
    direction = np.einsum("spa,spac->spc", policy * world.right, centred)
    signal = units.of_scores(world.u, direction[..., None])[..., 0]
    moments = (p, given(world.right, 1), given(wrong, 1), given(world.right, 2), given(wrong, 2), signal)
    return moments, np.einsum("spi,spj->sij", world.u, direction)[..., None]
