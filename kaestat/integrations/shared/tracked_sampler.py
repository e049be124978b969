"""A `PromptSampler` as trainers need it: made to fit their data, its states held by step."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from kaestat.core.locked import Locked
from kaestat.core.storage import save_state, unpack_arrays
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.integrations.shared.held_states import HeldStates
from kaestat.sampling import Draw, Policy, PromptSampler

SAMPLER_PARAMS = ("floor", "correction", "most")  # that a trainer's configuration can set
NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


class TrackedSampler(Locked):
    """The sampler of a run, told its rewards step by step.

    It may be saved by another thread than the one that draws and observes.

    Parameters
    ----------
    sampler : PromptSampler
    states_kept : int
        After how many of the last steps the state is held for `save`, as in `TrackedEstimator`.

    Attributes
    ----------
    last_step : int
        Newest step that was observed, -1 for none.
    """

    def __init__(self, sampler: PromptSampler, *, states_kept: int = 0):
        super().__init__()
        self.sampler = sampler
        self.last_step = -1
        self._states = HeldStates(states_kept)

    @property
    def metrics(self) -> dict[str, float]:
        """Figures of the last draw, as ``sampling/NAME``."""
        draw = self.sampler.last_draw
        return {} if draw is None else draw.metrics()

    def observe(self, prompt_ids: Sequence[Hashable], rewards: Sequence[float] | np.ndarray, step: int) -> None:
        """Take note of a step's scored completions; as `PromptSampler.observe`."""
        with self.lock:
            self.sampler.observe(prompt_ids, rewards, step)
            self.last_step = max(self.last_step, step)
            self._keep_state(step)

    def draw(self, step: int, *, budget: int | None = None) -> Draw:
        """Prompts for a step; as `PromptSampler.draw`."""
        with self.lock:
            return self.sampler.draw(step, budget=budget)

    def sampler_state(self, step: int | None = None) -> dict[str, Any]:
        """The state as of after ``step`` (None: as it is), for `load_sampler_state`.

        Raises
        ------
        ValueError
            If the state after that step is held no more.
        """
        with self.lock:
            if step is None or self.last_step <= step:
                return self.sampler.state_dict()
            return self._states.after(step, self.last_step)()

    def load_sampler_state(self, state: dict[str, Any]) -> None:
        """Go on from a state of `sampler_state`."""
        with self.lock:
            self.sampler.load_state_dict(state)
            self._begin_anew()

    def save(self, path: str | os.PathLike[str], step: int | None = None) -> None:
        """Write the state as of after ``step`` (None: as it is) to a file that `PromptSampler.load` reads.

        Raises
        ------
        ValueError
            If the state after that step is held no more.
        """
        save_state(path, {"sampler": unpack_arrays(self.sampler_state(step))})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file of `save`."""
        with self.lock:
            self.sampler.load(path)
            self._begin_anew()

    def _begin_anew(self) -> None:
        """What has been loaded is the state of all steps before the first that is observed from here on."""
        self.last_step = -1
        self._states.clear()
        self._keep_state(-1)

    def _keep_state(self, step: int) -> None:
        if self._states.kept:
            state = self.sampler.state_dict()
            self._states.put(step, lambda: state)


def sampler_of(
    given: str | Policy | PromptSampler,
    ids: Sequence[Hashable],
    *,
    budget: int,
    group_size: int,
    estimator: AdvantageEstimator,
    seed: int,
    repeats: bool = True,
    params: Mapping[str, Any] = NO_PARAMS,
) -> PromptSampler:
    """The sampler of a policy's name, with the estimator's own history if it has one; or the one given, checked.

    Parameters
    ----------
    given : str, Policy or PromptSampler
    ids : sequence of hashables
        Prompt of each row of the data set; rows of the same prompt are one that weighs more.
    budget, group_size : int
        Completions of a step, and of a group.
    estimator : AdvantageEstimator
        The one that trains.
    seed : int
    repeats : bool
        Whether numbers of completions are free where groups are of one: a prompt may have several groups a step.
    params : mapping
        Further parameters of the sampler of a policy's name, of `SAMPLER_PARAMS`.

    Raises
    ------
    ValueError
        If a sampler is given whose prompts, budget or group size are not the trainer's, or with parameters beside it;
        or as `PromptSampler`.
    """
    free = group_size == 1 and repeats
    if isinstance(given, PromptSampler):
        if params:
            raise ValueError(f"{', '.join(params)}: a PromptSampler object has its parameters already; leave them out.")
        if given.budget != budget or (given.group_size or (1 if free else 0)) != group_size:
            raise ValueError(
                f"prompt_sampler: it draws {given.budget} completions in groups of {given.group_size or 'any size'}, "
                f"and a generation has {budget} in groups of {group_size}. Make it with budget={budget}"
                + ("." if free else f", group_size={group_size}.")
            )
        missing = [key for key in dict.fromkeys(ids) if key not in given]
        if missing or len(given) != len(set(ids)):
            example = f", {missing[0]!r} among them" if missing else ""
            raise ValueError(
                f"prompt_sampler: it has {len(given)} prompts, the data set {len(set(ids))} others{example}. Make it "
                "with the data set's ids, or pass the name of a policy."
            )
        return given
    counts = Counter(ids)
    return PromptSampler(
        list(counts),
        budget,
        policy=given,
        predictor=estimator if estimator.baseline.horizon > 0 else "kae_eb",
        group_size=None if free else group_size,
        share=np.array(list(counts.values())) / len(ids) if len(counts) < len(ids) else None,
        seed=seed,
        **params,
    )


def check_sampler_params(params: Any, policy: Any, *, option: str) -> None:
    """Raise unless ``params`` are parameters of a sampler, and there is one to take them.

    Parameters
    ----------
    params : mapping
    policy : optional
        What was asked for; None where no prompts are drawn.
    option : str
        How the trainer calls the parameters, for messages.
    """
    if not isinstance(params, Mapping):
        raise ValueError(f"{option} must be a mapping such as {{floor: 0.2}}, got {params!r}.")
    unknown = [name for name in params if name not in SAMPLER_PARAMS]
    if unknown:
        raise ValueError(f"{option}.{unknown[0]}: unknown parameter; choose from {', '.join(SAMPLER_PARAMS)}.")
    if params and policy is None:
        raise ValueError(f"{option}: no prompts are drawn without prompt_sampler; name a policy, or leave them out.")
