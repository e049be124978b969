"""Hypothesis strategies for training runs, and the ways from a run to the arrays and to the slow references."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from kaestat import Groups, Visits
from kaestat.history.fields import WEIGHTED_FIELDS
from tests.helpers.references import Case, PastVisit

# Multiples of 1/4: sums are exact, so that "does not depend on" can be tested to the last bit.
REWARDS = st.sampled_from([0.0, 1.0, 0.0, 1.0, 0.25, 0.5])
WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, 2.0, 5.0])


@dataclass(frozen=True)
class Sampled:
    """One prompt's completions at one step."""

    prompt: str
    rewards: list[float]
    weights: list[float]
    divergence: float


@dataclass(frozen=True)
class Step:
    """One training step."""

    number: int
    groups: list[Sampled]


@st.composite
def runs(draw, *, weighted: bool = False, max_steps: int = 7, max_prompts: int = 4) -> list[Step]:
    """A training run: increasing step numbers with gaps, ragged groups, prompts that come and go."""
    prompts = [f"p{k}" for k in range(draw(st.integers(1, max_prompts)))]
    number, run = draw(st.integers(0, 3)), []
    for _ in range(draw(st.integers(1, max_steps))):
        present = draw(st.lists(st.sampled_from(prompts), min_size=1, max_size=len(prompts), unique=True))
        groups = []
        for prompt in present:
            rewards = draw(st.lists(REWARDS, min_size=1, max_size=4))
            size = len(rewards)
            weights = draw(st.lists(WEIGHTS, min_size=size, max_size=size)) if weighted else [1.0] * size
            groups.append(Sampled(prompt, rewards, weights, draw(st.sampled_from([0.0, 0.002, 0.006, 0.5]))))
        run.append(Step(number, groups))
        number += draw(st.integers(1, 6))
    return run


def case_at(run: list[Step], index: int) -> Case:
    """What the slow references see of step ``index`` of a run: everything up to it and nothing after."""
    now = run[index]
    past = [
        [
            PastVisit(step.number, group.rewards, group.weights, group.divergence)
            for step in run[:index]
            for group in step.groups
            if group.prompt == mine.prompt
        ]
        for mine in now.groups
    ]
    return Case(
        step=now.number,
        prompts=[group.prompt for group in now.groups],
        rewards=[group.rewards for group in now.groups],
        weights=[group.weights for group in now.groups],
        past=past,
        earlier=[[(group.prompt, group.rewards) for group in step.groups] for step in run[:index]],
    )


def groups_of(case: Case, *, weighted: bool = False, padding: float = 0.0, spare: int = 0) -> Groups:
    """The current groups as arrays; ``padding`` is what stands outside the mask, ``spare`` adds columns of it."""
    width = max(len(row) for row in case.rewards) + spare
    mask = np.array([[g < len(row) for g in range(width)] for row in case.rewards])
    full = bool(mask.all())
    return Groups(
        reward=_padded(case.rewards, width, padding),
        mask=None if full else mask,
        weight=_padded(case.weights, width, abs(padding)) if weighted else None,
        prompt_ids=case.prompts,
    )


def visits_of(case: Case, *, weighted: bool = False, scatter_padding: bool = False) -> Visits:
    """The past as padded arrays: padding on the left, or (lags arbitrary) before, between and after the visits."""
    depth = max((len(past) for past in case.past), default=0)
    columns = 2 * depth + 1 if scatter_padding else depth
    shape = (len(case.past), columns)
    weighted_names = WEIGHTED_FIELDS
    names = ("count", "total", "total_sq", *weighted_names, "divergence")
    arrays = {name: np.zeros(shape) for name in names}
    lag = np.arange(shape[0] * columns, dtype=float).reshape(shape) % 5 if scatter_padding else np.zeros(shape)
    for p, past in enumerate(case.past):
        for k, visit in enumerate(past):
            column = 2 * k + 1 if scatter_padding else columns - len(past) + k
            z, w = np.array(visit.rewards), np.array(visit.weights)
            lag[p, column] = case.step - visit.step
            plain_sums = (len(z), z.sum(), (z**2).sum())
            weighted_sums = [(w**i * z**j).sum() for i, j in ((1, 0), (2, 0), (1, 1), (1, 2), (2, 1), (2, 2))]
            sums = (*plain_sums, *weighted_sums)
            for name, value in zip(names, (*sums, visit.divergence), strict=True):
                arrays[name][p, column] = value
    plain = {name: arrays[name] for name in names[:3]}
    extra = {name: arrays[name] for name in weighted_names} if weighted else {}
    return Visits(lag=lag, **plain, **extra, divergence=arrays["divergence"])


def _padded(rows: list[list[float]], width: int, padding: float) -> np.ndarray:
    return np.array([row + [padding] * (width - len(row)) for row in rows])
