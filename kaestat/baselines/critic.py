"""A critic: a value function of prompt features, learned along the run (the baseline of A2C and PPO)."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kaestat.baselines.base import WithoutVisits
from kaestat.core.arrays import Array, Groups, Visits
from kaestat.core.checks import check_positive, check_share


@dataclass(frozen=True, eq=False)
class Critic(WithoutVisits):
    """Recursive ridge regression of rewards on prompt features with forgetting.

    A deep value network (Mnih et al., 2016; Schulman et al., 2017) is the same with learned features; here the user
    gives them (an embedding of the prompt, its source, its length). The critic uses rewards of *earlier* steps only,
    so its value does not depend on the completion's own reward. Before the first step it predicts 0.

    Parameters
    ----------
    features : mapping or callable, optional
        ``{prompt_id: vector}``, or ``features(prompt_ids) -> array of shape (P, F)``. An intercept is added.
        With None there is only the intercept: a discounted mean of all earlier rewards.
    forgetting : float
        Factor in (0, 1] on the weight of earlier steps at every step.
    ridge : float
        Penalty on the coefficients of the features (not on the intercept), in completions.

    Raises
    ------
    ValueError
        If a parameter is out of range, a prompt has no features, or their number changes.
    """

    features: Mapping[Hashable, Array] | Callable[[list[Hashable]], Array] | None = None
    forgetting: float = 0.98
    ridge: float = 1.0

    stepwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_share("forgetting", self.forgetting)
        check_positive("ridge", self.ridge)

    @property
    def in_order_only(self) -> bool:
        return True

    @property
    def pools_prompts(self) -> bool:
        return True

    @property
    def missing_input(self) -> str | None:
        return None if self.features is not None else "features= (a mapping or a function of prompt ids)"

    def advance(self, carry: Any, groups: Groups, visits: Visits, *, step: int | Array) -> dict[str, np.ndarray]:
        design = self._design(groups)
        count, total = (
            np.asarray(a, dtype=float) for a in (groups.count[..., 0], groups.xp.sum(groups.carried, axis=-1))
        )
        gram, moment = self._past(carry, design.shape[-1])
        return {
            "gram": self.forgetting * gram + design.T @ (count[..., None] * design),
            "moment": self.forgetting * moment + total @ design,
        }

    def accepts_carry(self, carry: dict[str, np.ndarray] | None) -> bool:
        # A fresh start has none, since the number of features is learned from the first step.
        if carry is None:
            return True
        if set(carry) != {"gram", "moment"}:
            return False
        gram, size = carry["gram"], carry["moment"].size
        if size == 0 or carry["moment"].shape != (size,) or gram.shape != (size, size):
            return False
        # What `advance` sums up is symmetric and positive semi-definite, to rounding; else the fit need not exist.
        gram = gram / (np.abs(gram).max() or 1.0)
        return bool(np.abs(gram - gram.T).max() <= 1e-9 and np.linalg.eigvalsh(gram).min() >= -1e-9)

    def values(self, groups: Groups, visits: Visits, *, step: int | Array, carry: Any = None) -> Array:
        xp = groups.xp
        design = self._design(groups)
        gram, moment = self._past(carry, design.shape[-1])
        penalty = np.diag([1e-9, *[self.ridge] * (design.shape[-1] - 1)])
        predicted = design @ np.linalg.solve(gram + penalty, moment[..., None])
        return xp.asarray(predicted, dtype=groups.reward.dtype) + xp.zeros_like(groups.reward)

    def _past(self, carry: Any, size: int) -> tuple[np.ndarray, np.ndarray]:
        if carry is None:
            return np.zeros((size, size)), np.zeros(size)
        if carry["moment"].shape[-1] != size:
            raise ValueError(f"critic: prompts had {carry['moment'].shape[-1] - 1} features before, now {size - 1}.")
        return carry["gram"], carry["moment"]

    def _design(self, groups: Groups) -> np.ndarray:
        if groups.reward.ndim != 2:
            raise ValueError("critic: it learns step by step; give one step at a time, reward of shape (P, G).")
        intercept = np.ones((groups.reward.shape[0], 1))
        if self.features is None:
            return intercept
        if groups.prompt_ids is None:
            raise ValueError("critic: groups carry no prompt_ids to look features up by.")
        prompts = list(groups.prompt_ids)
        if callable(self.features):
            found = np.asarray(self.features(prompts), dtype=float)
        else:
            missing = [prompt for prompt in prompts if prompt not in self.features]
            if missing:
                raise ValueError(f"critic: no features given for prompt {missing[0]!r} (and {len(missing) - 1} more).")
            found = np.array([self.features[prompt] for prompt in prompts], dtype=float)
        if found.ndim != 2 or len(found) != len(prompts):
            raise ValueError(f"critic: features must have shape ({len(prompts)}, F), got {found.shape}.")
        return np.concatenate([intercept, found], axis=1)
