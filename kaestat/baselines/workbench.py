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
OURS = "kaestat."


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
class _Now:
    """What a baseline gets at the last step of a synthetic run."""

    groups: Groups
    visits: Visits
    step: Any
    carry: Any


@dataclass(frozen=True, eq=False)
class _Bench:
    """A baseline and the prompts of the synthetic runs that it is tried on."""

    baseline: Baseline
    prompts: tuple[Hashable, ...]

    def now(self, reward: np.ndarray | None = None, *, upto: int = len(STEPS)) -> _Now:
        """The last of so many steps; rewards (T, P, G) are 0 or 1 where none are given."""
        baseline, reward = self.baseline, _rewards() if reward is None else reward
        carry, state = baseline.initial_carry(), np.zeros((reward.shape[1], baseline.state_size), dtype=np.float32)
        for t in range(upto):
            weight = np.ones_like(reward[t]) if baseline.needs_weights else None
            groups = Groups(reward[t], weight=weight, prompt_ids=self.prompts)
            lag = np.array([float(STEPS[t] - step) for step in STEPS[:t]])
            past = np.moveaxis(reward[:t], 0, 1)
            visits = Visits.of(lag, past, np.ones_like(past) if baseline.needs_weights else None)
            now = _Now(groups, replace(visits, state=state) if baseline.state_size else visits, STEPS[t], carry)
            if t == upto - 1:
                break
            served = baseline.serve(groups, visits=now.visits, step=now.step, carry=carry)
            carry, state = served.carry, state if served.state is None else served.state
        return now

    def values(self, now: _Now, baseline: Baseline | None = None) -> Array:
        return (baseline or self.baseline).values(now.groups, now.visits, step=now.step, carry=now.carry)


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
    faults = _faults(_Bench(baseline, tuple(prompts)), CHECKS)
    if faults:
        raise FaultyBaseline(baseline, faults)
    return tuple(each.__name__ for each in CHECKS if each is not torch or find_spec("torch"))


def check_unknown(baseline: Baseline, prompts: Sequence[Hashable]) -> None:
    """Raise `FaultyBaseline` for a baseline from outside this library whose risk would mean nothing.

    It is tried on prompts of the log. What it raises there is left to the log itself.
    """
    if type(baseline).__module__.startswith(OURS):
        return
    checks = [each for each in CHECKS if each is not torch or "torch" in sys.modules]
    faults = _faults(_Bench(baseline, (*prompts[: len(PROMPTS)], *PROMPTS)[: len(PROMPTS)]), checks)
    faults = {name: why for name, why in faults.items() if not why.startswith(RAISED)}
    if faults:
        raise FaultyBaseline(baseline, faults)


RAISED = "it raises "


def _faults(bench: _Bench, checks: Sequence[Callable[[_Bench], None]]) -> dict[str, str]:
    faults: dict[str, str] = {}
    for each in checks:
        try:
            each(bench)
        except _Fault as fault:
            faults[each.__name__] = str(fault)
        except Exception as error:  # whatever a user's code raises
            faults[each.__name__] = f"{RAISED}{type(error).__name__}: {error}"
        if faults and each in FIRST:
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


def shape(bench: _Bench) -> None:
    """Values have the shape of the rewards."""
    for upto in (1, len(STEPS)):
        now = bench.now(upto=upto)
        values = bench.values(now)
        if not isinstance(values, np.ndarray) or values.shape != now.groups.reward.shape:
            given = f"shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            raise _Fault(f"values of groups of shape {now.groups.reward.shape} must be an array of it, got {given}.")


def memory(bench: _Bench) -> None:
    """Nothing is kept on the object from call to call."""
    now = bench.now()
    first = bench.values(now)
    bench.values(bench.now(_rewards(1)))
    _same(bench.values(now), first, "the same call gives other values after another: keep state in carry, not in self")


def finite(bench: _Bench) -> None:
    """Every value is finite, whatever the past and the rewards."""
    soft, alone = _rewards(soft=True), _rewards()[..., :1]
    for reward in (_rewards(), soft, alone, np.zeros_like(soft), np.ones_like(soft)):
        for upto in (1, 2, len(STEPS)):
            values = bench.values(bench.now(reward, upto=upto))
            if not np.isfinite(values).all():
                raise _Fault(
                    f"values after {upto - 1} visits, of groups of {reward.shape[-1]} with mean reward "
                    f"{reward[upto - 1].mean():.2g}, are {values[~np.isfinite(values)][0]}; every value must be finite."
                )


def own_reward(bench: _Bench) -> None:
    """The own reward moves a value as own_derivative says."""
    _own_moves(bench, bench.baseline, "own_derivative says")


def leave_one_out(bench: _Bench) -> None:
    """The form without the own reward does without it."""
    without = bench.baseline.leave_one_out()
    if without is not bench.baseline:
        _own_moves(bench, without, "leave_one_out() promises 0, and its own_derivative says")


def _own_moves(bench: _Bench, baseline: Baseline, says: str) -> None:
    """Turn each reward over, between 0 and 1, and compare its value's change with the derivative."""
    for upto in (1, len(STEPS)):
        reward = _rewards()
        reward[0] = reward[-1]
        now = bench.now(reward, upto=upto)
        own = baseline.own_derivative(now.groups, now.visits, step=now.step, carry=now.carry)
        own = np.broadcast_to(own, now.groups.reward.shape)
        before = bench.values(now, baseline)
        for at in np.ndindex(before.shape):
            turned = now.groups.reward.copy()
            turned[at] = 1 - turned[at]
            after = bench.values(_with_groups(now, reward=turned), baseline)
            slope = (after[at] - before[at]) / (turned[at] - now.groups.reward[at])
            if abs(slope - own[at]) > TOLERANCE:
                raise _Fault(
                    f"a completion's own reward moves its value by {slope:.3g} per unit of reward, but {says} "
                    f"{own[at]:.3g}: its error would come out too low. Leave the own reward out, or say so."
                )


def padding(bench: _Bench) -> None:
    """What stands outside the mask does not matter."""
    now = bench.now(_rewards(soft=True))
    mask = np.ones((len(PROMPTS), GROUP + 1), dtype=bool)
    mask[:, GROUP] = False
    values = []
    for there in (mask, mask & (np.arange(GROUP + 1) != 1)):
        for filled in (0.0, 0.9):
            reward = np.where(there, np.pad(now.groups.reward, ((0, 0), (0, 1))), filled)
            weight = None if now.groups.weight is None else np.ones_like(reward)
            values.append(bench.values(_with_groups(now, reward=reward, mask=there, weight=weight))[there])
    complaint = "what stands outside the mask moves values"
    _same(values[0], bench.values(now).ravel(), complaint)
    _same(values[1], values[0], complaint)
    _same(values[2], values[3], complaint)


def visit_padding(bench: _Bench) -> None:
    """A visit without completions does not matter."""
    now = bench.now()
    columns = {name: column for name, column in _columns(now.visits).items() if name != "state"}
    wider = {name: np.insert(column, 2, 5.0 if name == "lag" else 0.0, axis=-1) for name, column in columns.items()}
    padded = replace(now, visits=replace(now.visits, **wider))
    _same(bench.values(padded), bench.values(now), "a visit without completions (count 0) moves values")


def horizon(bench: _Bench) -> None:
    """Visits beyond the horizon and max_visits do not matter."""
    now, baseline = bench.now(), bench.baseline
    if baseline.state_size:
        return
    near = np.flatnonzero(now.visits.lag[0] <= baseline.horizon)
    near = near[max(0, len(near) - int(min(baseline.max_visits, len(near)))) :]
    cut = Visits(**{name: column[..., near] for name, column in _columns(now.visits).items()})
    _same(
        bench.values(replace(now, visits=cut)),
        bench.values(now),
        f"visits beyond the horizon ({baseline.horizon:g} steps) or max_visits move values; set the property horizon "
        "to the largest lag that matters (math.inf for all)",
    )


def batches(bench: _Bench) -> None:
    """Steps along a leading axis get the values that each gets alone."""
    baseline = bench.baseline
    if baseline.stepwise or baseline.initial_carry() is not None:
        return  # served one step at a time
    first, second = (bench.now(_rewards(seed)) for seed in (0, 1))

    def stacked(part: Any, other: Any) -> Any:
        others = _columns(other)
        return replace(part, **{name: np.stack([column, others[name]]) for name, column in _columns(part).items()})

    groups, visits = stacked(first.groups, second.groups), stacked(first.visits, second.visits)
    both = baseline.values(groups, visits, step=np.full((2, 1, 1), STEPS[-1]))
    for k, now in enumerate((first, second)):
        _same(both[k], bench.values(now), "two steps along a leading axis get other values than each alone")


def pools_prompts(bench: _Bench) -> None:
    """Other prompts matter only where pools_prompts says so."""
    if bench.baseline.pools_prompts:
        return
    others = _rewards()
    others[:, 1:] = 1 - others[:, 1:]
    before, after = (bench.values(bench.now(reward))[0] for reward in (_rewards(), others))
    complaint = "rewards of other prompts move values, but pools_prompts is False: intervals would be too short"
    _same(before, after, complaint)


def within_group(bench: _Bench) -> None:
    """Values lie among the group's rewards where within_group says so."""
    now = bench.now(_rewards(soft=True))
    values, reward = bench.values(now), now.groups.reward
    least, most = reward.min(axis=-1, keepdims=True), reward.max(axis=-1, keepdims=True)
    if bench.baseline.within_group and not ((least - TOLERANCE <= values) & (values <= most + TOLERANCE)).all():
        raise _Fault("values leave the range of their group's rewards, but within_group is True: advantages explode.")


def weights(bench: _Bench) -> None:
    """Weights of 1 are as no weights, where weights are taken."""
    now = bench.now(_rewards(soft=True))
    if not bench.baseline.takes_weights or bench.baseline.needs_weights:
        return
    count, total, total_sq = now.visits.count, now.visits.total, now.visits.total_sq
    visits = replace(now.visits, weight=count, weight_sq=count, weighted_total=total, weighted_total_sq=total_sq)
    weighted = _with_groups(replace(now, visits=visits), weight=np.ones_like(now.groups.reward))
    _same(bench.values(weighted), bench.values(now), "weights of 1 give other values than no weights")


def torch(bench: _Bench) -> None:
    """Tensors give the same values, as tensors."""
    if not find_spec("torch"):
        return
    import torch as library

    def tensors(part: Any) -> Any:
        return replace(part, **{name: library.from_numpy(array.copy()) for name, array in _columns(part).items()})

    now = bench.now(_rewards(soft=True))
    advice = "use groups.xp in place of numpy."
    try:
        values = bench.values(replace(now, groups=tensors(now.groups), visits=tensors(now.visits)))
    except Exception as error:
        raise _Fault(f"torch tensors raise {type(error).__name__}: {error}; {advice}") from error
    if not isinstance(values, library.Tensor):
        raise _Fault(f"torch tensors give {type(values).__name__}, not a tensor; {advice}")
    _same(values.detach().numpy(), bench.values(now), "torch tensors give other values than NumPy arrays")


def _columns(part: Groups | Visits) -> dict[str, np.ndarray]:
    """The arrays that are there, by name."""
    return {name: column for name, column in vars(part).items() if isinstance(column, np.ndarray)}


def _with_groups(now: _Now, **columns: Any) -> _Now:
    return replace(now, groups=replace(now.groups, **columns))


def _same(values: np.ndarray, expected: np.ndarray, complaint: str) -> None:
    off = np.abs(values - expected).max(initial=0.0)
    if not off <= TOLERANCE:
        raise _Fault(f"{complaint} (by {off:.3g}).")


FIRST: tuple[Callable[[_Bench], None], ...] = (shape, memory)
CHECKS: tuple[Callable[[_Bench], None], ...] = (
    *FIRST, finite, own_reward, leave_one_out, padding, visit_padding, horizon, batches, pools_prompts, within_group,
    weights, torch,
)  # fmt: skip
