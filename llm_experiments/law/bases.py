"""Base models of synthetic tasks, with the studies' own seeds: where a study has the same one, it is that one."""

from pathlib import Path

from llm_experiments.config import ModelConfig
from llm_experiments.starting import ProgressBar, base_model
from llm_experiments.tasks import MADE_WORLDS

from .config import CellConfig

EXAMPLES = 200_000  # as in the studies


def starting_model(config: CellConfig, models: Path, progress: ProgressBar) -> ModelConfig:
    """The model that a cell begins with: its own, or the base model that is made of it for a synthetic task.

    models: Folder of models that are made; what is there is not made again.
    """
    if config.task.name not in MADE_WORLDS or (config.model.pretraining is None and config.teaching is None):
        return config.model
    folder = base_model(
        models,
        config.task,
        config.model.pretraining or config.teaching,
        n_examples=EXAMPLES,
        start=None if config.teaching is None else config.model.name,
        device=config.model.device,
        progress=progress,
    )
    return config.model.model_copy(update={"name": str(folder), "pretraining": None})
