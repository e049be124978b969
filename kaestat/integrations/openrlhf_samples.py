"""OpenRLHF's completions and prompts: their ids, and those that its filter drops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

DROPPED = "kaestat_dropped"  # attribute of an Experience, gone once completions are joined

_SamplesGenerator: Any = object  # the generator is its other base class


class TrackedSamplesMixin(_SamplesGenerator):
    """Mixin to put before OpenRLHF's ``SamplesGenerator``, so that it passes on what its filter drops."""

    _scored: list[Any]
    _dropped: list[Any]

    def _process_response_into_experience(self, *given: Any, **options: Any) -> Any:
        experience = super()._process_response_into_experience(*given, **options)
        self._scored.append(experience)
        return experience

    def _generate_vllm(self, *given: Any, dynamic_filtering: bool, **options: Any) -> Any:
        self._scored = []
        accepted, *rest = super()._generate_vllm(*given, dynamic_filtering=dynamic_filtering, **options)
        if dynamic_filtering:  # late completions at the end of the data are dropped, too
            kept = {id(experience) for experience in accepted}
            self._dropped += [experience for experience in self._scored if id(experience) not in kept]
        self._scored = []
        return accepted, *rest

    def generate_samples(self, **options: Any) -> Any:
        """OpenRLHF's samples; the first holds the completions dropped since the last call."""
        samples, *rest = super().generate_samples(**options)
        if samples and self._dropped:
            setattr(samples[0], DROPPED, self._dropped)
            self._dropped = []
        return samples, *rest


def with_mixin(instance: Any, mixin: type, **attributes: Any) -> Any:
    """The given object, its class replaced by one with a mixin before it, and some attributes."""
    base = type(instance)
    instance.__class__ = type(f"Baseline{base.__name__}", (mixin, base), {})
    vars(instance).update(attributes)
    return instance


def take_dropped(samples: Sequence[Any]) -> list[Any]:
    """The completions dropped before these samples; they are removed from the samples."""
    return [dropped for sample in samples for dropped in vars(sample).pop(DROPPED, [])]


def prompts_of(experience: Any) -> list[Any]:
    """Texts of an experience's completions, with the paths of images if there are any."""
    images = experience.images or [None] * len(experience.prompts)
    return [
        text if not image else [text, [image] if isinstance(image, str) else list(image)]
        for text, image in zip(experience.prompts, images, strict=True)
    ]


def rewards_of(experience: Any) -> np.ndarray:
    """Reward of each completion, shape (B,)."""
    return experience.rewards.detach().cpu().numpy().astype(np.float64)
