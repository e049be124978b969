"""Knowledge about prompts from before a run: pass rates with counts, as visits before the run."""

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np

from kaestat.core.arrays import Array, Groups, visit_sums
from kaestat.core.checks import MAX_STEP, check_column, check_ids, check_number
from kaestat.core.samples import Packing
from kaestat.core.storage import decode_keys, encode_keys, reading
from kaestat.history.fields import checked_sums
from kaestat.history.label_prior import rates_of_labels
from kaestat.history.prior_table import table_of_file, usable_rows

PLAIN_SUMS = ("count", "total", "total_sq")
BEFORE_THE_RUN = -1
ROUNDING = 1e-9  # of a rate: k / n times n is k, and a mean of equal rewards is none beyond them


@dataclass(frozen=True, eq=False)
class Prior:
    """One visit of each of some prompts, made before a run or separately from it: a warm start (`AdvantageEstimator`).

    It is a visit like any other, with a number of completions and a date. It counts by its completions, fades as the
    policy changes, and the visits of the run replace it. In the learning of the bandwidth it is the past of later
    visits. A bandwidth that is learned along the run is never scored on a prior from before step 0. Other selectors,
    such as "loo_cv", score it on a prior too if an earlier visit can predict that one. The default date, just before
    the first step, is right for an offline pass over the prompts with the policy that training starts from. For an
    older or another policy, give an earlier step, so that it fades sooner; negative steps lie before the run.

    Use `of_rates`, `of_mapping`, `of_labels`, `of_rewards`, `of_samples`, `of_table` or `read`.

    Attributes
    ----------
    prompt_ids : list of hashables, length P
        Distinct ids, the same as for rewards; for ``kae_stream`` with stream ids, pairs of prompt and stream.
    sums : dict of ndarray of float64, shape (P,) each
        ``count, total, total_sq`` of the completions' rewards, and weighted sums if they have weights
        (`kaestat.core.arrays.visit_sums`). Counts are whole numbers of at least 1.
    step : int
        The step whose policy sampled the completions.

    Examples
    --------
    >>> from kaestat import AdvantageEstimator
    >>> prior = Prior.of_mapping({"a": (0.25, 8), "b": (1.0, 8)})
    >>> estimator = AdvantageEstimator("kae", bandwidth=10, prior=prior)
    >>> estimator.step(["a", "b"], [1.0, 1.0], step=0).tolist()
    [0.75, 0.0]
    """

    prompt_ids: list[Hashable]
    sums: dict[str, np.ndarray]
    step: int = BEFORE_THE_RUN

    @classmethod
    def of_rates(
        cls,
        prompt_ids: Sequence[Hashable],
        means: Array | Sequence[float],
        counts: Array | Sequence[int],
        *,
        step: int = BEFORE_THE_RUN,
        low: float = 0.0,
        high: float = 1.0,
    ) -> Self:
        """The prior of given pass rates; a reward is one of two numbers.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length P
            Distinct.
        means : array or sequence of float, shape (P,)
            Mean reward of each prompt. It need not be a multiple of ``1 / count``.
        counts : array or sequence of int, shape (P,)
            Number of completions in each mean. Prompts with count 0 are left out, whatever their mean.
        step : int
            See the class.
        low, high : float
            The two rewards.

        Raises
        ------
        ValueError
            If an id occurs twice or is missing, lengths differ, a mean lies outside [low, high], or a count is negative
            or not a whole number.
        TypeError
            If an id is not hashable, or something is not a number.
        """
        low, high = check_number("low", low), check_number("high", high)
        if not low < high:
            raise ValueError(f"low must be less than high, got {low!r} and {high!r}.")
        keys = check_ids("prompt_ids", prompt_ids)
        mean, count = (check_column(name, column) for name, column in (("means", means), ("counts", counts)))
        for name, column in (("means", mean), ("counts", count)):
            if len(column) != len(keys):
                raise ValueError(f"{name} has {len(column)} entries for {len(keys)} prompts; give one each.")
        whole = (count >= 0) & (count <= MAX_STEP) & (count == np.floor(count))
        instead = "it must be a whole number of completions; for less weight give an earlier step"
        _refuse(~whole, keys, count, "counts", instead)
        some = count > 0
        share = (mean - low) / (high - low)
        outside = some & ~((share >= -ROUNDING) & (share <= 1 + ROUNDING))
        _refuse(outside, keys, mean, "means", f"it must lie in [{low:g}, {high:g}]; the rewards are low= and high=")
        keys, count = [keys[row] for row in np.flatnonzero(some).tolist()], count[some]
        above = np.clip(share[some], 0.0, 1.0) * count
        above = np.where(np.abs(above - np.round(above)) <= ROUNDING * count, np.round(above), above)
        total, total_sq = (low**power * (count - above) + high**power * above for power in (1, 2))
        return cls._checked(keys, {"count": count, "total": total, "total_sq": total_sq}, step)

    @classmethod
    def of_mapping(cls, known: Mapping[Hashable, tuple[float, int]], **options: Any) -> Self:
        """The prior of ``{prompt_id: (mean, count)}``; options as in `of_rates`.

        Raises
        ------
        ValueError, TypeError
            As `of_rates`, and if an entry is not a pair.
        """
        for key, pair in known.items():
            if isinstance(pair, str) or not (hasattr(pair, "__len__") and len(pair) == 2):
                raise ValueError(
                    f"prior: the entry of {key!r} must be a pair (mean reward, number of completions), got {pair!r}; "
                    "rewards of single completions go to Prior.of_rewards."
                )
        means, counts = ([pair[place] for pair in known.values()] for place in (0, 1))
        return cls.of_rates(list(known), means, counts, **options)

    @classmethod
    def of_labels(
        cls,
        labels: Mapping[Hashable, Hashable],
        measured: Mapping[Hashable, tuple[float, int]],
        *,
        step: int = BEFORE_THE_RUN,
    ) -> Self:
        """The prior of difficulty labels, with measured pass rates that say what a label means for this policy.

        The prior of a prompt is the mean rate of its label, with an equally informative number of completions. For mean
        m and variance t of the rates (without measurement noise) this is ``m (1 - m) / t - 1``, as for a Beta
        distribution. So another model's pass rates, cut into quantiles, count only as far as they predict this policy.

        Parameters
        ----------
        labels : mapping of prompt ids to hashables
            Labels of any prompts.
        measured : mapping of prompt ids to (mean reward, completions)
            Pass rates of some prompts under the policy that training starts from. They are the prior of these prompts.
        step : int
            See the class.

        Raises
        ------
        ValueError
            If fewer than three measured prompts have a label, a rate is outside [0, 1], or a count is below 2.

        Examples
        --------
        >>> labels = {"a": "easy", "b": "easy", "c": "easy", "d": "easy", "e": "hard"}
        >>> prior = Prior.of_labels(labels, {"a": (0.75, 8), "b": (1.0, 8), "c": (0.5, 8)})
        >>> prior.prompt_ids, prior.sums["count"].tolist()
        (['a', 'b', 'c', 'd', 'e'], [8.0, 8.0, 8.0, 3.0, 3.0])
        """
        return cls.of_mapping(rates_of_labels(labels, measured), step=step)

    @classmethod
    def of_rewards(cls, rewards: Mapping[Hashable, Iterable[float]], *, step: int = BEFORE_THE_RUN) -> Self:
        """The prior of ``{prompt_id: rewards of its completions}``, without empty ones; errors as `of_samples`.

        Examples
        --------
        >>> Prior.of_rewards({"a": [1.0, 0.0, 0.5], "b": []}).sums["total_sq"].tolist()
        [1.25]
        """
        each = {key: list(given) for key, given in rewards.items()}
        ids = np.empty(sum(map(len, each.values())), dtype=object)
        ids[:] = list(chain.from_iterable([key] * len(given) for key, given in each.items()))
        return cls.of_samples(ids.tolist(), list(chain.from_iterable(each.values())), step=step)

    @classmethod
    def of_samples(
        cls,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        *,
        weights: Array | Sequence[float] | None = None,
        step: int = BEFORE_THE_RUN,
    ) -> Self:
        """The prior of completions, in the form that `AdvantageEstimator.step` takes.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
            The prompt of each completion.
        rewards : array or sequence of float, shape (N,)
        weights : array or sequence of float, shape (N,), optional
            Weight of each completion, in the same unit as the ``weights`` of steps; needed if steps have weights.
        step : int
            See the class.

        Raises
        ------
        ValueError
            If lengths differ, an id is missing, or a reward or weight is not finite, or a weight negative.
        TypeError
            If an id is not hashable, or something is not a number.
        """
        reward = check_column("rewards", rewards, least=-np.inf)
        weight = None if weights is None else check_column("weights", weights, len(reward), least=0)
        packing = Packing.of(check_ids("prompt_ids", prompt_ids, len(reward)))
        packed = None if weight is None else packing.pack(weight)
        sums = visit_sums(Groups(packing.pack(reward), mask=packing.mask, weight=packed))
        return cls._checked(packing.keys, sums, step)

    @classmethod
    def of_table(
        cls,
        table: Any,
        *,
        prompt: str = "prompt_id",
        mean: str = "prior_mean",
        count: str = "prior_count",
        **options: Any,
    ) -> Self:
        """The prior in columns of a data set with one row for each prompt.

        Parameters
        ----------
        table : pandas.DataFrame, datasets.Dataset, or mapping of columns
            Any object with columns ``table[name]``.
        prompt, mean, count : str
            Names of the columns. A row without a mean (None or NaN), or without a count, has no prior.
        **options
            As for `of_rates`.

        Raises
        ------
        ValueError, TypeError
            As `of_rates`, and if a column is missing.
        """
        ids, means, counts = usable_rows(table, prompt, mean, count)
        return cls.of_rates(ids, means, counts, **options)

    @classmethod
    def read(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """The prior in a CSV, JSON lines (``.jsonl``) or Parquet file, one row per prompt.

        Ids keep the type in the file (Parquet, JSON lines); whole numbers in a CSV become integers.

        Parameters
        ----------
        path : path
        **options
            As for `of_table`.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError, TypeError
            As `of_table`, and if the file is of another kind.
        """
        table = table_of_file(path)
        try:
            return cls.of_table(table, **options)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.prompt_ids)

    def __repr__(self) -> str:
        completions = int(self.sums["count"].sum())
        return f"Prior({len(self):,} prompts, {completions:,} completions, step={self.step})"

    @property
    def weighted(self) -> bool:
        """Whether the completions have weights."""
        return "weight" in self.sums

    @property
    def plain_sums(self) -> dict[str, np.ndarray]:
        """The sums without weights."""
        return {name: self.sums[name] for name in PLAIN_SUMS}

    def completions(self, low: float = 0.0, high: float = 1.0, *, counted: bool = False) -> Groups:
        """Completions with only the lowest and the highest reward that have these sums.

        If a rate is not a multiple of ``1 / count``, one completion lies between the two rewards; with ``counted``,
        numbers are fractional instead.

        Raises
        ------
        ValueError
            If no such rewards have these sums.
        """
        count, total, total_sq = (column[:, None] for column in self.plain_sums.values())
        if (np.abs(total_sq - (total * (low + high) - low * high * count)) > 1e-9 * (1 + count)).any():
            raise ValueError(
                f"prior: completions are needed here, and for rewards other than {low:g} and {high:g} a prior has "
                "only sums; record them at a step before the first with observe."
            )
        above = (total - low * count) / (high - low)
        if counted:
            ends = np.broadcast_to([low, high], (len(self), 2))
            return Groups(ends, times=np.concatenate([count - above, above], axis=-1), prompt_ids=self.prompt_ids)
        place = np.arange(int(count.max(initial=1)))
        above = np.clip(above - place, 0.0, 1.0)
        return Groups(low + (high - low) * above, mask=place < count, prompt_ids=self.prompt_ids)

    def plain(self) -> dict[str, Any]:
        """The prior as plain data and NumPy arrays.

        Raises
        ------
        TypeError
            If a prompt id cannot be stored.
        """
        return {"prompt_ids": encode_keys(self.prompt_ids), "sums": self.sums, "step": self.step}

    @classmethod
    @reading()
    def of_plain(cls, state: Any) -> Self:
        """The inverse of `plain`.

        Raises
        ------
        ValueError
            If the parts are inconsistent.
        """
        keys = decode_keys(state["prompt_ids"])
        sums = checked_sums(state["sums"], len(keys), least=1)
        if not set(PLAIN_SUMS) <= set(sums):
            raise ValueError("state: its prior lacks sums; the state is corrupted.")
        return cls._checked(keys, sums, state["step"])

    @classmethod
    def _checked(cls, keys: list[Hashable], sums: dict[str, np.ndarray], step: Any) -> Self:
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or not -MAX_STEP <= step <= MAX_STEP:
            raise ValueError(f"step must be a whole number from {-MAX_STEP} to {MAX_STEP}, got {step!r}.")
        if len(set(keys)) < len(keys):
            seen: set[Hashable] = set()
            twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ValueError(
                f"prompt_ids: {twice!r} comes twice; add up its completions, or give rewards to Prior.of_samples."
            )
        return cls(keys, sums, int(step))


def as_prior(given: Any) -> Prior:
    """The `Prior` that the user gave: a `Prior`, ``{prompt_id: (mean, count)}``, or the path of a file.

    Errors are as for `Prior.of_mapping` and `Prior.read`, and a TypeError if it is none of these.
    """
    if isinstance(given, Prior):
        return given
    if isinstance(given, str | os.PathLike):
        return Prior.read(given)
    if isinstance(given, Mapping):
        return Prior.of_mapping(given)
    raise TypeError(
        "prior must be a kaestat.Prior, a mapping of prompt ids to (mean, count), or the path of a file, got "
        f"{type(given).__name__}."
    )


def _refuse(bad: np.ndarray, keys: list[Hashable], column: np.ndarray, name: str, instead: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"{name}: prompt {keys[row]!r} has {column[row]:g}; {instead}.")
