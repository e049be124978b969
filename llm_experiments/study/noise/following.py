"""Every design's history of one and the same policies: one design learns, the others watch it.

At each design's own policies, noise and policy could not be told apart. So one design's run is the path. At each of its
policies every other design samples as many completions as it would, of the prompts that it would take, and records
them in a history of its own; it learns nothing from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer

from llm_experiments.study.config import StudyConfig
from llm_experiments.study.curves import Tasks
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.loop import StackedTraining


@dataclass(frozen=True, eq=False)
class Place:
    """Where a path has got to.

    Attributes
    ----------
    generated : int
    trainings : mapping of str to StackedTraining
        Each design's runs, one for each seed, all with the path's parameters and histories of their own.
    """

    generated: int
    trainings: Mapping[str, StackedTraining]


def follow(
    study: StudyConfig,
    base: int,
    folder: Path,
    rates: Mapping[str, float],
    done: Callable[[], None] = lambda: None,
) -> Iterator[Place]:
    """The places of ``study.noise`` along its path on one base model; each is to be used before the next is asked for.

    Parameters
    ----------
    study : StudyConfig
        With ``noise``.
    base : int
        Seed of the base model.
    folder : Path
        Of it.
    rates : mapping
        Designs that are measured, the path's among them, and their learning rates.
    done : callable
        Called after each update.
    """
    noise = study.noise
    if noise is None:
        raise ValueError("noise: the study does not say where it is to be measured.")
    tasks, codec = Tasks.of(study.world, base, noise.seeds), TokenCodec(AutoTokenizer.from_pretrained(folder))
    every = {
        design: StackedTraining(
            study.setting(design),
            [folder] * len(noise.seeds),
            tasks.pools,
            noise.seeds,
            codec,
            [rate] * len(noise.seeds),
        )
        for design, rate in rates.items()
    }
    leader = every[noise.path]
    watching = [each for name, each in every.items() if name != noise.path]
    for each in watching:
        each.follow(leader)
    for at in _steps(noise.at, study.completions):
        while leader.step < at:
            for each in watching:
                _watch(each)
            leader.advance()
            done()
        yield Place(at * study.completions, every)


def _steps(completions: Sequence[int], of_each: int) -> list[int]:
    return sorted(-(-each // of_each) for each in completions)


def _watch(training: StackedTraining) -> None:
    design = training.config.design
    if design.sampling == "uniform" and training.runs[0].estimator.baseline.horizon == 0:
        training.step += 1  # nothing that it would remember
    else:
        training.watch()
