"""What a completion costs beside its being counted: tokens, and processor time, by design."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoTokenizer

from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.loop import StackedTraining

from .config import StudyConfig
from .curves import Tasks

COST_COLUMNS = ["design", "tokens", "tokens_se", "milliseconds", "milliseconds_se", "ratio", "ratio_se", "turns"]
"""Of each completion, those of dropped groups included; ``ratio`` is its time as a share of the reference's."""
TURNS, UPDATES, WARM_UP = 20, 5, 5


def costs(
    study: StudyConfig,
    folder: Path,
    base: int,
    rates: Mapping[str, float],
    done: Callable[[], None] = lambda: None,
    device: str = "cpu",
) -> pd.DataFrame:
    """Tokens and time for each completion, the update and the baseline included, tests left out.

    Processor time on a CPU; on a GPU the time that passes until it has caught up.

    Designs take turns of a few updates each, so that what else the machine does falls on all alike. A stack of one run
    is timed for each.

    Parameters
    ----------
    study : StudyConfig
    folder : Path
        Of the base model.
    base : int
        Its seed.
    rates : mapping
        Learning rate of each design that is timed, the reference among them.
    done : callable
        Called after each turn of each design.
    device : str

    Returns
    -------
    DataFrame
        Columns `COST_COLUMNS`; standard errors over turns.
    """
    codec = TokenCodec(AutoTokenizer.from_pretrained(folder))
    seeds = study.rate_seeds[:1]
    pools = Tasks.of(study.world, base, seeds).pools
    stacks = {
        name: StackedTraining(study.setting(name), [folder], pools, seeds, codec, [rate], device)
        for name, rate in rates.items()
    }
    for stack in stacks.values():
        _turn(stack, WARM_UP)
    spent = {name: np.empty((TURNS, 2)) for name in stacks}
    for turn in range(TURNS):
        for name in sorted(stacks, reverse=bool(turn % 2)):
            spent[name][turn] = _turn(stacks[name], UPDATES)
            done()
    reference = spent[study.reference][:, 1]
    return pd.DataFrame(
        [
            (name, *_mean(own[:, 0]), *_mean(own[:, 1]), *_mean(own[:, 1] / reference), TURNS)
            for name, own in spent.items()
        ],
        columns=COST_COLUMNS,
    )


def _turn(stack: StackedTraining, updates: int) -> tuple[float, float]:
    """Tokens, and milliseconds, of each completion of a few updates."""
    device = next(iter(stack.parameters.values())).device
    completions, tokens, begin = stack.generated.sum(), stack.tokens.sum(), _now(device)
    for _ in range(updates):
        stack.advance()
    seconds, made = _now(device) - begin, stack.generated.sum() - completions
    return (stack.tokens.sum() - tokens) / made, 1e3 * seconds / made


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
