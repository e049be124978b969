"""Several rewards per completion: an estimator for each reward, and one advantage from all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kaestat.core.arrays import Array
from kaestat.core.checks import check_mask, whole_step
from kaestat.core.locked import Locked
from kaestat.core.samples import Samples, as_type_of
from kaestat.core.storage import load_state, reading, save_state, unpack_arrays
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.changes import Call, Change, changes_together, make_changes
from kaestat.estimator.scaling import TRL_EPS


class SeveralRewards(Locked):
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
        If there is no estimator, one is not in strict order, two are the same object, or weights are not finite or
        their number is wrong.
    TypeError
        If the argument is not a mapping from names to estimators.

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
            isinstance(name, str) and isinstance(each, AdvantageEstimator) for name, each in estimators.items()
        ):
            raise TypeError("estimators must map names of rewards to kaestat.AdvantageEstimator objects.")
        if not estimators:
            raise ValueError("estimators: give at least one.")
        for name, each in estimators.items():
            if each.order != "strict":
                raise ValueError(f"estimators: the one for {name!r} is no plain AdvantageEstimator; take one.")
        if len({id(each) for each in estimators.values()}) < len(estimators):
            raise ValueError("estimators: one is used for two rewards; each needs its own history.")
        super().__init__()
        self.estimators = dict(estimators)
        self._share_lock()
        self.weights = _checked_weights(weights, len(self.estimators))
        self.normalize = normalize
        self.values: Array | None = None

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
    def last_step(self) -> int:
        """The last step recorded; -1 before the first."""
        return max(each.last_step for each in self.estimators.values())

    def step(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[Sequence[float]],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
    ) -> Array:
        """Advantages of one step; all of its rewards are then recorded, or none.

        Parameters
        ----------
        prompt_ids, step, mask, stream_ids, weights, importance
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
        call, samples = Call(), Samples(prompt_ids, rewards, mask, stream_ids, weights, importance)
        return call.finish(self.recorded("step", call, samples, step))

    def observe(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[Sequence[float]],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        stream_ids: Sequence[Hashable] | None = None,
        weights: Array | Sequence[float] | None = None,
        importance: Array | Sequence[float] | None = None,
    ) -> None:
        """Record completions that get no advantage; as `AdvantageEstimator.observe`, arguments as in `step`."""
        call, samples = Call(), Samples(prompt_ids, rewards, mask, stream_ids, weights, importance)
        self.recorded("observe", call, samples, step)
        call.finish(None)

    def recorded(self, name: str, call: Call, samples: Samples, step: int) -> Array:
        """The result of `step` or `observe` as a part of a larger call; see `AdvantageEstimator.recorded`."""
        rewards = samples.rewards
        reward, step = self._columns(rewards), whole_step(step)
        keep = None if samples.mask is None else check_mask(samples.mask, len(reward))
        present = ~np.isnan(reward) if keep is None else ~np.isnan(reward) & keep[:, None]
        own = np.where(present, reward, 0.0)

        def prepare() -> list[Change]:
            return [
                each.prepared(name, call, samples._replace(rewards=column, mask=here), step, template=rewards)
                for each, column, here in zip(self.estimators.values(), own.T, present.T, strict=True)
            ]

        with self.lock:
            changes = changes_together(prepare)
            make_changes(changes, stacklevel=4)
            if name == "step":
                self.values = as_type_of(np.stack([change.values for change in changes], axis=1), rewards)
        parts = np.stack([change.advantages for change in changes], axis=1)
        return as_type_of(self._together(parts, np.any(present, axis=1)), rewards)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As `Locked`; all estimators share the lock."""
        super().__setstate__(state)
        self._share_lock()

    def _share_lock(self) -> None:
        for each in self.estimators.values():
            each.lock = self.lock

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
        with self.lock:
            make_changes([each.taken(unpack_arrays(state[name])) for name, each in self.estimators.items()])
            self.values = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all estimators with their states to one file; see `AdvantageEstimator.save`."""
        with self.lock:
            contents = {name: each.content() for name, each in self.estimators.items()}
        plan = {
            "estimators": {n: {"class": c["class"], "estimator": c["estimator"]} for n, c in contents.items()},
            "weights": self.weights.tolist(),
            "normalize": self.normalize,
        }
        states = {name: content["state"] for name, content in contents.items()}
        save_state(path, {"several_rewards": plan, "state": states})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The object that `save` wrote; it continues bit for bit as if it had never stopped.

        Raises
        ------
        ValueError
            If the file is damaged, or holds something else.
        """
        content = load_state(path)
        if "several_rewards" not in content:
            raise ValueError(f"{path}: holds no SeveralRewards.")
        with reading(str(path)):
            plan, states = content["several_rewards"], content["state"]
            estimators = {
                name: AdvantageEstimator.of_content(each | {"state": states[name]}, path)
                for name, each in plan["estimators"].items()
            }
            return cls(estimators, weights=plan["weights"], normalize=plan["normalize"])

    def _columns(self, rewards: Any) -> np.ndarray:
        found = rewards.detach().cpu().numpy() if hasattr(rewards, "detach") else rewards
        try:
            reward = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError) as error:
            columns = ", ".join(self.estimators)
            raise TypeError(f"rewards must be numbers in an array with the columns {columns}: {error}.") from error
        if reward.ndim != 2 or reward.shape[1] != len(self.estimators):
            raise ValueError(
                f"rewards must have shape (N, {len(self.estimators)}), a column for each of "
                f"{', '.join(self.estimators)}; got {reward.shape}."
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


def _checked_weights(weights: Any, size: int) -> np.ndarray:
    found = np.ones(size) if weights is None else np.asarray(weights, dtype=np.float64)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise ValueError(f"weights must be {size} finite numbers, one for each reward, got {weights!r}.")
    return found
