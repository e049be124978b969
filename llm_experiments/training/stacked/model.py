"""The forward pass of several language models of one shape at once: batched matrix products, the runs first.

It gives the logits that transformers gives (the tests compare), for prompts of one length, without padding. Batched
products over stacked parameters are also what ``torch.func.vmap`` makes of transformers' own modules. There a forward
and backward pass takes 1.04 to 1.11 times as long, sampling 2.3 times (four runs of 32 rows, on a CPU), and what every
parameter saw, from which `score_norms` gets its norms, stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers import AutoConfig, LlamaConfig, Qwen2Config

Parameters = Mapping[str, torch.Tensor]
Cache = list[tuple[torch.Tensor, torch.Tensor]]
CONTEXT = 256
TIED = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
FAMILIES = ("llama", "qwen2")


@dataclass(frozen=True, eq=False)
class Tap:
    """What one parameter saw in a forward pass, and what came of it.

    inputs: Tensor, shape (runs, N, in), or (runs, N) of int for embeddings.
    outputs (Tensor, shape (runs, N, out)): Of the graph.
    name: Of the weight.
    """

    kind: Literal["linear", "biased", "scale", "embedding", "logits"]
    inputs: torch.Tensor
    outputs: torch.Tensor
    name: str


@dataclass(frozen=True)
class StackedDecoder:
    """Shape of the models; their parameters are an argument of each call.

    config: With tied embeddings, plain rotary embeddings, and without a sliding window.
    """

    config: LlamaConfig | Qwen2Config

    def __post_init__(self):
        config = self.config
        if (
            config.model_type not in FAMILIES
            or not config.tie_word_embeddings
            or getattr(config, "use_sliding_window", False)
            or getattr(config, "mlp_bias", False)
            or config.rope_parameters.get("rope_type", "default") != "default"
        ):
            raise ValueError(
                f"model of type {config.model_type!r}: stacked runs take Llama and Qwen2 models with tied embeddings, "
                "plain rotary embeddings and full attention, such as the models tiny and smollm2."
            )

    @classmethod
    def load(
        cls, folders: Sequence[str | Path], device: str | torch.device = "cpu"
    ) -> tuple[StackedDecoder, dict[str, torch.Tensor]]:
        """The shape and the stacked parameters of one model folder for each run, in float32.

        Raises ValueError if there is none, or they are not of one shape.
        """
        if not folders:
            raise ValueError("folders is empty: name a model folder for each run.")
        model = cls(AutoConfig.from_pretrained(folders[0], trust_remote_code=False))
        read = {folder: load_file(Path(folder) / "model.safetensors", device=str(device)) for folder in {*folders}}
        weights = [read[folder] for folder in folders]
        shapes = [{name: each.shape for name, each in one.items()} for one in weights]
        if any(each != shapes[0] for each in shapes):
            raise ValueError("folders: the models are not of one shape; stack those that are.")
        return model, {name: torch.stack([one[name].float() for one in weights]) for name in weights[0] if name != TIED}

    def logits(
        self,
        parameters: Parameters,
        tokens: torch.Tensor,
        *,
        skip: int = 0,
        cache: Cache | None = None,
        taps: list[Tap] | None = None,
    ) -> torch.Tensor:
        """Logits of the next token, shape (runs, rows, T - skip, vocabulary).

        parameters: Names as in the model folder, each with the runs first.
        tokens: Tensor of int, shape (runs, rows, T).
        skip: First positions whose logits are not asked for.
        cache: Keys and values of the tokens before these, added to; an empty list at the first call.
        taps: What every parameter saw is added to it.
        Raises ValueError if a row has more tokens than `CONTEXT`.
        """
        runs, rows, length = tokens.shape
        embedding = parameters[EMBEDDING]
        vocabulary, width = embedding.shape[1:]
        tapped = _Tapped(parameters, self.config.rms_norm_eps, taps)
        x = tapped.embedded(tokens.flatten(1), embedding)
        start = cache[0][0].shape[2] if cache else 0
        if start + length > CONTEXT:
            raise ValueError(f"tokens: {start + length} in a row; stacked runs take at most {CONTEXT}.")
        turn = tuple(each[start : start + length].to(x.device) for each in self._turns)
        for number in range(self.config.num_hidden_layers):
            layer = f"model.layers.{number}."
            x = x + self._attention(tapped, layer, tapped.norm(x, f"{layer}input_layernorm"), rows, turn, number, cache)
            mlp = tapped.norm(x, f"{layer}post_attention_layernorm")
            gate, up = (tapped.linear(mlp, f"{layer}mlp.{name}_proj") for name in ("gate", "up"))
            x = x + tapped.linear(F.silu(gate) * up, f"{layer}mlp.down_proj")
        x = x.view(runs, rows, length, width)[:, :, skip:].reshape(runs, -1, width)
        final = tapped.logits(tapped.norm(x, "model.norm"), embedding)
        return final.view(runs, rows, length - skip, vocabulary)

    def _attention(
        self,
        tapped: _Tapped,
        layer: str,
        x: torch.Tensor,
        rows: int,
        turn: tuple[torch.Tensor, ...],
        number: int,
        cache: Cache | None,
    ) -> torch.Tensor:
        runs, _, width = x.shape
        shared = self.config.num_attention_heads // self.config.num_key_value_heads  # keys and values
        mixed = (tapped.linear(x, f"{layer}self_attn.{name}_proj") for name in "qkv")
        query, key, value = (
            each.view(runs * rows, -1, each.shape[-1] // self._head, self._head).transpose(1, 2) for each in mixed
        )
        query, key = _rotated(query, *turn), _rotated(key, *turn)
        first = not cache or len(cache) <= number
        if cache is not None:
            if first:
                cache.append((key, value))
            else:
                key, value = (torch.cat([old, new], 2) for old, new in zip(cache[number], (key, value), strict=True))
                cache[number] = key, value
        grouped = not query.is_cuda  # whose kernels for 32-bit numbers take no groups
        if not grouped:
            key, value = (each.repeat_interleave(shared, 1) for each in (key, value))
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=first, enable_gqa=grouped)
        return tapped.linear(seen.transpose(1, 2).reshape(runs, -1, width), f"{layer}self_attn.o_proj")

    @property
    def _head(self) -> int:
        return self.config.hidden_size // self.config.num_attention_heads

    @cached_property
    def _turns(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of each place's angles, the sine's first half negative."""
        theta = self.config.rope_parameters["rope_theta"]
        speed = 1.0 / theta ** (torch.arange(0, self._head, 2).float() / self._head)
        angles = torch.outer(torch.arange(CONTEXT).float(), speed).repeat(1, 2)
        return angles.cos(), angles.sin() * torch.tensor([-1.0, 1.0]).repeat_interleave(self._head // 2)


@dataclass(frozen=True)
class _Tapped:
    """What parameters do; each use is noted if ``taps`` is a list."""

    parameters: Parameters
    eps: float
    taps: list[Tap] | None

    def embedded(self, tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """tokens (runs, N), weight (runs, vocabulary, width)."""
        runs, vocabulary, width = weight.shape
        offset = torch.arange(runs, device=tokens.device)[:, None] * vocabulary
        return self._noted("embedding", tokens, F.embedding(tokens + offset, weight.reshape(-1, width)), EMBEDDING)

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        even = F.rms_norm(x, x.shape[-1:], eps=self.eps)
        return self._noted("scale", even, even * self.parameters[f"{name}.weight"][:, None], f"{name}.weight")

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """Each run's own linear map: x (runs, N, in)."""
        weight, bias = self.parameters[f"{name}.weight"].transpose(1, 2), self.parameters.get(f"{name}.bias")
        if bias is None:
            return self._noted("linear", x, torch.bmm(x, weight), f"{name}.weight")
        return self._noted("biased", x, torch.baddbmm(bias[:, None], x, weight), f"{name}.weight")

    def logits(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self._noted("logits", x, torch.bmm(x, weight.transpose(1, 2)), EMBEDDING)

    def _noted(
        self,
        kind: Literal["linear", "biased", "scale", "embedding", "logits"],
        inputs: torch.Tensor,
        outputs: torch.Tensor,
        name: str,
    ) -> torch.Tensor:
        if self.taps is not None:
            self.taps.append(Tap(kind, inputs, outputs, name))
        return outputs


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    return x * cosine + x.roll(x.shape[-1] // 2, -1) * sine
