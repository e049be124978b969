"""A character-level model of about a million parameters, trained from scratch on prompts and answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from ..config import PretrainingConfig
from .model_folder import save_model
from .supervised import Progress, fit_answers

END, PAD = "<|endoftext|>", "<|pad|>"


@dataclass(frozen=True)
class TinySize:
    """Shape of the model; the default has about a million parameters."""

    width: int = 128
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 448
    context: int = 512

    @classmethod
    def of(cls, config: PretrainingConfig) -> TinySize:
        """The shape that a configuration asks for, in the default's proportions."""
        return cls(config.width, config.layers, feed_forward=config.width * cls.feed_forward // cls.width)


def tiny_tokenizer() -> Qwen2Tokenizer:
    """Bytes as tokens: a byte-level BPE without merges, an end and a padding token.

    That is what a folder of ``model_type: qwen2`` reloads its tokenizer as, so that it comes back the same.
    """
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(ByteLevel.alphabet()))}
    for special in (END, PAD):
        vocabulary[special] = len(vocabulary)
    return Qwen2Tokenizer(vocab=vocabulary, merges=[], unk_token=END, eos_token=END, pad_token=PAD)


def tiny_model(tokenizer: Qwen2Tokenizer, seed: int, size: TinySize | None = None) -> Qwen2ForCausalLM:
    """An untrained model; the same seed gives the same weights. Embeddings are tied, as in small Qwen2 models."""
    size = size or TinySize()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=size.width,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        max_position_embeddings=size.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config).to(torch.float32)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model


def pretrain(
    examples: Sequence[tuple[str, str]],
    config: PretrainingConfig,
    seed: int,
    *,
    size: TinySize | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> tuple[Qwen2ForCausalLM, Qwen2Tokenizer]:
    """Train a model from scratch to answer prompts; see `supervised.fit_answers`.

    One seed gives the same weights on one machine.

    size: In place of the configuration's.
    progress: Called after each update with updates made, their total, and the loss in nats per answer token.
    Raises ValueError if there are no examples, one has an empty prompt, or one is longer than the model's context.
    """
    size = size or TinySize.of(config)
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, seed, size).to(device)
    fit_answers(model, tokenizer, examples, config, seed, context=size.context, progress=progress)
    return model.eval(), tokenizer


def tiny_folder(
    cache: str | Path,
    examples: Sequence[tuple[str, str]],
    config: PretrainingConfig,
    seed: int,
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Path:
    """The folder in ``cache`` of the model that `pretrain` makes of these arguments, trained on the first call."""
    size = TinySize.of(config)
    key = json.dumps([config.model_dump(), asdict(size), seed, [list(each) for each in examples]], sort_keys=True)
    folder = Path(cache) / f"tiny-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        save_model(folder, *pretrain(examples, config, seed, device=device, progress=progress))
    return folder
