"""Model folders: written whole or not at all, and loaded into a model that exists already."""

import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import AutoConfig, GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

# What must agree between two configurations for their weights to mean the same; names and shapes of the weights do not
# show a different rotary base or number of heads.
STRUCTURE = (
    "model_type",
    "hidden_act",
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "num_hidden_layers",
    "rms_norm_eps",
    "rope_parameters",
    "sliding_window",
    "tie_word_embeddings",
)
YOUNG = 60.0  # seconds in which a temporary folder may not have its lock yet


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

    What earlier calls for the same folder have left when they were killed is removed.
    """
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(folder)
    mark = secrets.token_hex(8)
    temporary = folder.with_name(f".{folder.name}.{mark}.tmp")
    temporary.mkdir()
    in_use = os.open(temporary, os.O_RDONLY)
    try:
        flock(in_use, LOCK_EX)
        yield temporary
        for path in temporary.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
        if folder.exists():
            # A directory cannot replace one that holds files, so the old one steps aside first.
            old = folder.with_name(f".{folder.name}.{mark}.old")
            os.replace(folder, old)
            try:
                os.replace(temporary, folder)
            except BaseException:
                os.replace(old, folder)
                raise
            shutil.rmtree(old)
        else:
            os.replace(temporary, folder)
    finally:
        os.close(in_use)
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove temporary siblings that nobody writes any more: their process, which held a lock on them, is gone."""
    for left in folder.parent.glob(f".{escape(folder.name)}.*.tmp"):
        with suppress(OSError):  # another call was quicker, or it is in use
            if time.time() - left.stat().st_mtime < YOUNG:
                continue
            unused = os.open(left, os.O_RDONLY)
            try:
                flock(unused, LOCK_EX | LOCK_NB)
                shutil.rmtree(left)
            finally:
                os.close(unused)


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
    Raises ValueError if the folder holds another architecture; the message names what differs.
    """
    folder = Path(folder)
    check_structure(read_config(folder), model.config, folder)
    targets = model.state_dict(keep_vars=True)
    files = _weight_files(folder)
    _check_tensors(targets, files, folder)
    with torch.no_grad():
        for path, names in files.items():
            with safe_open(path, framework="pt") as file:
                for name in names:
                    targets[name].copy_(file.get_tensor(name))


def _weight_files(folder: Path) -> dict[Path, list[str]]:
    """The tensors in each safetensors file of a model folder, sharded or not."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if index.is_file():
        paths = sorted({folder / name for name in json.loads(index.read_text())["weight_map"].values()})
    elif single.is_file():
        paths = [single]
    else:
        raise FileNotFoundError(
            f"{folder}: holds no model.safetensors; name a model folder. Weights in other formats are not read."
        )
    files = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            files[path] = list(file.keys())
    return files


def read_config(folder: Path) -> PretrainedConfig:
    """The configuration of a model folder; a FileNotFoundError if it has none."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder}: holds no config.json; name a model folder.")
    return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def check_structure(
    given: PretrainedConfig, running: PretrainedConfig, folder: Path, names: tuple[str, ...] = STRUCTURE
) -> None:
    """Raise a ValueError that names what differs between a folder's configuration and that of the policy's model."""
    different = [
        f"{name} is {getattr(given, name, None)!r} there and {getattr(running, name, None)!r} here"
        for name in names
        if getattr(given, name, None) != getattr(running, name, None)
    ]
    if different:
        raise ValueError(f"{folder}: another architecture than the policy's: {'; '.join(different)}.")


def _check_tensors(targets: dict[str, torch.Tensor], files: dict[Path, list[str]], folder: Path) -> None:
    """Every tensor of the file has its place, every weight of the model its tensor, all of one shape."""
    problems = []
    filled = set()
    for path, names in files.items():
        with safe_open(path, framework="pt") as file:
            for name in names:
                if name not in targets:
                    problems.append(f"{name} is unknown to the policy's model")
                    continue
                shape = tuple(file.get_slice(name).get_shape())
                if shape != tuple(targets[name].shape):
                    problems.append(f"{name} has shape {shape} there and {tuple(targets[name].shape)} here")
                filled.add(targets[name].data_ptr())
    # By memory, not by name: of tied weights the file holds one.
    problems += [f"{name} is missing" for name, target in targets.items() if target.data_ptr() not in filled]
    if problems:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise ValueError(f"{folder}: the weights do not fit the policy's model: {shown}.")


def plain_generation_config(eos_ids: tuple[int, ...], pad_id: int, temperature: float) -> GenerationConfig:
    """Sampling of the full distribution: no top-k, top-p, penalties or other processors, whatever a model ships."""
    return GenerationConfig(
        do_sample=True, temperature=temperature, top_k=0, top_p=1.0, eos_token_id=list(eos_ids), pad_token_id=pad_id
    )
