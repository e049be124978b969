"""Any kind of estimator, as a `TrainerSession` calls it: with checked rows, and metrics of each step."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from itertools import compress, count
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.samples import Samples
from kaestat.core.storage import encode_keys
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.changes import Call
from kaestat.estimator.notices import needs_others
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.integrations.shared.metrics import step_metrics
from kaestat.integrations.shared.prompt_ids import IdentityCheck, UnstablePromptIds, hash_prompts


class TrackedRows(NamedTuple):
    """Rows of one step in the form that an estimator takes."""

    ids: list[Any]  # length N
    step: int
    keep: np.ndarray  # of bool, shape (N,)
    streams: list[int] | None  # of int, length N

    def kept(self) -> list[Any]:
        """Ids of the rows that are not masked."""
        return [key for key, keep in zip(self.ids, self.keep.tolist(), strict=True) if keep]

    def largest_group(self) -> int:
        """Completions in the largest group."""
        streams = [0] * len(self.ids) if self.streams is None else self.streams
        return max(Counter(compress(zip(self.ids, streams, strict=True), self.keep.tolist())).values())


def _samples(rewards: Any, rows: TrackedRows, weights: Any, version: Any) -> Samples:
    column = np.asarray(rewards, dtype=np.float64)
    return Samples(rows.ids, column, rows.keep, rows.streams, weights, version=version)


def check_group_size(estimator: AdvantageEstimator, name: str, size: int) -> None:
    """Raise a ValueError if groups of ``size`` completions are too small for a method; ``name`` is the user's for it.

    A method whose rows are prompts may find others in further groups of the prompt.
    """
    why = needs_others(estimator.method, estimator.baseline, size)
    if why is not None and estimator.baseline.unit == "group":
        raise ValueError(f"{name}={size}: {why}")


def looks_back(baseline: Baseline) -> bool:
    """Whether a baseline's values depend on earlier steps, so it needs stable ids, the step and checkpoints."""
    return baseline.horizon > 0 or baseline.initial_carry() is not None


def copies(names: Sequence[Hashable], groups: Sequence[Hashable], mask: Sequence[bool] | np.ndarray) -> list[int]:
    """For each row, the number of groups of the same prompt that began earlier in the batch; 0 where masked.

    Examples
    --------
    >>> copies(["a", "b", "a", "a", "a"], ["g1", "g2", "padding", "g3", "g1"], [True, True, False, True, True])
    [0, 0, 0, 1, 0]
    """
    number: defaultdict[Hashable, count[int]] = defaultdict(count)
    of_group: dict[tuple[Hashable, Hashable], int] = {}
    found = []
    for name, group, kept in zip(names, groups, mask, strict=True):
        if not kept:
            found.append(0)
            continue
        if (name, group) not in of_group:
            of_group[name, group] = next(number[name])
        found.append(of_group[name, group])
    return found


def _distinct(names: list[Any]) -> list[Any]:
    try:
        return list(dict.fromkeys(names))
    except TypeError:  # an id that is not hashable, which is refused with a reason
        return names


def _is_missing(prompt: Any) -> bool:
    return prompt is None or (hasattr(prompt, "__len__") and len(prompt) == 0)


class TrackedEstimator:
    """An `AdvantageEstimator` with a check of prompt ids.

    `keys` are those of its state in a session's file and in the estimator's own. `metrics` are the last step's figures
    of `step_metrics`, named ``baseline/NAME``.
    """

    kind: ClassVar[type] = AdvantageEstimator
    keys: ClassVar[tuple[str, ...]] = ("watched", "state")

    def __init__(self, estimator: Any):
        if not isinstance(estimator, self.kind):
            raise TypeError(
                f"estimator must be a kaestat {self.kind.__name__}, got {type(estimator).__name__}; for example "
                f'{self.kind.__name__}("kae").'
            )
        self.estimator: Any = estimator
        self.forget()

    def forget(self) -> None:
        """Forget all ids, as after a resume."""
        self._watch, self.metrics = IdentityCheck(), dict[str, float]()

    @property
    def any_order(self) -> bool:
        """Whether completions may come at any time, recorded under the policy that sampled them."""
        return all(each.order == "any" for each in self.parts().values())

    @property
    def stateful(self) -> bool:
        """Whether values depend on earlier steps."""
        return any(looks_back(each.baseline) for each in self.parts().values())

    def rows(
        self,
        size: int,
        step: int | None,
        prompts: Sequence[Any],
        ids: Sequence[Hashable] | None,
        groups: Sequence[Hashable] | None,
        mask: Sequence[bool] | np.ndarray | None,
    ) -> TrackedRows:
        """The rows of a call, checked; columns and errors as for `TrainerSession.advantages`."""
        for each in self.parts().values():
            if step is None and looks_back(each.baseline):
                raise ValueError(
                    f"step: method {each.method!r} has a history and needs the training step, but the trainer gave "
                    "none. Pass the trainer's step counter, the same after a resume as without one."
                )
        keep = np.ones(size, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        step = 0 if step is None else step
        for name, column in (("prompts", prompts), ("ids", ids), ("groups", groups), ("mask", mask)):
            if column is not None and len(column) != size:
                raise ValueError(f"{name} has {len(column)} entries for {size} rewards; give one per completion.")
        kept = np.flatnonzero(keep).tolist()
        missing = next((row for row in kept if _is_missing(prompts[row])), None)
        if missing is not None:
            raise UnstablePromptIds(
                f"the prompt of row {missing} is missing or empty, so the prompt has no id: let the trainer keep the "
                "prompt with its completions, or give an id of the data set."
            )
        hashes = hash_prompts(prompts[row] for row in kept)
        names: list[Any] = [None] * size
        if ids is None:
            for row, name in zip(kept, hashes, strict=True):
                names[row] = name
        else:
            names = [key.item() if hasattr(key, "item") else key for key in ids]
            kept_names = [names[row] for row in kept]
            encode_keys(_distinct(kept_names))  # refuse now what a checkpoint cannot store, not at the first checkpoint
            self._watch.check(kept_names, hashes, step)
        return TrackedRows(names, step, keep, None if groups is None else copies(names, groups, keep))

    def recorded(
        self, name: Literal["step", "observe"], call: Call, rewards: Any, rows: TrackedRows, weights: Any, version: Any
    ) -> Any:
        """The result of the estimator's `step` or `observe`, as a part of a larger call."""
        found = self.estimator.recorded(name, call, _samples(rewards, rows, weights, version), rows.step)
        if name == "step":
            self.metrics = {
                f"baseline/{part}{figure}": value
                for part, each in self.parts().items()
                for figure, value in step_metrics(each.record).items()
            }
        return found

    def parts(self) -> dict[str, AdvantageEstimator]:
        """The estimators of single rewards, by the prefix of their metrics' names."""
        return {"": self.estimator}


class TrackedRewards(TrackedEstimator):
    """A `TrackedEstimator` of `SeveralRewards`; its metrics are named ``baseline/REWARD/NAME``."""

    kind: ClassVar[type] = SeveralRewards

    def parts(self) -> dict[str, AdvantageEstimator]:
        return {f"{name}/": each for name, each in self.estimator.estimators.items()}


def tracked(estimator: AdvantageEstimator | SeveralRewards) -> TrackedEstimator:
    """The tracked form of any kind of estimator; a TypeError if it is not an estimator."""
    return (TrackedRewards if isinstance(estimator, SeveralRewards) else TrackedEstimator)(estimator)
