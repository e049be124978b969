"""Several rewards per completion: an estimator for each reward, and one advantage from all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kaestat.core.arrays import Array, namespace
from kaestat.core.checks import check_mask, check_numbers
from kaestat.core.samples import as_type_of
from kaestat.core.storage import load_state, reading, save_state
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.scaling import TRL_EPS
from kaestat.estimator.state import EstimatorState
from kaestat.estimator.stored import SharedStates


class SeveralRewards:
    """Advantages from several rewards of each completion; every reward has its own baseline and history.

    Each estimator gives the advantages of its reward; they are weighted, summed, and normalised over the step:

        S_g = sum_k w_k A_kg,    A_g = (S_g - mean S) / (std S + 0.0001)

    with the standard deviation (ddof 1) over the step's completions. With ``AdvantageEstimator("grpo",
    scale="trl_group")`` for each reward, this is GDPO (`gdpo`).

    Parameters
    ----------
    estimators : mapping of str to AdvantageEstimator
        One for each reward, in the order of the rewards' columns, in strict order.
    weights : sequence of float, optional
        ``w_k``, one for each reward; 1 if left out.
    normalize : bool
        Whether the sum is normalised over the step. A step of one completion is left unchanged.

    Attributes
    ----------
    values : array, shape (N, K)
        Values of the completions of the last `step`, in their order and array type; 0 where masked.

    Raises
    ------
    ValueError
        If there is no estimator, two are the same object, or weights are not finite or their number is wrong.
    TypeError
        If the argument is not a mapping from names to estimators in strict order.

    Examples
    --------
    >>> both = SeveralRewards.of("kae", ["right", "format"], bandwidth=10, normalize=False)
    >>> both.step(["a", "a"], np.array([[1.0, 1.0], [0.0, 1.0]]), step=0).tolist()
    [1.0, -1.0]
    >>> both.step(["a"], np.array([[1.0, 0.0]]), step=1).tolist()
    [-0.5]
    """

    def __init__(
        self,
        estimators: Mapping[str, AdvantageEstimator],
        *,
        weights: Sequence[float] | None = None,
        normalize: bool = True,
    ):
        if not isinstance(estimators, Mapping) or not all(
            isinstance(name, str) and getattr(each, "order", "") == "strict" for name, each in estimators.items()
        ):
            raise TypeError("estimators must map names of rewards to plain kaestat.AdvantageEstimator objects.")
        if not estimators:
            raise ValueError("estimators: give at least one.")
        if len({id(each) for each in estimators.values()}) < len(estimators):
            raise ValueError("estimators: one is used for two rewards; each needs its own history.")
        self.estimators = dict(estimators)
        self.shared = SharedStates({name: each.state for name, each in self.estimators.items()})
        for name, each in self.estimators.items():
            each.shared, each.name = self.shared, name
        self.weights = np.ones(len(self.estimators)) if weights is None else np.asarray(weights, dtype=np.float64)
        if self.weights.shape != (len(self.estimators),) or not np.isfinite(self.weights).all():
            raise ValueError(
                f"weights must be {len(self.estimators)} finite numbers, one for each reward, got {weights!r}."
            )
        self.normalize = normalize

    @classmethod
    def of(
        cls,
        method: str,
        rewards: Sequence[str],
        *,
        weights: Sequence[float] | None = None,
        normalize: bool = True,
        **params: Any,
    ) -> Self:
        """`SeveralRewards` with the same method for every reward.

        Parameters
        ----------
        method : str
        rewards : sequence of str
            Their names, in the order of the columns.
        weights, normalize
            See the class.
        **params
            Parameters of `AdvantageEstimator`.
        """
        if len(set(rewards)) < len(rewards):
            raise ValueError(f"rewards: names must be distinct, got {list(rewards)}.")
        estimators = {name: AdvantageEstimator(method, **params) for name in rewards}
        return cls(estimators, weights=weights, normalize=normalize)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name!r}: {each!r}" for name, each in self.estimators.items())
        return f"SeveralRewards({{{parts}}}, weights={self.weights.tolist()}, normalize={self.normalize})"

    @property
    def method(self) -> str:
        """The names of the methods, for messages."""
        return " + ".join(dict.fromkeys(each.method for each in self.estimators.values()))

    @property
    def lock(self) -> Any:
        """The lock of all states."""
        return self.shared.lock

    @property
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        return max(each.last_step for each in self.estimators.values())

    @property
    def values(self) -> Array | None:
        """Values of the completions of the last `step`, shape (N, K); None before the first."""
        values = [each.values for each in self.estimators.values()]
        return None if values[0] is None else namespace(values[0]).stack(values, axis=1)

    def step(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[Sequence[float]],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
    ) -> Array:
        """Advantages of one step; all of its rewards are then recorded, or none.

        Parameters
        ----------
        prompt_ids, step, mask, stream_ids, weights
            As in `AdvantageEstimator.step`; ``weights`` are those of completions.
        rewards : array of float, shape (N, K)
            A column for each estimator. NaN if a reward does not apply to a completion: it adds 0 to the advantage,
            and is not recorded. A completion without any reward has advantage 0 and is not part of the
            normalisation.

        Returns
        -------
        array, shape (N,)
            As `AdvantageEstimator.step`.

        Raises
        ------
        ValueError, TypeError
            As `AdvantageEstimator.step`, and if the number of columns differs from the number of estimators.
        """
        after, advantages = self._computed("step", step, prompt_ids, rewards, mask, stream_ids, weights)
        self.shared.states = after
        return advantages  # at once, as in `AdvantageEstimator.step`

    def observe(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[Sequence[float]],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
    ) -> None:
        """Record completions that get no advantage; as `AdvantageEstimator.observe`, arguments as in `step`."""
        states, _ = self._computed("observe", step, prompt_ids, rewards, mask, stream_ids, weights)
        self.shared.states = states  # the last act: an interrupt may come before it, but not after it

    def _computed(
        self, name: str, step: int, prompt_ids: Any, rewards: Any, mask: Any, streams: Any, weights: Any
    ) -> tuple[dict[str, EstimatorState], Array]:
        """All states after a call, and the advantages; nothing changes."""
        reward = self._columns(rewards)
        keep = None if mask is None else check_mask(mask, len(reward))
        present = ~np.isnan(reward) if keep is None else ~np.isnan(reward) & keep[:, None]
        after, parts = dict[str, EstimatorState](), []
        for (part, each), column, some in zip(self.estimators.items(), reward.T, present.T, strict=True):
            given = prompt_ids, np.where(some, column, 0.0), some, streams
            optional = {"weights": weights}
            after[part], advantages = each.computed(name, step, optional, *given, template=rewards, stacklevel=4)
            parts.append(advantages)
        together = self._together(np.stack(parts, axis=1), np.any(present, axis=1))
        return after, as_type_of(together, rewards)

    def state_dict(self) -> dict[str, Any]:
        """The states of all estimators as plain data; see `AdvantageEstimator.state_dict`."""
        return self.state_snapshot()()

    def state_snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that returns `state_dict` as of now."""
        with self.lock:
            parts = {name: each.state_snapshot() for name, each in self.estimators.items()}
        return lambda: {name: state() for name, state in parts.items()}

    @reading()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of `state_dict`, all of it or nothing.

        Raises
        ------
        ValueError
            If the state is of other rewards, and as `AdvantageEstimator.load_state_dict`.
        """
        if list(state) != list(self.estimators):
            raise ValueError(f"state: of rewards {list(state)}, but these are {list(self.estimators)}.")
        self.shared.states = {name: each.stored_state(state[name]) for name, each in self.estimators.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all estimators with their states to one file; see `AdvantageEstimator.save`."""
        with self.lock:
            contents = {name: each.content() for name, each in self.estimators.items()}
        states = {name: content.pop("state") for name, content in contents.items()}
        plan = {"weights": self.weights.tolist(), "normalize": self.normalize}
        save_state(path, {"several_rewards": contents, "state": states} | plan)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The object that `save` wrote; it continues bit for bit as if it had never stopped.

        Raises
        ------
        ValueError
            If the file is corrupted, or holds something else.
        """
        content = load_state(path)
        if "several_rewards" not in content:
            raise ValueError(f"{path}: holds no SeveralRewards.")
        with reading(str(path)):
            estimators = {
                name: AdvantageEstimator.of_content(each | {"state": content["state"][name]}, path)
                for name, each in content["several_rewards"].items()
            }
            return cls(estimators, weights=content["weights"], normalize=content["normalize"])

    def _columns(self, rewards: Any) -> np.ndarray:
        reward, names = check_numbers("rewards", rewards, finite=False), ", ".join(self.estimators)
        if reward.ndim != 2 or reward.shape[1] != len(self.estimators):
            raise ValueError(
                f"rewards must have shape (N, {len(self.estimators)}), a column for each of {names}; got "
                f"{reward.shape}."
            )
        return reward

    def _together(self, parts: np.ndarray, scored: np.ndarray) -> np.ndarray:
        """The weighted sum of all rewards' advantages, normalised over the completions that are scored."""
        total = parts @ self.weights
        some = total[scored]
        if self.normalize and len(some) > 1:
            total = (total - some.mean()) / (some.std(ddof=1) + TRL_EPS)
        return np.where(scored, total, 0.0)


def gdpo(rewards: Sequence[str], *, weights: Sequence[float] | None = None) -> SeveralRewards:
    """GDPO as published: group means and standard deviations for each reward, without a history.

    Agrees with TRL's ``multi_objective_aggregation="normalize_then_sum"`` to rounding.

    Parameters
    ----------
    rewards : sequence of str
        Their names, in the order of the columns.
    weights : sequence of float, optional
        One for each reward; 1 if left out.

    Examples
    --------
    >>> rewards = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> gdpo(["right", "format"]).step(["a"] * 4, rewards, step=0).round(2).tolist()
    [0.69, -1.49, 0.4, 0.4]
    """
    return SeveralRewards.of("grpo", rewards, weights=weights, scale="trl_group")
