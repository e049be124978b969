"""Model folders: written whole or not at all, and loaded into a model that exists already."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

# What must agree between two configurations for their weights to mean the same.
STRUCTURE = (
    "model_type",
    "hidden_act",
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "rms_norm_eps",
    "rope_parameters",
    "sliding_window",
    "tie_word_embeddings",
    "vocab_size",
)
INCOMPLETE = ("missing_keys", "unexpected_keys", "mismatched_keys")  # of transformers' report on weights it has read
DAY = 24 * 3600  # seconds: no save takes longer


def save_model(folder: str | Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write a folder that ``from_pretrained`` and vLLM load: safetensors, configuration and tokenizer.

    An interrupted call leaves nothing at ``folder``, or what was there before.
    """
    with new_folder(folder) as temporary, no_progress_bars():
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A temporary sibling of ``folder`` to write into, which takes its place when the block ends without an error.

    What earlier calls for the same folder have left when they were killed is removed after a day.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{escape(folder.name)}.*.tmp"):
        with suppress(OSError):  # another call was quicker
            if time.time() - left.stat().st_mtime > DAY:
                shutil.rmtree(left)
    mark = secrets.token_hex(8)
    temporary, old = (folder.with_name(f".{folder.name}.{mark}{part}.tmp") for part in ("", ".old"))
    temporary.mkdir()
    try:
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # a directory cannot replace one that holds files
            os.replace(folder, old)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Without transformers' own bars, one for each file: they would tear the bar of a run."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_weights(model: PreTrainedModel, folder: str | Path) -> None:
    """Copy the safetensors of a model folder into a model of the same architecture, in place.

    Values are cast to the model's own type and device. Nothing is copied unless everything fits.

    Raises FileNotFoundError if the folder lacks its configuration or its weights.
    Raises ValueError if the folder holds another architecture, or not exactly its weights; the message names what
        differs.
    """
    folder = Path(folder)
    check_structure(read_config(folder), model.config, folder)
    with no_progress_bars():
        read, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype="auto", use_safetensors=True, local_files_only=True, output_loading_info=True
        )
    wrong = {kind: sorted(map(str, names)) for kind, names in report.items() if kind in INCOMPLETE and names}
    if wrong:
        raise ValueError(f"{folder}: the weights do not fit the policy's model: {wrong}.")
    model.load_state_dict(read.state_dict())


def read_config(folder: Path) -> PretrainedConfig:
    """The configuration of a model folder; a FileNotFoundError if it has none, or no safetensors."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder}: holds no config.json; name a model folder.")
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"{folder}: holds no safetensors file; weights in other formats are not read.")
    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def check_structure(given: PretrainedConfig, running: PretrainedConfig, folder: Path) -> None:
    """Raise a ValueError that names what differs between a folder's configuration and that of the policy's model."""
    different = [
        f"{name} is {getattr(given, name, None)!r} there and {getattr(running, name, None)!r} here"
        for name in STRUCTURE
        if getattr(given, name, None) != getattr(running, name, None)
    ]
    if different:
        raise ValueError(f"{folder}: another architecture than the policy's: {'; '.join(different)}.")
