"""The paper's reuse schedule as a verl data set, since verl accepts no custom samplers from 0.8.

    data.custom_cls.path=pkg://kaestat.integrations.verl.dataset data.custom_cls.name=ReuseSchedule
    data.shuffle=False +data.kaestat.repeats=10 "+data.kaestat.n_steps=${trainer.total_training_steps}"

The prompts stand in the order of `kaestat.sampling.schedules.reuse`: a fixed partition into minibatches of
``data.train_batch_size`` prompts, each used for ``repeats`` steps in a row, with fresh completions at each.
"""

from typing import Any

from omegaconf import DictConfig, ListConfig
from verl.utils.dataset.rl_dataset import RLHFDataset

from kaestat.sampling.schedules import reuse


class ReuseSchedule(RLHFDataset):
    """verl's data set with its rows in the order of the reuse schedule; validation files are unchanged.

    Raises a ValueError if ``data.shuffle`` is on, an option is missing or unknown, the files for training and
    validation are the same, or there are fewer prompts than a step needs.

    Parameters
    ----------
    data_files, tokenizer, *args, **kwargs
        Arguments of ``RLHFDataset``.
    config : DictConfig
        verl's ``data`` section. From ``config.kaestat`` come ``repeats`` (J), steps in a row with the same minibatch;
        ``n_steps``, the length of the run (without it one pass); and ``seed`` (without it ``data.seed``, or 0).
    """

    def __init__(self, data_files: Any, tokenizer: Any, config: DictConfig, *args: Any, **kwargs: Any):
        self._scheduled = _is_training(data_files, config)
        if self._scheduled:
            self._repeats, self._n_steps, self._schedule_seed = _read_options(config)
        super().__init__(data_files, tokenizer, config, *args, **kwargs)

    def _read_files_and_tokenize(self) -> None:
        super()._read_files_and_tokenize()  # also on resume, hence the schedule here
        if not self._scheduled:
            return
        batch_size, n_prompts = self.config.train_batch_size, len(self.dataframe)
        n_steps = self._n_steps
        if n_steps is None:
            n_steps = max(1, n_prompts // batch_size) * self._repeats
        self._order = reuse(n_prompts, batch_size, n_steps, repeats=self._repeats, seed=self._schedule_seed).reshape(-1)

    def __len__(self) -> int:
        return len(self._order) if self._scheduled else super().__len__()

    def __getitem__(self, item: int) -> dict[str, Any]:
        return super().__getitem__(int(self._order[item]) if self._scheduled else item)


def _is_training(data_files: Any, config: DictConfig) -> bool:
    given, train, val = (_names(files) for files in (data_files, config.train_files, config.val_files))
    if train == val:
        raise ValueError(
            "data.train_files and data.val_files are the same, so the schedule cannot tell them apart: give validation "
            "a file of its own, a copy will do."
        )
    return given == train


def _names(files: Any) -> list[str]:
    return [str(name) for name in files] if isinstance(files, list | tuple | ListConfig) else [str(files)]


def _read_options(config: DictConfig) -> tuple[int, int | None, int]:
    if config.get("shuffle", True):
        raise ValueError("data.shuffle must be False: shuffling would destroy the schedule's order.")
    given = dict(config.get("kaestat", None) or {})
    for name in given:
        if name not in ("repeats", "n_steps", "seed"):
            raise ValueError(f"data.kaestat.{name}: unknown option; choose from repeats, n_steps, seed.")
    if given.get("repeats") is None:
        raise ValueError("data.kaestat.repeats is missing: write +data.kaestat.repeats=10 for 10 steps per minibatch.")
    seed = given.get("seed", config.get("seed"))
    return given["repeats"], given.get("n_steps"), 0 if seed is None else seed
