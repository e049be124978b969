"""The parts of a decoder-only model whose scores can be taken layer by layer, and the choice of its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Decoder:
    """A causal language model taken apart.

    model: The whole model.
    body: From token ids to final hidden states.
    layers: Decoder layers, each a map of hidden states.
    norm: After the last layer.
    head: Output layer, from hidden states to logits.
    """

    model: nn.Module
    body: nn.Module
    embedding: nn.Embedding
    layers: tuple[nn.Module, ...]
    norm: nn.Module
    head: nn.Linear

    @classmethod
    def of(cls, model: nn.Module) -> Decoder:
        """Take the model apart.

        Raises ValueError if it is not built as Llama and Qwen2 are; the message tells which part was not found.
        """
        body = getattr(model, "model", None)
        get_head = getattr(model, "get_output_embeddings", lambda: None)
        found = {
            "model.model": (body, nn.Module),
            "model.model.embed_tokens": (getattr(body, "embed_tokens", None), nn.Embedding),
            "model.model.layers": (getattr(body, "layers", None), nn.ModuleList),
            "model.model.norm": (getattr(body, "norm", None), nn.Module),
            "model.get_output_embeddings() (lm_head)": (get_head(), nn.Linear),
        }
        for name, (part, kind) in found.items():
            if not isinstance(part, kind):
                raise ValueError(
                    f"model is a {type(model).__name__} whose {name} is {type(part).__name__}, not {kind.__name__}: "
                    "scores are taken layer by layer and need a decoder-only model built as Llama or Qwen2 is."
                )
        body, embedding, layers, norm, head = (part for part, _ in found.values())
        return cls(model, body, embedding, tuple(layers), norm, head)

    @property
    def tied(self) -> bool:
        """Whether the output layer's weight is the embedding matrix."""
        return self.head.weight is self.embedding.weight

    @property
    def dtype(self) -> torch.dtype:
        return self.head.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.head.weight.device


@dataclass(frozen=True)
class LinearPart:
    """A Linear module with chosen parameters."""

    name: str
    module: nn.Linear
    weight: bool
    bias: bool

    @property
    def width(self) -> int:
        """Elements to keep per token: the module's input and the gradient at its output."""
        return self.module.in_features * self.weight + self.bias + self.module.out_features


@dataclass(frozen=True)
class DirectPart:
    """Another module with chosen parameters of its own, such as an RMSNorm."""

    name: str
    module: nn.Module
    parameters: tuple[str, ...]


Part = LinearPart | DirectPart


@dataclass(frozen=True)
class Selection:
    """The parameters that scores are taken with respect to.

    layers: By decoder layer.
    head_weight, head_bias, embedding: With tied weights ``head_weight`` and ``embedding`` are one parameter and go
        together.
    """

    layers: tuple[tuple[Part, ...], ...]
    norm: tuple[Part, ...]
    head_weight: bool
    head_bias: bool
    embedding: bool
    tied: bool
    n_parameters: int

    @property
    def lowest(self) -> int:
        """The first layer that gradients must reach; the number of layers if they need not reach any."""
        if self.embedding:
            return 0
        return next((index for index, parts in enumerate(self.layers) if parts), len(self.layers))


def select(decoder: Decoder, parameters: str) -> Selection:
    """Choose parameters.

    parameters: ``"all"``; ``"final_block"``, the last decoder layer and the output layer (which is the embedding matrix
        too where they are tied; the norm between them is left out, as in the paper's 7B diagnostic); or a regular
        expression that is searched for in the names of ``model.named_parameters()``. Tied parameters go by either name.
    Raises ValueError if no name matches, or a chosen parameter belongs to no part whose scores can be taken.
    """
    chosen = chosen_parameters(decoder, parameters)
    reached: set[int] = set()

    def has(parameter: torch.Tensor | None) -> bool:
        if parameter is None or id(parameter) not in chosen:
            return False
        reached.add(id(parameter))
        return True

    selection = Selection(
        layers=tuple(tuple(_parts(layer, has)) for layer in decoder.layers),
        norm=tuple(_parts(decoder.norm, has)),
        head_weight=has(decoder.head.weight),
        head_bias=has(decoder.head.bias),
        embedding=has(decoder.embedding.weight),
        tied=decoder.tied,
        n_parameters=sum(parameter.numel() for _, parameter in chosen.values()),
    )
    missed = [name for key, (name, _) in chosen.items() if key not in reached]
    if missed:
        raise ValueError(
            f"parameters = {parameters!r} chooses {', '.join(missed[:5])}, outside the decoder layers, final norm, "
            "output layer and token embedding, whose scores can be taken; choose others."
        )
    return selection


def chosen_parameters(decoder: Decoder, parameters: str) -> dict[int, tuple[str, torch.Tensor]]:
    """Names and tensors of the chosen parameters by identity, so that tied ones count once; see `select`."""
    named = list(decoder.model.named_parameters(remove_duplicate=False))
    if parameters == "all":
        wanted = named
    elif parameters == "final_block":
        inside = {id(parameter) for module in (decoder.layers[-1], decoder.head) for parameter in module.parameters()}
        wanted = [(name, parameter) for name, parameter in named if id(parameter) in inside]
    else:
        try:
            pattern = re.compile(parameters)
        except re.error as error:
            raise ValueError(f"parameters = {parameters!r} is not a regular expression: {error}.") from None
        wanted = [(name, parameter) for name, parameter in named if pattern.search(name)]
        if not wanted:
            names = "\n  ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name, _ in named))
            raise ValueError(f"parameters = {parameters!r} matches none of the model's parameters:\n  {names}")
    return {id(parameter): (name, parameter) for name, parameter in reversed(wanted)}


def _parts(root: nn.Module, has) -> Iterator[Part]:
    for name, module in root.named_modules():
        if type(module) is nn.Linear:
            weight, bias = has(module.weight), has(module.bias)
            if weight or bias:
                yield LinearPart(name, module, weight, bias)
        else:
            own = tuple(key for key, parameter in module.named_parameters(recurse=False) if has(parameter))
            if own:
                yield DirectPart(name, module, own)
