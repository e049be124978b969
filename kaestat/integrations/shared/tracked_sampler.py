"""A `PromptSampler` for trainers: fitted to their data, with its draws kept by step."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from kaestat.core.locked import Locked
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.several_rewards import SeveralRewards
from kaestat.sampling import Draw, Policy, PromptSampler

SAMPLER_PARAMS = ("floor", "correction", "most", "low", "high")  # that a trainer's configuration can set
DRAWS_KEPT = 16  # steps: data loaders look ahead
NO_PARAMS: Mapping[str, Any] = MappingProxyType({})


class TrackedSampler(Locked):
    """The sampler of a run, its draws by step, and `row`, the data set's first row of each prompt of ``ids``."""

    def __init__(self, sampler: PromptSampler, ids: Sequence[Hashable]):
        super().__init__()
        self.sampler = sampler
        self.row = {key: row for row, key in reversed(list(enumerate(ids)))}
        self.forget()

    def forget(self) -> None:
        """Start from the sampler's state, as after a resume."""
        self._draws: dict[int, Draw] = {}  # of the last steps
        self._corrected: Draw | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics, named ``sampling/NAME``, of the draw that advantages were last corrected for, or the last one."""
        draw = self._corrected or self.sampler.last_draw
        return {} if draw is None else draw.metrics()

    def draw(self, step: int, *, budget: int | None = None) -> Draw:
        """The draw of a step: the last one if it was made ahead for this step and no budget is given, or a new one."""
        with self.lock:
            draw = self.sampler.last_draw
            if draw is None or draw.step != step or budget is not None:
                draw = self.sampler.draw(step, budget=budget)
            draws = {**self._draws, step: draw}
            self._draws = {at: draws[at] for at in list(draws)[-DRAWS_KEPT:]}
            return draw

    def draw_groups(self, step: int, n_groups: int) -> list[tuple[Hashable, float]]:
        """The prompt of each of so many groups, newly drawn, and the factor of its advantages."""
        size = self.sampler.group_size or 1
        draw = self.draw(step, budget=n_groups * size)
        names = draw.rows()[::size]
        return list(zip(names, draw.correction_of(names).tolist(), strict=True))

    def corrections(self, ids: Sequence[Hashable], step: int) -> np.ndarray:
        """The factor of each completion's advantage, shape (N,), from the draw of its step, which had these prompts."""
        if self.sampler.correction == "none":
            return np.ones(len(ids))
        draw = self._draws.get(step)
        if draw is None or Counter(ids) - Counter(dict(zip(draw.prompt_ids, draw.counts.tolist(), strict=True))):
            raise ValueError(
                f"prompt_sampler: the prompts of step {step} are not those that were drawn for it. The trainer must "
                "take its prompts from the sampler, and name them as the data set does: where it changes them (images, "
                "an environment's first words), give the column with their ids."
            )
        self._corrected = draw
        return draw.correction_of(ids)


def sampler_of(
    given: str | Policy | PromptSampler,
    ids: Sequence[Hashable],
    *,
    budget: int,
    group_size: int,
    estimator: AdvantageEstimator | SeveralRewards,
    seed: int,
    params: Mapping[str, Any] = NO_PARAMS,
    filtered: str = "",
) -> PromptSampler:
    """The sampler of a named policy, with the estimator's own history if it has one; or the given sampler, checked.

    Several rows of one prompt give it more weight. ``budget`` counts the completions of a step; ``params`` are from
    `SAMPLER_PARAMS`; ``filtered`` is the trainer's option that drops groups, if it is on.
    """
    if not isinstance(estimator, AdvantageEstimator):
        raise ValueError(
            f"prompt_sampler needs one reward per completion, not a {type(estimator).__name__}; leave it out."
        )
    free = group_size == 1
    if isinstance(given, PromptSampler):
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
        sampler = given
    else:
        counts = Counter(ids)
        sampler = PromptSampler(
            list(counts),
            budget,
            policy=given,
            predictor=estimator if estimator.baseline.horizon > 0 else "kae_eb",
            group_size=None if free else group_size,
            share=np.array(list(counts.values())) / len(ids) if len(counts) < len(ids) else None,
            seed=seed,
            **params,
        )
    if filtered and sampler.correction != "none":
        raise ValueError(
            f"{filtered} chooses among the prompts that were drawn, which their correction ignores. Leave "
            'it or prompt_sampler out, or draw with correction="none".'
        )
    return sampler


def check_sampler_params(params: Any, policy: Any, *, option: str) -> None:
    """Raise a ValueError unless ``params``, the trainer's ``option``, are a sampler's, and there is a ``policy``."""
    if not isinstance(params, Mapping):
        raise ValueError(f"{option} must be a mapping such as {{floor: 0.2}}, got {params!r}.")
    unknown = [name for name in params if name not in SAMPLER_PARAMS]
    if unknown:
        raise ValueError(f"{option}.{unknown[0]}: unknown parameter; choose from {', '.join(SAMPLER_PARAMS)}.")
    if params and policy is None:
        raise ValueError(f"{option}: no prompts are drawn without prompt_sampler; name a policy, or leave them out.")
