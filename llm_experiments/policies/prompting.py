"""What every policy of a model folder must agree on: the tokens of a prompt, and the tokens that end a completion."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str, *, chat: bool, system: str | None = None
) -> tuple[int, ...]:
    """Token ids of a prompt as the model sees it.

    prompt: What the user asks.
    chat: Whether it goes through the tokenizer's chat template, with the opening of the answer; else it is plain text
        with the special tokens that the tokenizer adds of itself.
    system: System message of the chat template. None leaves it to the template, which may have one of its own.
    Raises ValueError if ``chat`` is asked of a tokenizer without a template, ``system`` is given without ``chat``, or
        no token comes out.
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


def end_token_ids(
    tokenizer: PreTrainedTokenizerBase, shipped: int | Sequence[int] | None, *, chat: bool
) -> tuple[int, ...]:
    """Tokens that end a completion, the tokenizer's own first.

    shipped: ``eos_token_id`` of the model's generation settings; see `shipped_end_tokens`.
    chat: Whether the token that closes a turn of the chat template ends a completion too; base models often name
        another as their end.
    Raises ValueError if there are none; no completion would ever be finished.
    """
    named = shipped if isinstance(shipped, list | tuple) else [shipped]
    found = [tokenizer.eos_token_id, *named, *([_turn_end(tokenizer)] if chat else [])]
    ends = tuple(dict.fromkeys(int(each) for each in found if each is not None))
    if not ends:
        raise ValueError("neither the tokenizer nor the model names an end-of-sequence token; none would be reached.")
    return ends


def shipped_end_tokens(source: str | Path, **options: Any) -> int | list[int] | None:
    """``eos_token_id`` of a model's generation settings, else of its configuration.

    source: A model folder or hub id.
    **options: Of transformers' ``from_pretrained``.
    """
    from transformers import AutoConfig, GenerationConfig

    try:
        return GenerationConfig.from_pretrained(source, **options).eos_token_id
    except OSError:
        return AutoConfig.from_pretrained(source, trust_remote_code=False, **options).eos_token_id


def _turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token that the chat template puts behind an answer."""
    answer = "the answer"
    messages = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    ids = tokenizer(text[text.rindex(answer) + len(answer) :].lstrip(), add_special_tokens=False)["input_ids"]
    return ids[0] if ids and ids[0] in tokenizer.added_tokens_decoder else None
