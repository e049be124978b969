"""Checks for an adapter between a trainer and an `AdvantageEstimator`, the same for our adapters and yours.

Wrap your adapter in an object with the three methods of `Adapter`, and let pytest run every one of `CHECKS`, or call
`run_checks`. The checks feed the adapter rows as a trainer would, and compare with an estimator that is fed by hand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import RETURNS_BEFORE_REFUSAL

TOLERANCE = 1e-5  # frameworks hold advantages in float32


@dataclass(frozen=True)
class Rows:
    """The rows of one training step as a trainer holds them when it asks for advantages."""

    step: int  # Training step, 0-based
    prompts: tuple[str, ...]  # of str, length N; text of each row's prompt
    ids: tuple[Any, ...]  # length N; stable id of each row's prompt in the data set; None if it has none
    uids: tuple[str, ...]  # of str, length N; the trainer's own name of each row's group; random at every step
    rewards: np.ndarray  # of float, shape (N,)
    padding: np.ndarray  # of bool, shape (N,); True for rows that only fill the batch: copies of row 0

    def take(self, order: np.ndarray) -> Rows:
        """The rows at these positions."""
        columns: Any = {name: tuple(getattr(self, name)[k] for k in order) for name in ("prompts", "ids", "uids")}
        return replace(self, **columns, rewards=self.rewards[order], padding=self.padding[order])


class Adapter(Protocol):
    """The interface that the checks need: a thin wrapper, in your tests, around your adapter."""

    def advantages(self, rows: Rows) -> np.ndarray:
        """Advantages of one step's rows, shape (N,), in their order; records the rewards."""

    def state(self) -> Any:
        """The content of a checkpoint."""

    def restore(self, state: Any) -> None:
        """Continue from a checkpoint; called on a fresh adapter."""


MakeAdapter = Callable[[AdvantageEstimator], Adapter]


class NotConforming(AssertionError):
    """The error for an adapter that fails a check."""


def reordered_rows(make: MakeAdapter) -> None:
    """Rows come in any order, groups not together: each row gets the advantage of its own prompt."""
    _compare(make, "the order of rows changes advantages", lambda rows, rng: rows.take(rng.permutation(len(rows.ids))))


def ragged_groups(make: MakeAdapter) -> None:
    """Some completions were filtered out: groups differ in size."""
    _compare(
        make,
        "groups of different sizes come out wrong",
        lambda rows, rng: rows.take(np.sort(rng.permutation(len(rows.ids))[:-3])),
    )


def padded_rows(make: MakeAdapter) -> None:
    """Padding rows get advantage 0, and their rewards do not enter any value."""

    def pad(rows: Rows, rng: np.random.Generator) -> Rows:
        padded = rows.take(np.r_[np.arange(len(rows.ids)), np.zeros(3, dtype=int)])
        padded.padding[-3:] = True
        padded.rewards[-2:] = 0.0  # some trainers keep row 0's reward, some set 0
        return replace(padded, uids=(*rows.uids, "pad-0", "pad-1", "pad-2"))

    _compare(make, "padding rows enter values or get an advantage", pad)


def repeated_prompt(make: MakeAdapter) -> None:
    """A prompt with two groups in one step (with different uids) has one visit, with all its completions."""

    def repeat(rows: Rows, rng: np.random.Generator) -> Rows:
        twice = rows.take(np.r_[np.arange(len(rows.ids)), np.arange(4)])
        return replace(twice, uids=(*rows.uids, *["again"] * 4))

    _compare(make, "a prompt with two groups in one step gets wrong values", repeat)


def lone_completions(make: MakeAdapter) -> None:
    """A method that compares within groups is refused where no prompt has a second completion."""
    rows = next(_run())
    try:
        with warnings.catch_warnings(action="ignore"):
            make(AdvantageEstimator("rloo")).advantages(rows.take(np.arange(0, len(rows.ids), 4)))
    except ValueError:
        return
    raise NotConforming("a method that needs groups trains on lone completions, silently without a baseline.")


def changing_batches(make: MakeAdapter) -> None:
    """The trainer's group names are new at every step, and the estimator's past must not depend on them."""
    _compare(make, "the history is lost or kept by random names", lambda rows, rng: rows)


def replayed_step(make: MakeAdapter) -> None:
    """A step that comes a second time is refused, or gives the same advantages; its rewards never count twice."""
    adapter, plain = make(_estimator()), _estimator()
    steps = list(_run())
    for rows in steps[:3]:
        adapter.advantages(rows), _expected(plain, rows)
    try:
        adapter.advantages(steps[2])
    except ValueError:
        pass
    _agree(adapter.advantages(steps[3]), _expected(plain, steps[3]), "a replayed step was counted twice", 3)


def resumed_run(make: MakeAdapter) -> None:
    """A run saved after a step and restored into a fresh adapter continues bit for bit as if it had never stopped."""
    whole = make(_estimator())
    uninterrupted = [whole.advantages(rows) for rows in _run()]
    adapter = make(_estimator())
    for rows, expected in zip(_run(), uninterrupted, strict=True):
        if rows.step == 3:
            state = adapter.state()
            adapter = make(_estimator())
            adapter.restore(state)
        _agree(adapter.advantages(rows), expected, "a resumed run differs", rows.step, tolerance=0.0)


def missing_ids(make: MakeAdapter) -> None:
    """If the data set has no ids, the rows are refused with the fix in the message, or the prompt itself is the id."""
    _refused_or_right(make, _run_with(None), "missing ids")


def one_id_for_all(make: MakeAdapter) -> None:
    """An id that is the same number for every prompt is refused with the fix in the message, or not used."""
    _refused_or_right(make, _run_with(0), "one id for all prompts")


def new_id_at_each_visit(make: MakeAdapter) -> None:
    """Ids that are random or keep counting are refused once most prompts came back under new ones, or not used."""
    n_prompts = 2 * RETURNS_BEFORE_REFUSAL  # in so many steps of 6 all of them come several times
    steps = [
        replace(rows, ids=tuple(1000 * (rows.step + 1) + key for key in rows.ids))
        for rows in _run(n_prompts, n_prompts)
    ]
    _refused_or_right(make, steps, "a new id at each visit", only_the_last=True)  # several returns are needed to decide


def one_text_in_many_rows(make: MakeAdapter) -> None:
    """A text in many rows, each with its own id and visited once so far, is not refused as unstable."""
    adapter = make(_estimator())
    for rows in _run(RETURNS_BEFORE_REFUSAL + 4):
        ids = tuple(6 * rows.step + group for group in range(6) for _ in range(4))
        prompts = tuple("The same?" if key % 6 == 0 else f"What is {key} + 1?" for key in ids)
        try:
            adapter.advantages(replace(rows, ids=ids, prompts=prompts))
        except ValueError as error:
            raise NotConforming(f"stable ids were refused within an epoch, at step {rows.step}: {error}") from error


CHECKS: tuple[Callable[[MakeAdapter], None], ...] = (
    reordered_rows,
    ragged_groups,
    padded_rows,
    repeated_prompt,
    lone_completions,
    changing_batches,
    replayed_step,
    resumed_run,
    missing_ids,
    one_id_for_all,
    new_id_at_each_visit,
    one_text_in_many_rows,
)


def run_checks(make: MakeAdapter) -> dict[str, str]:
    """The name of each check that an adapter fails, with the reason; empty if it passes all."""
    failures = {}
    for check in CHECKS:
        try:
            check(make)
        except Exception as error:  # an adapter that raises does not conform either
            failures[check.__name__] = f"{type(error).__name__}: {error}"
    return failures


def _estimator() -> AdvantageEstimator:
    return AdvantageEstimator("kae", bandwidth=5.0)


def _run(n_steps: int = 6, n_prompts: int = 8) -> Iterator[Rows]:
    """Steps of 6 prompts with 4 completions each, the group names new at every step."""
    rng = np.random.default_rng(0)
    for step in range(n_steps):
        prompts = np.repeat(rng.permutation(n_prompts)[:6], 4)
        rewards = (rng.random(24) < (prompts + 1) / (n_prompts + 1)).astype(float)
        names = rng.integers(1 << 60, size=6)
        yield Rows(
            step=step,
            prompts=tuple(f"What is {prompt} + 1?" for prompt in prompts),
            ids=tuple(int(prompt) for prompt in prompts),
            uids=tuple(f"{name:015x}" for name in np.repeat(names, 4)),
            rewards=rewards,
            padding=np.zeros(24, dtype=bool),
        )


def _run_with(key: int | None) -> list[Rows]:
    """The run with one id for all its rows."""
    return [replace(rows, ids=(key,) * len(rows.ids)) for rows in _run()]


def _expected(plain: AdvantageEstimator, rows: Rows) -> np.ndarray:
    """The estimator's own advantages of the rows, with each prompt identified by its text."""
    return plain.step(rows.prompts, rows.rewards, rows.step, mask=~rows.padding)


def _compare(make: MakeAdapter, complaint: str, change: Callable[[Rows, np.random.Generator], Rows]) -> None:
    """Adapter and estimator on a run whose rows were changed, at every other step."""
    adapter, plain, rng = make(_estimator()), _estimator(), np.random.default_rng(1)
    for rows in _run():
        if rows.step % 2:
            rows = change(rows, rng)
        _agree(adapter.advantages(rows), _expected(plain, rows), complaint, rows.step)


def _refused_or_right(make: MakeAdapter, steps: list[Rows], ids: str, *, only_the_last: bool = False) -> None:
    """Rows are refused with the fix in the message, or get right advantages (``only_the_last``: at the last step)."""
    adapter, plain = make(_estimator()), _estimator()
    for rows in steps:
        expected = _expected(plain, rows)
        try:
            found = adapter.advantages(rows)
        except ValueError as error:
            if "prompt" in str(error) and "id" in str(error):
                return
            raise NotConforming(f"{ids}: the message does not say what to fix: {error}") from error
        if rows is steps[-1] or not only_the_last:
            _agree(found, expected, f"{ids}: trained silently on a wrong history", rows.step)


def _agree(found: Any, expected: np.ndarray, complaint: str, step: int, tolerance: float = TOLERANCE) -> None:
    found = np.asarray(found, dtype=float)
    if found.shape != expected.shape:
        raise NotConforming(f"{complaint}: {found.shape} advantages for {expected.shape} rows at step {step}.")
    worst = np.abs(found - expected).max(initial=0.0)
    if not worst <= tolerance:
        raise NotConforming(f"{complaint}: off by {worst:.3g} at step {step}.")
