"""What every policy of a model folder must agree on: the tokens of a prompt, and the tokens that end a completion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat: bool, system: str | None = None
) -> tuple[int, ...]:
    """Token ids of a prompt as the model sees it.

    Parameters
    ----------
    tokenizer : transformers tokenizer
    prompt : str
        What the user asks.
    chat : bool
        Whether it goes through the tokenizer's chat template, with the opening of the answer; else it is plain text
        with the special tokens that the tokenizer adds of itself.
    system : str, optional
        System message of the chat template. None leaves it to the template, which may have one of its own.

    Raises
    ------
    ValueError
        If ``chat`` is asked of a tokenizer without a template, ``system`` is given without ``chat``, or no token
        comes out.
    """
    if chat:
        if not tokenizer.chat_template:
            raise ValueError("chat = True, but the tokenizer has no chat template: set model.chat to false.")
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": prompt})
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        token_ids = tokenizer(text, add_special_tokens=False)["input_ids"]  # the template writes them itself
    elif system is not None:
        raise ValueError(f"system = {system!r} needs the chat template: set model.chat to true, or leave system out.")
    else:
        token_ids = tokenizer(prompt)["input_ids"]
    if not token_ids:
        raise ValueError(f"prompt {prompt!r} has no token; a completion needs at least one to start from.")
    return tuple(token_ids)


def end_token_ids(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Tokens that end a completion: those of the folder's ``generation_config.json``, else of its ``config.json``,
    and the tokenizer's own.

    Raises
    ------
    ValueError
        If there are none; no completion would ever be finished.
    """
    ends = set() if tokenizer.eos_token_id is None else {tokenizer.eos_token_id}
    for name in ("generation_config.json", "config.json"):
        path = Path(folder) / name
        named = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
        if named is not None:
            ends.update(named if isinstance(named, list) else [named])
            break
    if not ends:
        raise ValueError(f"{folder}: neither the tokenizer nor the configuration names an end-of-sequence token.")
    return tuple(sorted(ends))
