"""One compared run once more, with every completion that it learned from: its reward, length and squared norms."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.nn import functional as F

from llm_experiments.law.tables import write_gzip
from llm_experiments.training.stacked.loop import StackedTraining
from llm_experiments.training.stacked.model import Parameters, Tap
from llm_experiments.training.stacked.sampling import tokens_that_count
from llm_experiments.training.stacked.score_norms import logit_norms, tapped_norms

from .config import StudyConfig
from .curves import CURVE_COLUMNS, Tasks, learning_curves
from .tables import text_of, write_frame

ROW_COLUMNS = ["step", "prompt", "reward", "length", "logits", "plain", "adam"]
"""``logits``, ``plain`` and ``adam`` are squared norms of the completion's score: on the logits, in the parameters, and
there in the units of AdamW's mean squares before the step. The first step has no mean squares."""
FACT_COLUMNS = ["seed", "rate", "steps", "completions", "stack", "seconds_of_steps", "seconds_of_norms"]
"""Processor time: of all steps of a stack of so many runs, and of the norms of its first run."""


@dataclass
class KeptRows:
    """Makes steps of a stack, and keeps what its first run learned from.

    Attributes
    ----------
    frames : list of DataFrame
        Columns `ROW_COLUMNS`, one of each step.
    seconds_of_steps, seconds_of_norms : float
    """

    frames: list[pd.DataFrame] = field(default_factory=list)
    seconds_of_steps: float = 0.0
    seconds_of_norms: float = 0.0

    def advance(self, training: StackedTraining) -> None:
        """One step."""
        begin, step = time.process_time(), training.step
        before = _first(training.parameters)
        squares = training.mean_squares()
        squares = None if squares is None else _first(squares)
        copied = time.process_time()
        training.advance()
        made = time.process_time()
        self.frames.append(self._rows(training, step, before, squares))
        self.seconds_of_steps += made - copied
        self.seconds_of_norms += time.process_time() - made + copied - begin

    def _rows(
        self, training: StackedTraining, step: int, parameters: Parameters, squares: Parameters | None
    ) -> pd.DataFrame:
        run, codec = training.runs[0], training.codec
        groups = run.latest
        assert groups is not None  # a step has been made
        completions = groups.completions[None]
        prompts = codec.tokens([run.problems[row].prompt for row in groups.rows]).to(completions.device)[None]
        norms = _norms(training, parameters, prompts, completions, squares)
        return pd.DataFrame(
            {
                "step": step,
                "prompt": [run.ids[row] for row in groups.rows],
                "reward": groups.rewards,
                "length": tokens_that_count(groups.completions, codec.end).sum(1).cpu().numpy(),
            }
            | {name: each[0].double().cpu().numpy() for name, each in norms.items()}
        )[ROW_COLUMNS]


def kept_rows(
    path: Path,
    config: StudyConfig,
    design: str,
    base: int,
    curves: pd.DataFrame,
    folder: Path,
    stack: int | None,
    done: Callable[[], None],
    device: str,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What `repeated` gives, kept in a compressed table and one of facts beside it, and read from them later.

    Parameters
    ----------
    path : Path
        Of the rows, ending in ``.csv.gz``.
    config, design, base, curves, folder, stack, done, device
        As for `repeated`.
    """
    facts = path.with_name(path.name.removesuffix(".csv.gz") + ".facts.csv")
    if not (path.exists() and facts.exists()):
        how = {"stack": stack, "done": done, "device": device}
        rows, fact = repeated(config, design, base, curves, folder, **how)
        write_gzip(path, rows)
        write_frame(fact, facts)
    return pd.read_csv(path, dtype={"prompt": str}), pd.read_csv(facts)


def repeated(
    config: StudyConfig,
    design: str,
    base: int,
    curves: pd.DataFrame,
    folder: Path,
    *,
    stack: int | None,
    done: Callable[[], None],
    device: str,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The first run of a design on a base model again, with its rows.

    The runs that it was stacked with are made again too, since arithmetic in a stack of another size is rounded in
    another way, and a different letter changes all that follows.

    Parameters
    ----------
    config : StudyConfig
    design : str
    base : int
    curves : DataFrame
        What is stored of the design on this base model, columns `CURVE_COLUMNS`.
    folder : Path
        Of the base model.
    stack : int or None
        Runs that were trained at once at most; None means all.
    done : callable
        Called after each step.
    device : str

    Returns
    -------
    rows : DataFrame
        Columns `ROW_COLUMNS`: all completions that the run's updates were made of.
    facts : DataFrame
        One row, columns `FACT_COLUMNS`.

    Raises
    ------
    ValueError
        If the run's curve is not the stored one.
    """
    runs = curves[["seed", "rate"]].drop_duplicates().iloc[:stack]
    seeds, rates = runs["seed"].tolist(), runs["rate"].tolist()
    kept = KeptRows()
    tasks = Tasks.of(config.world, base, seeds)
    setting = config.setting(design)
    made = learning_curves(config.tests, setting, tasks, seeds, rates, folder, done, device, kept.advance)
    check_same(_run(made, seeds), _run(curves, seeds), f"{design} on base model {base}, seed {seeds[0]}")
    rows = pd.concat(kept.frames, ignore_index=True)
    facts = (seeds[0], rates[0], len(kept.frames), len(rows), len(seeds), kept.seconds_of_steps, kept.seconds_of_norms)
    return rows, pd.DataFrame([facts], columns=FACT_COLUMNS)


def check_same(made: pd.DataFrame, stored: pd.DataFrame, run: str) -> None:
    """Refuse a repeated run whose curve is another.

    Parameters
    ----------
    made, stored : DataFrame
        Columns `CURVE_COLUMNS`, of one run; the latter as it was read from a table.
    run : str
        What the run is called.

    Raises
    ------
    ValueError
        If a number differs in a digit that tables have.
    """
    read = pd.read_csv(io.StringIO(text_of(made)))
    found, known = (frame[CURVE_COLUMNS].to_numpy(float) for frame in (read, stored))
    if found.shape != known.shape:
        raise ValueError(f"{run}: the repeated run has {len(found)} tests, the stored one {len(known)}.")
    differing = np.argwhere(~((found == known) | (np.isnan(found) & np.isnan(known))))
    if len(differing):
        row, column = differing[0]
        raise ValueError(
            f"{run}: the repeated run has {CURVE_COLUMNS[column]} {found[row, column]:g} after "
            f"{known[row, CURVE_COLUMNS.index('generated')]:g} completions, the stored one {known[row, column]:g}. Its "
            "rows would be those of another run: repeat it where, and with the versions with which, the study was run."
        )


def _run(curves: pd.DataFrame, seeds: Sequence[int]) -> pd.DataFrame:
    return curves[curves["seed"] == seeds[0]].reset_index(drop=True)


def _first(stacked: Parameters) -> dict[str, torch.Tensor]:
    """A copy of the first run's."""
    return {name: each[:1].detach().clone() for name, each in stacked.items()}


def _norms(
    training: StackedTraining,
    parameters: Parameters,
    prompts: torch.Tensor,
    completions: torch.Tensor,
    squares: Parameters | None,
) -> dict[str, torch.Tensor]:
    """Squared norms of one run's completions, each of shape (1, rows), from one forward pass."""
    own = {name: each.requires_grad_() for name, each in parameters.items()}
    taps: list[Tap] = []
    tokens = torch.cat([prompts, completions[:, :, :-1]], 2)
    logits = training.model.logits(own, tokens, skip=prompts.shape[2] - 1, taps=taps)
    scores = F.log_softmax(logits / training.config.temperature, -1)
    said = scores.gather(-1, completions[..., None])[..., 0]
    counted = tokens_that_count(completions, training.codec.end)
    whole = (said * counted).sum(2)
    plain = tapped_norms(whole, taps)
    return {
        "logits": logit_norms(scores.detach(), said.detach(), counted),
        "plain": plain,
        "adam": torch.full_like(plain, torch.nan) if squares is None else tapped_norms(whole, taps, squares),
    }
