"""Every figure that the adapters log, by the name that trackers know it by: stable from one release to the next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A figure of a training step.

    Attributes
    ----------
    name : str
        As TensorBoard, wandb and MLflow get it; TRL's trackers but MLflow put ``train/`` before it.
    unit, meaning : str
    panel : str
        Title of the panel of the dashboards that shows it.
    """

    name: str
    unit: str
    meaning: str
    panel: str


VALUE, DEAD, REACH, NOISE, SAMPLING = (
    "Value error",
    "Completions that teach",
    "Reach of the history",
    "Gradient noise",
    "Sampling",
)

LOGGED: tuple[Figure, ...] = (
    Figure(
        "baseline/error",
        "reward²",
        "unbiased estimate of the mean squared error of the values around the prompts' true success rates; from "
        "prompts with two completions or more, and left out where there is none; may be negative",
        VALUE,
    ),
    Figure(
        "baseline/squared_error",
        "reward²",
        "mean of (reward - value)²: the error plus the reward variance; comparable between methods, with one "
        "completion per prompt too",
        VALUE,
    ),
    Figure(
        "baseline/nonzero_advantages",
        "share of completions",
        "completions with an advantage other than 0",
        DEAD,
    ),
    Figure(
        "baseline/dead_groups",
        "share of prompts",
        "prompts (groups, for methods that compare within these) of two completions or more whose rewards are all "
        "alike",
        DEAD,
    ),
    Figure(
        "baseline/known_prompts",
        "share of prompts",
        "prompts with a past in reach (methods with a history)",
        REACH,
    ),
    Figure(
        "baseline/past_completions",
        "completions",
        "mean number of past completions of a prompt in reach (likewise)",
        REACH,
    ),
    Figure(
        "baseline/effective_history",
        "completions",
        "the same, each weighted by K(lag / bandwidth) / K(0) (kernel methods)",
        REACH,
    ),
    Figure(
        "baseline/gradient_noise",
        "weight × reward²",
        "mean of W (reward - value)², W the completion's weight: where weights are given, and no value contains its "
        "completion's own reward",
        NOISE,
    ),
    Figure("sampling/prompts", "prompts", "distinct prompts that were drawn (with a prompt sampler)", SAMPLING),
    Figure(
        "sampling/effective_completions",
        "completions",
        "as many equally weighted completions as the corrections leave (likewise)",
        SAMPLING,
    ),
    Figure("sampling/largest_correction", "factor", "largest factor of an advantage (likewise)", SAMPLING),
)


def panels() -> dict[str, list[str]]:
    """Names of the figures by the dashboards' panel."""
    found: dict[str, list[str]] = {}
    for figure in LOGGED:
        found.setdefault(figure.panel, []).append(figure.name)
    return found
