"""Stable ids of prompts, and a check that given ids are stable: a wrong past would be used silently."""

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

# How many different prompts must have come back, all under new ids, before the ids count as unstable.
RETURNS_BEFORE_REFUSAL = 16


class UnstablePromptIds(ValueError):
    """The error for ids that do not identify prompts: one id for several prompts, or new ids at each visit."""


def hash_prompt(prompt: Any) -> str:
    """A stable id computed from the prompt itself, the same in every process: 32 hexadecimal digits (BLAKE2b).

    A prompt is text, token ids (a list, array or tensor; without padding) or chat messages; a TypeError for anything
    else. Bytes and images within messages (PIL's, or objects with its ``tobytes``, ``mode`` and ``size``) are hashed by
    content.

    Examples
    --------
    >>> hash_prompt("2+2=") == hash_prompt("2+2="), hash_prompt("2+2=") == hash_prompt("2+3=")
    (True, False)
    >>> hash_prompt([{"role": "user", "content": "2+2="}]) == hash_prompt([{"content": "2+2=", "role": "user"}])
    True
    """
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    try:
        if prompt is None or isinstance(prompt, int | float):
            raise TypeError
        canonical = _CANONICAL.encode(prompt)
    except TypeError:
        raise TypeError(
            f"prompt must be text, token ids or chat messages, got {type(prompt).__name__}; give an id of your own."
        ) from None
    return _digest(canonical.encode("utf-8", "surrogatepass"))


class IdentityCheck:
    """A check that each id belongs to one prompt, and that prompts return under known ids.

    Ids are random or keep counting if no id was ever seen at two steps, and more than half of the different prompts so
    far, at least `RETURNS_BEFORE_REFUSAL`, returned, each under a new id. If some texts stand in many rows, these few
    return under new ids, but most do not, and in the second epoch ids repeat. It starts again after a resume.
    """

    def __init__(self) -> None:
        self._name_of: dict[Hashable, str] = {}  # id -> hash of its prompt
        self._last_seen: dict[str, int] = {}  # hash -> step
        self._returned: set[str] = set()  # hashes that came back under a new id
        self._repeats = False  # whether an id was seen at two steps

    def check(self, ids: Sequence[Hashable], hashes: Sequence[str], step: int) -> None:
        """Check the ids of one step's N samples against the `hash_prompt` of their prompts."""
        if len(ids) != len(hashes):
            raise ValueError(f"ids and hashes must have the same length, got {len(ids)} and {len(hashes)}.")
        pairs: dict[Hashable, str] = {}
        for key, name in dict.fromkeys(zip(ids, hashes, strict=True)):
            if key is None:
                raise UnstablePromptIds("a prompt id is missing: " + FIX)
            if pairs.setdefault(key, name) != name or self._name_of.get(key, name) != name:
                raise UnstablePromptIds(f"prompt id {key!r} names two prompts: " + FIX)
        back = {key: name for key, name in pairs.items() if self._last_seen.get(name, step) < step}
        repeats = self._repeats or any(key in self._name_of for key in back)
        returned = set() if repeats else self._returned.union(back.values())
        n_seen = len(self._last_seen) + len(set(pairs.values()).difference(self._last_seen))
        if len(returned) >= RETURNS_BEFORE_REFUSAL and 2 * len(returned) > n_seen:
            raise UnstablePromptIds(
                f"{len(returned)} of {n_seen} prompts came back, every one under a new id: these ids are random or "
                "keep counting. " + FIX
            )
        self._returned, self._repeats = returned, repeats
        self._name_of |= pairs
        self._last_seen |= dict.fromkeys(pairs.values(), step)


FIX = (
    "give every prompt an id of its own that stays the same through the run (source, split and index of its row), "
    "or kaestat.integrations.shared.prompt_ids.hash_prompt(prompt)."
)


def hash_prompts(prompts: Iterable[Any]) -> list[str]:
    """`hash_prompt` of each prompt; equal texts are hashed once."""
    text = cache(hash_prompt)
    return [text(prompt) if isinstance(prompt, str) else hash_prompt(prompt) for prompt in prompts]


def _plain(value: Any) -> Any:
    """What JSON cannot hold: media as digests, arrays and tensors as lists."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _digest(bytes(value))
    if all(hasattr(value, name) for name in ("tobytes", "mode", "size")):
        palette = getattr(value, "getpalette", lambda: None)()  # pixels of PIL's mode P are numbers of its colours
        return _digest(f"{value.mode} {value.size}".encode(), bytes(palette or ()), value.tobytes())
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain)
