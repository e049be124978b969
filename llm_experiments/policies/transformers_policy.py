"""A policy run by transformers, on CPU or GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from . import token_scores
from .base import Completion, Policy, SamplingSettings
from .model_folder import load_weights, plain_generation_config, save_model
from .prompting import end_token_ids
from .token_scores import TokenScores


class TransformersPolicy(Policy):
    """A causal language model of transformers with its tokenizer.

    The policy owns the model: dropout is off, and the generation settings that the model came with (top-k, penalties,
    suppressed tokens) are replaced, since scores are exact only where the full distribution is sampled.

    chat: Whether prompts go through the tokenizer's chat template.
    system: System message of the chat template; None leaves it to the template.
    eos_ids: Tokens that end a completion: the model's and tokenizer's own, and with ``chat`` the one that closes a
        turn.
    Raises ValueError if ``chat`` is asked of a tokenizer without a template, a system message is given without
        ``chat``, or no token ends a completion.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingSettings,
        *,
        chat: bool,
        system: str | None = None,
    ):
        if chat and not tokenizer.chat_template:
            raise ValueError("chat = True, but the tokenizer has no chat template; set chat to False.")
        if system is not None and not chat:
            raise ValueError(f"system = {system!r} needs chat = True: only a chat template has a system message.")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.sampling = sampling
        self.chat = chat
        self.system = system
        self.context = getattr(model.config, "max_position_embeddings", None)
        shipped = model.generation_config.eos_token_id if model.generation_config is not None else None
        self.eos_ids = end_token_ids(tokenizer, shipped, chat=chat)
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.eos_ids[0]
        self.model.generation_config = plain_generation_config(self.eos_ids, pad_id, sampling.temperature)

    def _sample_groups(self, prompts: list[tuple[int, ...]], n: int, seed: int) -> list[list[Completion]]:
        """Prompts of the same number of tokens share batches."""
        groups: list[list[Completion]] = [[] for _ in prompts]
        size, index = self.sampling.batch_size, 0
        for positions in _by_length(prompts):
            rows = [position for position in positions for _ in range(n)]
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                drawn = self._sample_batch([prompts[k] for k in part], np.random.SeedSequence([seed, index]))
                for position, completion in zip(part, drawn, strict=True):
                    groups[position].append(completion)
                index += 1
        return groups

    def at_temperature(self, temperature: float | None) -> TransformersPolicy:
        """This policy, sharing its weights, at another temperature; None takes its own."""
        if temperature in (None, self.sampling.temperature):
            return self
        other = copy(self)
        other.sampling = replace(self.sampling, temperature=temperature)
        return other

    def greedy(self, prompts: Sequence[str]) -> list[Completion]:
        """The likeliest token at every place, for each prompt; log-probabilities are not recorded.

        Raises ValueError if prompt and completion could exceed the model's context.
        """
        encoded = self.encode_all(prompts)
        answers: dict[int, Completion] = {}
        config = GenerationConfig(
            do_sample=False,
            top_k=50,  # what transformers takes for "not given"; 0, of sampling, would be complained about
            eos_token_id=list(self.eos_ids),
            pad_token_id=self.model.generation_config.pad_token_id,
            max_new_tokens=self.sampling.max_new_tokens,
        )
        for rows in _by_length(encoded):
            for start in range(0, len(rows), self.sampling.batch_size):
                part = rows[start : start + self.sampling.batch_size]
                inputs = torch.tensor([encoded[k] for k in part], device=self.model.device)
                with _evaluating(self.model), torch.no_grad():
                    found = self.model.generate(
                        inputs, attention_mask=torch.ones_like(inputs), generation_config=config
                    )
                for position, tokens in zip(part, found[:, inputs.shape[1] :].tolist(), strict=True):
                    answers[position] = self._completion(tokens, [])
        return [answers[position] for position in range(len(prompts))]

    def score(self, prompt: str, completions: Sequence[Completion | Sequence[int]]) -> TokenScores:
        """Log-probabilities and logit-level score norms of given completions; see `token_scores.token_scores`."""
        with _evaluating(self.model):
            return token_scores.token_scores(
                self.model, self.encode(prompt), completions, temperature=self.sampling.temperature
            )

    def completion_log_probs(
        self, prompt_ids: Sequence[int], completions: Sequence[Completion | Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Differentiable log-probabilities (N, T) and mask (N, T); see `token_scores.completion_log_probs`."""
        return token_scores.completion_log_probs(
            self.model, prompt_ids, completions, temperature=self.sampling.temperature
        )

    def load_weights(self, checkpoint: str | Path) -> None:
        """Replace the weights by those of a model folder (safetensors) of the same architecture.

        Raises FileNotFoundError, ValueError: See `model_folder.load_weights`; the weights are then as they were.
        """
        load_weights(self.model, checkpoint)

    def save(self, folder: str | Path) -> None:
        """Write a model folder that ``from_pretrained`` and vLLM load; interrupted, it leaves nothing behind."""
        save_model(folder, self.model, self.tokenizer)

    def _sample_batch(self, prompts: list[tuple[int, ...]], seeds: np.random.SeedSequence) -> list[Completion]:
        """One completion for each of the prompts, which have the same length and may repeat."""
        inputs = torch.tensor(prompts, device=self.model.device)
        width = inputs.shape[1]
        recorder = _TemperAndRecord(self.sampling.temperature)
        config = plain_generation_config(self.eos_ids, self.model.generation_config.pad_token_id, temperature=1.0)
        config.max_new_tokens = self.sampling.max_new_tokens
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        with torch.random.fork_rng(devices), _evaluating(self.model), torch.no_grad():
            torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
            sequences = self.model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=config,
                logits_processor=LogitsProcessorList([recorder]),
            )
        tokens = sequences[:, width:]
        rows = zip(tokens.tolist(), recorder.log_probs(tokens).tolist(), strict=True)
        return [self._completion(row, log_probs) for row, log_probs in rows]

    def _completion(self, tokens: list[int], log_probs: list[float]) -> Completion:
        """A row of generate's output without what follows the first end token."""
        ends = [position for position, token in enumerate(tokens) if token in self.eos_ids]
        length = ends[0] + 1 if ends else len(tokens)
        text = self.tokenizer.decode(tokens[:length], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Completion(tuple(tokens[:length]), tuple(log_probs[:length]), text, finished=bool(ends))


def _by_length(encoded: Sequence[Sequence[int]]) -> list[list[int]]:
    """Positions of prompts with the same number of tokens: padding would change the rounding of their logits."""
    positions: dict[int, list[int]] = {}
    for position, ids in enumerate(encoded):
        positions.setdefault(len(ids), []).append(position)
    return list(positions.values())


class _TemperAndRecord(LogitsProcessor):
    """Tempers the logits, and keeps the log-probability of each token drawn from them.

    One step's distribution is held at a time: asking ``generate`` for all logits would hold
    ``N * T * vocabulary`` numbers.
    """

    def __init__(self, temperature: float):
        self.temperature = temperature
        self.drawn: list[torch.Tensor] = []
        self.last: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.last is not None:
            self.drawn.append(self.last.gather(-1, input_ids[:, -1:]))
        tempered = scores / self.temperature
        self.last = tempered.log_softmax(-1)
        return tempered

    def log_probs(self, tokens: torch.Tensor) -> torch.Tensor:
        """Of the generated tokens, shape (N, T); of the last one only now, as no further step followed it."""
        drawn = self.drawn[: tokens.shape[1]]
        if len(drawn) < tokens.shape[1]:
            drawn = [*drawn, self.last.gather(-1, tokens[:, -1:])]
        return torch.cat(drawn, dim=1)


@contextmanager
def _evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Dropout off, as it was afterwards: training code may have switched the model to its training mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
