"""Base models of synthetic tasks, with the studies' own seeds: where a study has the same one, it is that one."""

from pathlib import Path

from llm_experiments.config import ModelConfig
from llm_experiments.seeding import seed_of
from llm_experiments.starting import ProgressBar
from llm_experiments.tasks import MADE_WORLDS, world_examples

from .config import CellConfig

EXAMPLES = 200_000  # as in the studies


def starting_model(config: CellConfig, models: Path, progress: ProgressBar) -> ModelConfig:
    """The model that a cell begins with: its own, or the base model that is made of it for a synthetic task.

    models: Folder of models that are made; what is there is not made again.
    """
    if config.task.name not in MADE_WORLDS or (config.model.pretraining is None and config.teaching is None):
        return config.model
    return config.model.model_copy(update={"name": str(_base(config, models, progress)), "pretraining": None})


def _base(config: CellConfig, models: Path, progress: ProgressBar) -> Path:
    from llm_experiments.policies.loading import resolve_device
    from llm_experiments.policies.smollm2 import smollm2_folder
    from llm_experiments.policies.supervised import taught_folder
    from llm_experiments.policies.tiny import tiny_folder

    task = config.task
    world, device = int(task.options.get("world", 0)), resolve_device(config.model.device)
    examples = world_examples(task, EXAMPLES, seed=seed_of(world, "examples") % 2**32)
    seed = seed_of(world, "model") % 2**32
    made = config.model.pretraining or config.teaching
    assert made is not None
    with progress("base model", made.steps) as done:
        told = {"device": device, "progress": lambda *_: done()}
        if config.teaching is None:
            return tiny_folder(models, examples, made, seed, **told)
        start = smollm2_folder(models) if config.model.name == "smollm2" else Path(config.model.name)
        return taught_folder(models, start, examples, made, seed, **told)
