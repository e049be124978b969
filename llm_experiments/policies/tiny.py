"""A character-level model of about a million parameters, trained from scratch on prompts and answers."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from ..config import PretrainingConfig
from .model_folder import save_model

# Called after each update with the number of updates made, their total, and the loss in nats per answer token.
Progress = Callable[[int, int, float], None]

END, PAD = "<|endoftext|>", "<|pad|>"
WARM_UP = 0.05
IGNORED = -100


@dataclass(frozen=True)
class TinySize:
    """Shape of the model; the default has about a million parameters.

    Attributes
    ----------
    width, layers, heads, key_value_heads, feed_forward, context : int
    """

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
    """Train a model from scratch to answer prompts, by cross-entropy on the answers and their end.

    AdamW with a short warm-up and a cosine to zero; batches are drawn with replacement. One seed gives the same weights
    on one machine.

    Parameters
    ----------
    examples : sequence of (prompt, answer)
    config : PretrainingConfig
    seed : int
    size : TinySize, optional
        In place of the configuration's.
    device : str or torch.device
    progress : callable, optional
        Called after each update with updates made, their total, and the loss in nats per answer token.

    Raises
    ------
    ValueError
        If there are no examples, one has an empty prompt, or one is longer than the model's context.
    """
    size = size or TinySize.of(config)
    tokenizer = tiny_tokenizer()
    inputs, labels = _encode(examples, tokenizer, size.context)
    inputs, labels = inputs.to(device), labels.to(device)
    model = tiny_model(tokenizer, seed, size).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate(step, config.steps))
    draw = torch.Generator().manual_seed(seed)
    for step in range(config.steps):
        rows = torch.randint(len(inputs), (config.batch_size,), generator=draw).to(device)
        loss = _answer_loss(model, inputs[rows], labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, config.steps, loss.item())
    return model.eval(), tokenizer


def tiny_folder(
    cache: str | Path,
    examples: Sequence[tuple[str, str]],
    config: PretrainingConfig,
    seed: int,
    *,
    size: TinySize | None = None,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Path:
    """The folder in ``cache`` of the model that `pretrain` makes of these arguments, trained on the first call."""
    size = size or TinySize.of(config)
    key = json.dumps([config.model_dump(), asdict(size), seed, [list(each) for each in examples]], sort_keys=True)
    folder = Path(cache) / f"tiny-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        save_model(folder, *pretrain(examples, config, seed, size=size, device=device, progress=progress))
    return folder


def _encode(
    examples: Sequence[tuple[str, str]], tokenizer: Qwen2Tokenizer, context: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels, right-padded, shape (examples, T); only answer and end have labels."""
    if not examples:
        raise ValueError("examples is empty: the tiny model is trained from scratch and needs prompts and answers.")
    rows, starts = [], []
    prompts, answers = zip(*examples, strict=True)
    encoded = (tokenizer(list(texts)).input_ids for texts in (prompts, answers))
    for prompt, prompt_ids, answer_ids in zip(prompts, *encoded, strict=True):
        row = [*prompt_ids, *answer_ids, tokenizer.eos_token_id]
        if not prompt_ids or len(row) > context:
            raise ValueError(
                f"example {prompt!r}: {len(row)} tokens, the prompt {len(prompt_ids)}; allowed are 1 to {context}."
            )
        rows.append(row)
        starts.append(len(prompt_ids))
    width = max(map(len, rows))
    inputs = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
    positions = torch.arange(width)
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    answered = (positions >= torch.tensor(starts)[:, None]) & (positions < lengths)
    return inputs, torch.where(answered, inputs, IGNORED)


def _answer_loss(model: Qwen2ForCausalLM, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    width = int((labels != IGNORED).any(0).nonzero().max()) + 1
    inputs, labels = inputs[:, : width - 1], labels[:, 1:width]
    logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def _learning_rate(step: int, steps: int) -> float:
    """Factor of the learning rate: linear warm-up, then a cosine to zero."""
    warm_up = max(1, round(WARM_UP * steps))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))
