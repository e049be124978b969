"""Teaching a model answers by cross-entropy: how base models are made, from scratch or from a language model."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ..config import PretrainingConfig
from .model_folder import no_progress_bars, save_model

# Called after each update with the number of updates made, their total, and the loss in nats per answer token.
Progress = Callable[[int, int, float], None]

WARM_UP = 0.05
IGNORED = -100


def fit_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[tuple[str, str]],
    config: PretrainingConfig,
    seed: int,
    *,
    context: int,
    progress: Progress | None = None,
) -> None:
    """Train a model in place to answer prompts, by cross-entropy on the answers and their end.

    AdamW with a short warm-up and a cosine to zero; batches are drawn with replacement.

    model: On the device where it is to be trained.
    config: Its steps, batch size and learning rate.
    seed: Of the batches.
    context: Most tokens of an example.
    progress: Called after each update with updates made, their total, and the loss in nats per answer token.
    Raises ValueError if there are no examples, one has an empty prompt, or one is longer than the context.
    """
    inputs, labels = (each.to(model.device) for each in _encode(examples, tokenizer, context))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _learning_rate(step, config.steps))
    draw = torch.Generator().manual_seed(seed)
    for step in range(config.steps):
        rows = torch.randint(len(inputs), (config.batch_size,), generator=draw).to(model.device)
        loss = _answer_loss(model, inputs[rows], labels[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, config.steps, loss.item())
    model.eval()


def taught_folder(
    cache: str | Path,
    start: str | Path,
    examples: Sequence[tuple[str, str]],
    config: PretrainingConfig,
    seed: int,
    *,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Path:
    """The folder in ``cache`` of a language model that has been taught examples, made on the first call.

    start: Folder with the ``model.safetensors`` that teaching begins with; known by their content.
    examples, config, seed, progress: As for `fit_answers`.
    """
    with (Path(start) / "model.safetensors").open("rb") as weights:
        known = hashlib.file_digest(weights, "sha256").hexdigest()
    taught = config.model_dump(include={"steps", "batch_size", "learning_rate"})
    key = json.dumps([known, taught, seed, [list(each) for each in examples]], sort_keys=True)
    folder = Path(cache) / f"taught-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if not folder.is_dir():
        with no_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(start, trust_remote_code=False)
            model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32, trust_remote_code=False)
        context = model.config.max_position_embeddings
        fit_answers(model.to(device), tokenizer, examples, config, seed, context=context, progress=progress)
        save_model(folder, model, tokenizer)
    return folder


def _encode(
    examples: Sequence[tuple[str, str]], tokenizer: PreTrainedTokenizerBase, context: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels, right-padded, shape (examples, T); only answer and end have labels."""
    if not examples:
        raise ValueError("examples is empty: a model learns from prompts and answers.")
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
    filler = tokenizer.eos_token_id  # behind what has labels
    inputs = torch.tensor([row + [filler] * (width - len(row)) for row in rows])
    positions = torch.arange(width)
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    answered = (positions >= torch.tensor(starts)[:, None]) & (positions < lengths)
    return inputs, torch.where(answered, inputs, IGNORED)


def _answer_loss(model: PreTrainedModel, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
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
