"""What the law of the baseline is given: moments of every prompt at a policy, exact, in the optimiser's units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulations.baseline_law.optimisers import Units
from simulations.baseline_law.world import World

BLOCK = 64  # prompts at a time


@dataclass(frozen=True, eq=False)
class Inputs:
    """Moments of each prompt at one policy, for each run; shape (S, P) but for the last.

    Attributes
    ----------
    value : ndarray
        p, the probability of a right answer.
    right, wrong : ndarray
        ``E[W | right]`` and ``E[W | wrong]``.
    right_square, wrong_square : ndarray
        ``E[W^2 | right]`` and ``E[W^2 | wrong]``.
    signal : ndarray
        ``||g_x||^2``, of the gradient of the prompt's value.
    mean_signal : ndarray, shape (S,)
        ``||g||^2``, of the mean gradient over prompts.
    """

    value: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    right_square: np.ndarray
    wrong_square: np.ndarray
    signal: np.ndarray
    mean_signal: np.ndarray

    def row(self, run: int) -> Inputs:
        """One run alone, its arrays of shape (P,) and ()."""
        return Inputs(*(getattr(self, name)[run] for name in self.__dataclass_fields__))

    @property
    def ratio(self) -> np.ndarray:
        """rho over all prompts: mean W of wrong answers over that of right ones, shape (S,)."""
        p = self.value
        wrong = ((1 - p) * self.wrong).sum(-1) / (1 - p).sum(-1)
        return wrong / ((p * self.right).sum(-1) / p.sum(-1))

    @property
    def constant(self) -> np.ndarray:
        """The one constant of least noise, ``E[W R] / E[W]``, shape (S,)."""
        carried = (self.value * self.right).sum(-1)
        return carried / (carried + ((1 - self.value) * self.wrong).sum(-1))

    def within(self, baseline: np.ndarray | float) -> np.ndarray:
        """``E_x E[W (R - b)^2] - E_x ||g_x||^2``, shape (S,), of baselines (S, P) that know nothing of the step."""
        p = self.value
        moment = p * self.right * (1 - baseline) ** 2 + (1 - p) * self.wrong * baseline**2
        return (moment - self.signal).mean(-1)

    @property
    def between(self) -> np.ndarray:
        """``E_x ||g_x||^2 - ||g||^2``, shape (S,)."""
        return self.signal.mean(-1) - self.mean_signal


def measured(world: World, theta: np.ndarray, units: Units) -> Inputs:
    """By enumeration of all answers of all prompts.

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
    return Inputs(*columns, mean_signal=units.of_matrix(gradient)[:, 0])


def _of_block(world: World, theta: np.ndarray, units: Units) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Moments of some prompts, and the sum of their gradients."""
    policy = world.policy(theta)[..., 0]
    mean = world.mean_features(policy[..., None])[..., 0]
    centred = world.v - mean[:, :, None]
    weight = units.of_scores(world.u, centred[..., None])[..., 0]
    p = (policy * world.right).sum(-1)

    def given(among: np.ndarray, power: int) -> np.ndarray:
        mass = policy * among
        return (mass * weight**power).sum(-1) / mass.sum(-1)

    wrong = 1 - world.right
    direction = np.einsum("spa,spac->spc", policy * world.right, centred)
    signal = units.of_scores(world.u, direction[..., None])[..., 0]
    moments = (p, given(world.right, 1), given(wrong, 1), given(world.right, 2), given(wrong, 2), signal)
    return moments, np.einsum("spi,spj->sij", world.u, direction)[..., None]
