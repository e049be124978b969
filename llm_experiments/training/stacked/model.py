"""The forward pass of several Qwen2 models of one shape at once: batched matrix products, the runs first.

It gives the logits that transformers gives (the tests compare), for prompts of one length, without padding. Batched
products over stacked parameters are also what ``torch.func.vmap`` makes of transformers' own modules, with more passes
over memory between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import AutoConfig, Qwen2Config

Parameters = Mapping[str, torch.Tensor]
Cache = list[tuple[torch.Tensor, torch.Tensor]]
CONTEXT = 256
TIED = "lm_head.weight"


@dataclass(frozen=True)
class StackedQwen2:
    """Shape of the models; their parameters are an argument of each call.

    Attributes
    ----------
    config : transformers.Qwen2Config
        With tied embeddings and without a sliding window.
    """

    config: Qwen2Config

    def __post_init__(self):
        config = self.config
        if config.model_type != "qwen2" or not config.tie_word_embeddings or config.use_sliding_window:
            raise ValueError(
                f"model of type {config.model_type!r}: stacked runs take Qwen2 models with tied embeddings and full "
                "attention, such as the model tiny."
            )

    @classmethod
    def load(cls, folders: Sequence[str | Path]) -> tuple[StackedQwen2, dict[str, torch.Tensor]]:
        """The shape and the stacked parameters of one model folder for each run, in float32.

        Raises
        ------
        ValueError
            If there is none, or they are not of one shape.
        """
        if not folders:
            raise ValueError("folders is empty: name a model folder for each run.")
        model = cls(AutoConfig.from_pretrained(folders[0], trust_remote_code=False))
        weights = [load_file(Path(folder) / "model.safetensors") for folder in folders]
        shapes = [{name: each.shape for name, each in one.items()} for one in weights]
        if any(each != shapes[0] for each in shapes):
            raise ValueError("folders: the models are not of one shape; stack those that are.")
        return model, {name: torch.stack([one[name].float() for one in weights]) for name in weights[0] if name != TIED}

    def logits(
        self, parameters: Parameters, tokens: torch.Tensor, *, skip: int = 0, cache: Cache | None = None
    ) -> torch.Tensor:
        """Logits of the next token, shape (runs, rows, T - skip, vocabulary).

        Parameters
        ----------
        parameters : mapping of str to Tensor
            Names as in the model folder, each with the runs first.
        tokens : Tensor of int, shape (runs, rows, T)
        skip : int
            First positions whose logits are not asked for.
        cache : list, optional
            Keys and values of the tokens before these, added to; an empty list at the first call.

        Returns
        -------
        Tensor
        """
        config = self.config
        runs, rows, length = tokens.shape
        embedding = parameters["model.embed_tokens.weight"]
        vocabulary, width = embedding.shape[1:]
        offset = torch.arange(runs)[:, None, None] * vocabulary
        x = F.embedding(tokens + offset, embedding.reshape(-1, width)).view(runs, rows * length, width)
        start = cache[0][0].shape[2] if cache else 0
        turn = self._cosine[start : start + length], self._sine[start : start + length]
        for number in range(config.num_hidden_layers):
            layer = _Layer(parameters, f"model.layers.{number}.")
            x = x + self._attention(layer, self._norm(x, layer["input_layernorm.weight"]), rows, turn, number, cache)
            gate, up = _linear(
                self._norm(x, layer["post_attention_layernorm.weight"]),
                torch.cat([layer["mlp.gate_proj.weight"], layer["mlp.up_proj.weight"]], 1),
            ).chunk(2, -1)
            x = x + _linear(F.silu(gate) * up, layer["mlp.down_proj.weight"])
        x = x.view(runs, rows, length, width)[:, :, skip:].reshape(runs, -1, width)
        final = _linear(self._norm(x, parameters["model.norm.weight"]), embedding)
        return final.view(runs, rows, length - skip, vocabulary)

    def _attention(
        self,
        layer: _Layer,
        x: torch.Tensor,
        rows: int,
        turn: tuple[torch.Tensor, torch.Tensor],
        number: int,
        cache: Cache | None,
    ) -> torch.Tensor:
        runs, _, width = x.shape
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        weight, bias = (
            torch.cat([layer[f"self_attn.{n}_proj.{part}"] for n in "qkv"], 1) for part in ("weight", "bias")
        )
        mixed = _linear(x, weight, bias).view(runs * rows, -1, heads + 2 * groups, self._head).transpose(1, 2)
        turned = _rotated(mixed[:, : heads + groups], *turn)
        query, key, value = turned[:, :heads], turned[:, heads:], mixed[:, heads + groups :]
        first = not cache or len(cache) <= number
        if cache is not None:
            if first:
                cache.append((key, value))
            else:
                key, value = (torch.cat([old, new], 2) for old, new in zip(cache[number], (key, value), strict=True))
                cache[number] = key, value
        repeat = heads // groups
        seen = F.scaled_dot_product_attention(
            query, key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1), is_causal=first
        )
        return _linear(seen.transpose(1, 2).reshape(runs, -1, width), layer["self_attn.o_proj.weight"])

    def _norm(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], eps=self.config.rms_norm_eps) * scale[:, None]

    @property
    def _head(self) -> int:
        return self.config.hidden_size // self.config.num_attention_heads

    @cached_property
    def _angles(self) -> torch.Tensor:
        theta = self.config.rope_parameters["rope_theta"]
        speed = 1.0 / theta ** (torch.arange(0, self._head, 2).float() / self._head)
        return torch.outer(torch.arange(CONTEXT).float(), speed).repeat(1, 2)

    @cached_property
    def _cosine(self) -> torch.Tensor:
        return self._angles.cos()

    @cached_property
    def _sine(self) -> torch.Tensor:
        return self._angles.sin()


@dataclass(frozen=True)
class _Layer:
    parameters: Parameters
    prefix: str

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.parameters[self.prefix + name]


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Each run's own linear map: x (runs, N, in), weight (runs, out, in), bias (runs, out)."""
    turned = weight.transpose(1, 2)
    return torch.bmm(x, turned) if bias is None else torch.baddbmm(bias[:, None], x, turned)


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat([-right, left], -1) * sine
