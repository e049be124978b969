"""Experiments: the runs of a file that differ in baseline and seed alone."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, PositiveInt

from llm_experiments.config import Section, checked, read_yaml
from llm_experiments.training.config import RunConfig, Scale, Weights


class Variant(Section):
    """What one run of an experiment does otherwise than its configuration says.

    reuse: None keeps the configuration's, here as for ``weights`` and ``scale``.
    """

    method: str
    weights: Weights | None = None
    scale: Scale | None = None
    reuse: PositiveInt | None = None


class Experiment(Section):
    """Runs that differ in baseline and seed alone."""

    variants: tuple[Variant, ...] = Field(min_length=1)
    seeds: tuple[int, ...] = Field(min_length=1)


def load_experiment(path: str | Path, variants: Sequence[Variant] = (), seeds: Sequence[int] = ()) -> list[RunConfig]:
    """The runs of a file, seed by seed: its ``variants`` with its ``seeds``, or the one run that it describes.

    variants, seeds: In place of the file's.
    Raises FileNotFoundError if there is no such file.
    Raises ValueError if it is not YAML, or a setting is unknown, missing, out of range or contradicts another; every
        run is checked before any begins.
    """
    content = read_yaml(path)
    itself = {"method": content.get("method", RunConfig.model_fields["method"].default)}
    plan = {
        "variants": list(variants) or content.pop("variants", [itself]),
        "seeds": list(seeds) or content.pop("seeds", [content.get("seed", 0)]),
    }
    experiment = checked(Experiment, str(path), plan)
    plain = {key: value for key, value in content.items() if key not in ("variants", "seeds")}
    return [
        checked(RunConfig, str(path), _varied(plain, variant) | {"seed": seed})
        for seed in experiment.seeds
        for variant in experiment.variants
    ]


def _varied(content: dict, variant: Variant) -> dict:
    changed = content | {"method": variant.method}
    changed |= {key: value for key in ("weights", "scale") if (value := getattr(variant, key)) is not None}
    if variant.reuse is not None:
        changed["updates"] = changed.get("updates", {}) | {"reuse": variant.reuse}
    # A file's diagnostics are of its own run, not of those with another baseline or schedule.
    same = _what_is_compared(content) == _what_is_compared(changed)
    return changed if same else {key: value for key, value in changed.items() if key != "diagnose"}


def _what_is_compared(content: dict) -> tuple[object, ...]:
    method = content.get("method", RunConfig.model_fields["method"].default)
    reuse = (content.get("updates") or {}).get("reuse", 1)
    return method, content.get("weights", "none"), content.get("scale"), reuse
