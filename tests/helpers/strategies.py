"""Hypothesis strategies for training runs, and the ways from a run to the arrays and to the slow references."""

from dataclasses import dataclass

from hypothesis import strategies as st

from kaestat import Groups, Visits
from tests.helpers.cases import groups, visits
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
    weights = case.weights if weighted else None
    return groups(*case.rewards, weights=weights, prompt_ids=case.prompts, padding=padding, spare=spare)


def visits_of(case: Case, *, weighted: bool = False, scatter_padding: bool = False) -> Visits:
    """The past as padded arrays: padding on the left, or before, between and after the visits."""
    past = [
        [(case.step - each.step, each.rewards, *([each.weights] if weighted else [])) for each in mine]
        for mine in case.past
    ]
    divergence = [[each.divergence for each in mine] for mine in case.past]
    return visits(*past, divergence=divergence, padding="between" if scatter_padding else "left")
