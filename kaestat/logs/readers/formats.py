"""The formats of reward logs, how each is recognised, and the common entry point."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kaestat.core.spelling import nearest, spelled
from kaestat.logs.readers import accuracies, csv_file, json_file, parquet, trl, verl
from kaestat.logs.readers.long import read_long
from kaestat.logs.reward_log import RewardLog
from kaestat.logs.turns import with_turns

_PICKLED = (".pkl", ".pickle", ".pt", ".pth", ".joblib")


@dataclass(frozen=True)
class Format:
    """One format of reward logs; the keyword-only parameters of its reader are the hints."""

    name: str  # As `read_log` takes it
    summary: str  # What it looks like, in one line
    recognises: Callable[[Path], bool]  # Whether a file or folder is of this format
    read: Callable[..., RewardLog]
    takes_folder: bool = False

    @property
    def hints(self) -> tuple[str, ...]:
        """The names of the hints that the reader accepts."""
        parameters = inspect.signature(self.read).parameters.values()
        return tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)


FORMATS: dict[str, Format] = {
    each.name: each
    for each in (  # frameworks first: their files are Parquet and JSONL too
        Format("trl", "TRL's completions/completions_*.parquet", trl.recognises, trl.read_trl, takes_folder=True),
        Format(
            "verl", "verl's rollout_data_dir, {step}.jsonl files", verl.recognises, verl.read_verl, takes_folder=True
        ),
        Format(
            "csv",
            "one completion per row, .csv or .tsv; fields separated by , ; tab or |",
            csv_file.recognises,
            partial(read_long, csv_file),
        ),
        Format(
            "jsonl",
            "one completion per line, .jsonl or .ndjson",
            json_file.is_lines,
            partial(read_long, json_file.LINES),
        ),
        Format("parquet", "one completion per row", parquet.recognises, partial(read_long, parquet)),
        Format(
            "records",
            "JSON list of completions, or a table of wandb",
            json_file.is_table,
            partial(read_long, json_file.TABLE),
        ),
        Format(
            "accuracies",
            'JSON {"prompt": [0.25, ...]}, an accuracy per visit',
            accuracies.recognises,
            accuracies.read_accuracies,
        ),
    )
}


def read_log(path: str | os.PathLike[str], format: str = "auto", *, turns: str = "keep", **hints: Any) -> RewardLog:
    """The reward log in a file or folder.

    Parameters
    ----------
    path : path
        A file, or a folder of files.
    format : str
        A name in `FORMATS`; ``"auto"`` decides by the name, the folder's files and the columns. Text files may be
        packed, with names that end in ``.gz``.
    turns : {"keep", "merge"}
        ``"merge"`` leaves out rows whose prompt continues another prompt of the same step: later turns of a rollout,
        which repeat its reward. A warning says if a log seems to have such rows.
    **hints
        What the file does not say. ``prompt, step, reward, group`` name columns, ``weight, length, importance`` those
        of weights (squared score norms), lengths and importance ratios (``"none"``: without). ``trl`` has
        ``reward_weights``, ``accuracies`` only ``group_size``. ``missing="drop"`` leaves out rows that lack a value,
        and warns with their number; ``"refuse"`` refuses the log, as is the default but for frameworks.

    Returns
    -------
    RewardLog
        Prompts are what the file has; text in CSV and JSON files, JSON text for conversations. Of a column
        ``messages`` they are the conversations up to the user's last message.

    Warns
    -----
    LogWarning
        If the reader chose between two columns with usual names and different values, left rows out, or noticed that
        rows may not be what they seem.

    Raises
    ------
    FileNotFoundError
        If there is nothing at the path.
    ImportError
        If the file is Parquet and pyarrow is missing.
    ValueError
        If the format is unknown or cannot be decided, a hint is unknown, or the content is torn or invalid; the message
        names the file, the line or row, and the fix.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = file.write_text("question,step,score\\nwhy,0,1\\nwhy,0,0\\nhow,1,1\\n")
    >>> read_log(file)
    RewardLog(3 completions, 2 prompts, 2 visits, 2 steps)
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder.")
    chosen = format_of(path, format)
    if path.is_dir() and not chosen.takes_folder:
        raise ValueError(f"{path}: is a folder, but format {chosen.name!r} reads one file; give its path.")
    for hint in hints:
        if hint not in chosen.hints:
            others = [each.name for each in FORMATS.values() if hint in each.hints]
            unknown = f"unknown hint {hint!r}{nearest(hint, chosen.hints)}"
            what = f"hint {hint!r} is for {' and '.join(others)}" if others else unknown
            raise ValueError(f"{what}: format {chosen.name!r} takes {', '.join(chosen.hints)}.")
    return with_turns(chosen.read(path, **hints), path, turns)


def format_of(path: Path, name: str = "auto") -> Format:
    """The format with that name, or the format of a path; a ValueError if it is unknown or unclear."""
    if name == "auto":
        return _detect(path)
    if name not in FORMATS:
        raise ValueError(f"format: unknown {name!r}{nearest(name, FORMATS)}; choose one of auto, {', '.join(FORMATS)}.")
    return FORMATS[name]


def _detect(path: Path) -> Format:
    for each in FORMATS.values():
        if each.recognises(path):
            return each
    text = f"its name ends in {path.suffix!r}"
    if path.suffix.lower() in _PICKLED:
        raise ValueError(
            f"{path}: is not read, since a pickled file can run any code. If you trust it, load it yourself, and "
            "give the table to RewardLog.from_frame or write it by frame.to_parquet or frame.to_csv."
        )
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir())
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        text = f"it is a folder with {shown}" if names else "it is an empty folder"
        if any(name.startswith("checkpoint-") for name in names):
            text += "; a run of TRL logs completions with log_completions=True, logging_steps=1"
    summaries = "; ".join(f"{each.name} ({each.summary})" for each in FORMATS.values())
    raise ValueError(
        f"{path}: cannot tell the format: {text}. Give one file, or pass {spelled('format')} with one of {summaries}."
    )
