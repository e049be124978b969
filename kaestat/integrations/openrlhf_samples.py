"""OpenRLHF's completions on their way to the trainer: which policy they are of, and which its filter drops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kaestat.integrations.openrlhf_prompts import named_prompt

# Attributes of an Experience; they travel with it between processes, and are gone once completions are joined.
VERSION, DROPPED = "kaestat_version", "kaestat_dropped"

_SamplesGenerator: Any = object  # its methods come from the generator that stands beside it


class TrackedSamplesMixin(_SamplesGenerator):
    """Before OpenRLHF's ``SamplesGenerator`` in a class statement; see `watch_samples`."""

    policy_step: Callable[[], int] | None
    _scored: list[Any]
    _dropped: list[Any]

    def _process_response_into_experience(self, *given: Any, **options: Any) -> Any:
        experience = super()._process_response_into_experience(*given, **options)
        if self.policy_step is not None:
            setattr(experience, VERSION, self.policy_step())
        self._scored.append(experience)
        return experience

    def _generate_vllm(self, *given: Any, dynamic_filtering: bool, **options: Any) -> Any:
        self._scored = []
        accepted, *rest = super()._generate_vllm(*given, dynamic_filtering=dynamic_filtering, **options)
        if dynamic_filtering:  # what comes back too late at the end of the data is dropped, too
            kept = {id(experience) for experience in accepted}
            self._dropped += [experience for experience in self._scored if id(experience) not in kept]
        self._scored = []
        return accepted, *rest

    def generate_samples(self, **options: Any) -> Any:
        """OpenRLHF's; the first completion carries those that were dropped since the last call."""
        samples, *rest = super().generate_samples(**options)
        if samples and self._dropped:
            setattr(samples[0], DROPPED, self._dropped)
            self._dropped = []
        return samples, *rest


def watch_samples(generator: Any, policy_step: Callable[[], int] | None = None) -> None:
    """Let a samples generator write on its completions what the trainer's process cannot know.

    Parameters
    ----------
    generator : openrlhf.trainer.ppo_utils.samples_generator.SamplesGenerator
        Its class is replaced by one with `TrackedSamplesMixin` before it.
    policy_step : callable, optional
        Gives the step of the policy that generates.
    """
    base = type(generator)
    generator.__class__ = type(f"Watched{base.__name__}", (TrackedSamplesMixin, base), {})
    generator.policy_step, generator._scored, generator._dropped = policy_step, [], []


def versions_of(samples: Sequence[Any], first_step: int) -> list[int] | None:
    """Step of the policy that sampled each completion; None where the generator did not write it.

    Parameters
    ----------
    samples : sequence of Experience
        Of one completion each.
    first_step : int
        That this run began with, which no policy is before.
    """
    found = [getattr(sample, VERSION, None) for sample in samples]
    known = [max(version, first_step) for version in found if version is not None]
    return known if len(known) == len(found) else None


def take_dropped(samples: Sequence[Any]) -> list[Any]:
    """The completions that were dropped on the way to these; they are carried no further."""
    dropped: list[Any] = []
    for sample in samples:
        dropped += vars(sample).pop(DROPPED, [])
    return dropped


def prompts_of(experience: Any) -> list[Any]:
    """Texts of an experience's completions, with the images' paths where there are some."""
    images = experience.images or [None] * len(experience.prompts)
    return [named_prompt(text, image) for text, image in zip(experience.prompts, images, strict=True)]
