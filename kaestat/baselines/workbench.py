"""Checks for a baseline of your own. Only if it passes them does its error, or a run with it, mean anything."""

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from kaestat.baselines.base import Baseline
from kaestat.core.arrays import Array, Groups, Visits

TOLERANCE = 1e-6  # a filter may keep its state in single precision
STEPS = (0, 2, 3, 7, 8, 10)  # the last is now
GROUP = 4
PROMPTS = ("a", "b", "c", "d")
RAISED = "it raises "


class FaultyBaseline(ValueError):
    """The error for a baseline that fails a check.

    Attributes
    ----------
    faults : dict of str to str
        Name of each failed check, with the reason.
    """

    def __init__(self, baseline: Baseline, faults: dict[str, str]):
        reasons = "".join(f"\n- {name}: {why}" for name, why in faults.items())
        super().__init__(f"{type(baseline).__name__} fails {len(faults)} of the checks of a baseline:{reasons}")
        self.faults = faults


class _Fault(Exception):
    """Why a check fails."""


@dataclass(frozen=True, eq=False)
class _Bench:
    """A baseline, with what it gets at the last step of a synthetic run."""

    baseline: Baseline
    groups: Groups
    visits: Visits
    step: int
    carry: Any

    def values(self, **groups: Array) -> Array:
        """Values at that step, of groups with other columns."""
        return self.baseline.values(replace(self.groups, **groups), self.visits, step=self.step, carry=self.carry)


def _bench(baseline: Baseline, prompts: Sequence[Hashable], reward: np.ndarray | None = None) -> _Bench:
    """The last step of a run of rewards (T, P, G), 0 or 1 where none are given."""
    reward = _rewards() if reward is None else reward
    carry, state = baseline.initial_carry(), np.zeros((len(prompts), baseline.state_size), dtype=np.float32)
    for t, step in enumerate(STEPS[: len(reward)]):
        groups = Groups(
            reward[t], weight=np.ones_like(reward[t]) if baseline.needs_weights else None, prompt_ids=prompts
        )
        past = np.moveaxis(reward[:t], 0, 1)
        lag = float(step) - np.array(STEPS[:t], dtype=float)
        visits = Visits.of(lag, past, np.ones_like(past) if baseline.needs_weights else None)
        now = _Bench(baseline, groups, replace(visits, state=state) if baseline.state_size else visits, step, carry)
        if t < len(reward) - 1:
            served = baseline.serve(groups, visits=now.visits, step=step, carry=carry)
            carry, state = served.carry, state if served.state is None else served.state
    return now


def check(baseline: Baseline, *, prompts: Sequence[Hashable] = PROMPTS) -> tuple[str, ...]:
    """Names of the checks that a baseline has passed; if it fails some, an error names those.

    Parameters
    ----------
    baseline : Baseline
    prompts : sequence of four hashables
        Ids of the test prompts, for a baseline that looks prompts up.

    Raises
    ------
    FaultyBaseline
        If it fails some; ``faults`` has the name of each and the reason.
    TypeError
        If it is not a `Baseline`.
    ValueError
        If an input of the baseline is missing, or there are not four prompts.

    Notes
    -----
    Each of `CHECKS` says what it requires.
    ``torch`` is checked if it is installed.

    Examples
    --------
    >>> import kaestat
    >>> "own_reward" in kaestat.check(kaestat.make_baseline("kae"))
    True
    """
    if not isinstance(baseline, Baseline):
        raise TypeError(f"baseline must be a Baseline, got {type(baseline).__name__}; make_baseline gives one by name.")
    if baseline.missing_input is not None:
        raise ValueError(f"{type(baseline).__name__} needs {baseline.missing_input} before it can be checked.")
    if len(set(prompts)) != len(PROMPTS):
        raise ValueError(f"prompts must be {len(PROMPTS)} different ids, got {list(prompts)!r}.")
    faults = _faults(baseline, prompts, CHECKS)
    if faults:
        raise FaultyBaseline(baseline, faults)
    return tuple(each.__name__ for each in CHECKS if each is not torch or find_spec("torch"))


def check_unknown(baseline: Baseline, prompts: Sequence[Hashable]) -> None:
    """Raise `FaultyBaseline` for a baseline from outside this library whose risk would mean nothing.

    It is tried on prompts of the log. What it raises there is left to the log itself.
    """
    if type(baseline).__module__.startswith("kaestat."):
        return
    checks = [each for each in CHECKS if each is not torch or "torch" in sys.modules]
    faults = _faults(baseline, (*prompts[: len(PROMPTS)], *PROMPTS)[: len(PROMPTS)], checks)
    faults = {name: why for name, why in faults.items() if not why.startswith(RAISED)}
    if faults:
        raise FaultyBaseline(baseline, faults)


Bench = Callable[..., _Bench]  # the last step of a run of given rewards


def _faults(
    baseline: Baseline, prompts: Sequence[Hashable], checks: Sequence[Callable[[Bench], None]]
) -> dict[str, str]:
    faults: dict[str, str] = {}
    for each in checks:
        try:
            each(lambda reward=None: _bench(baseline, prompts, reward))
        except _Fault as fault:
            faults[each.__name__] = str(fault)
        except Exception as error:  # whatever a user's code raises
            faults[each.__name__] = f"{RAISED}{type(error).__name__}: {error}"
        if faults and each is shape:
            break  # the others would find the same fault again
    return faults


def _rewards(seed: int = 0, *, soft: bool = False) -> np.ndarray:
    """Rewards of a synthetic run, shape (T, P, G); every group of the last step has two successes."""
    rng = np.random.default_rng(seed)
    reward = rng.random((len(STEPS), len(PROMPTS), GROUP))
    if soft:
        return reward
    reward = (reward < np.array([0.3, 0.5, 0.6, 0.8])[:, None]).astype(float)
    reward[-1] = [rng.permutation([0.0, 0.0, 1.0, 1.0]) for _ in PROMPTS]
    return reward


def shape(bench: Bench) -> None:
    """Values have the shape of the rewards."""
    for now in (bench(_rewards()[:1]), bench()):
        values, expected = now.values(), now.groups.reward.shape
        if not isinstance(values, np.ndarray) or values.shape != expected:
            given = f"shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise _Fault(f"values of groups of shape {expected} must be an array of it, got {given}.")


def finite(bench: Bench) -> None:
    """Every value is finite, whatever the past and the rewards."""
    soft, alone = _rewards(soft=True), _rewards()[..., :1]
    for reward in (_rewards(), soft, alone, np.zeros_like(soft), np.ones_like(soft)):
        for visits in (0, 1, len(STEPS) - 1):
            values = bench(reward[: visits + 1]).values()
            if not np.isfinite(values).all():
                bad = values[~np.isfinite(values)][0]
                raise _Fault(f"a value after {visits} visits, of {reward.shape[-1]} completions, is {bad}, not finite.")


def own_reward(bench: Bench) -> None:
    """The own reward moves a value as own_derivative says, also that of leave_one_out()."""
    for now in (bench(_rewards()[-1:]), bench()):
        for baseline in (now.baseline, now.baseline.leave_one_out()):
            _own_reward(replace(now, baseline=baseline))


def _own_reward(now: _Bench) -> None:
    """Turn each reward over, between 0 and 1, and compare its value's change with the derivative."""
    before, reward = now.values(), now.groups.reward
    own = now.baseline.own_derivative(now.groups, now.visits, step=now.step, carry=now.carry)
    own = np.broadcast_to(own, reward.shape)
    for at in np.ndindex(reward.shape):
        turned = reward.copy()
        turned[at] = 1 - turned[at]
        slope = (now.values(reward=turned)[at] - before[at]) / (turned[at] - reward[at])
        if abs(slope - own[at]) > TOLERANCE:
            raise _Fault(
                f"a completion's own reward moves its value by {slope:.3g} per unit of reward, but own_derivative says "
                f"{own[at]:.3g}: its error would come out too low. Leave the own reward out, or say so."
            )


def padding(bench: Bench) -> None:
    """What stands outside the mask does not matter, nor does a visit without completions."""
    now = bench(_rewards(soft=True))
    reward = np.pad(now.groups.reward, ((0, 0), (0, 1)), constant_values=0.9)
    mask = np.broadcast_to(np.arange(GROUP + 1) < GROUP, reward.shape)
    weight = None if now.groups.weight is None else np.ones_like(reward)
    values = now.values(reward=reward, mask=mask, weight=weight)[:, :GROUP]
    _same(values, now.values(), "what stands outside the mask moves values")
    columns = {name: column for name, column in _columns(now.visits).items() if name != "state"}
    wider = {name: np.insert(column, 2, 5.0 if name == "lag" else 0.0, axis=-1) for name, column in columns.items()}
    padded = replace(now, visits=replace(now.visits, **wider))
    _same(padded.values(), now.values(), "a visit without completions (count 0) moves values")


def horizon(bench: Bench) -> None:
    """Visits beyond the horizon and max_visits do not matter."""
    now = bench()
    if now.baseline.state_size:
        return
    near = np.flatnonzero(now.visits.lag[0] <= now.baseline.horizon)
    near = near[max(0, len(near) - int(min(now.baseline.max_visits, len(near)))) :]
    cut = Visits(**{name: column[..., near] for name, column in _columns(now.visits).items()})
    _same(
        replace(now, visits=cut).values(),
        now.values(),
        f"visits beyond the horizon ({now.baseline.horizon:g} steps) or max_visits move values; set the property "
        "horizon to the largest lag that matters (math.inf for all)",
    )


def batches(bench: Bench) -> None:
    """Steps along a leading axis get the values that each gets alone."""
    first, second = bench(), bench(_rewards(1))
    if first.baseline.stepwise or first.carry is not None:
        return  # served one step at a time

    def stacked(part: Any, other: Any) -> Any:
        others = _columns(other)
        return replace(part, **{name: np.stack([column, others[name]]) for name, column in _columns(part).items()})

    both = replace(
        first, groups=stacked(first.groups, second.groups), visits=stacked(first.visits, second.visits)
    ).values()
    for k, now in enumerate((first, second)):
        _same(both[k], now.values(), "two steps along a leading axis get other values than each alone")


def pools_prompts(bench: Bench) -> None:
    """Other prompts matter only where pools_prompts says so."""
    others = _rewards()
    others[:, 1:] = 1 - others[:, 1:]
    now = bench()
    if not now.baseline.pools_prompts:
        complaint = "rewards of other prompts move values, but pools_prompts is False: intervals would be too short"
        _same(now.values()[0], bench(others).values()[0], complaint)


def torch(bench: Bench) -> None:
    """Tensors give the same values, as tensors."""
    if not find_spec("torch"):
        return
    import torch as library

    def tensors(part: Any) -> Any:
        return replace(part, **{name: library.from_numpy(array.copy()) for name, array in _columns(part).items()})

    now = bench(_rewards(soft=True))
    advice = "use groups.xp in place of numpy."
    try:
        values = replace(now, groups=tensors(now.groups), visits=tensors(now.visits)).values()
    except Exception as error:
        raise _Fault(f"torch tensors raise {type(error).__name__}: {error}; {advice}") from error
    if not isinstance(values, library.Tensor):
        raise _Fault(f"torch tensors give {type(values).__name__}, not a tensor; {advice}")
    _same(values.detach().numpy(), now.values(), "torch tensors give other values than NumPy arrays")


def _columns(part: Groups | Visits) -> dict[str, np.ndarray]:
    """The arrays that are there, by name."""
    return {name: column for name, column in vars(part).items() if isinstance(column, np.ndarray)}


def _same(values: np.ndarray, expected: np.ndarray, complaint: str) -> None:
    off = np.abs(values - expected).max(initial=0.0)
    if not off <= TOLERANCE:
        raise _Fault(f"{complaint} (by {off:.3g}).")


CHECKS: tuple[Callable[[Bench], None], ...] = (
    shape, finite, own_reward, padding, horizon, batches, pools_prompts, torch
)  # fmt: skip
