"""A policy run by transformers, on CPU or GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ..config import SamplingConfig
from . import token_scores
from .base import Completion, Policy
from .model_folder import load_weights, save_model
from .prompting import end_token_ids
from .token_scores import TokenScores

FULL_DISTRIBUTION = {"do_sample": True, "top_k": 0, "top_p": 1.0}


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
        sampling: SamplingConfig,
        *,
        chat: bool,
        system: str | None = None,
    ):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.sampling = sampling
        self.chat = chat
        self.system = system
        self.context = getattr(model.config, "max_position_embeddings", None)
        self.encode("?")  # refuses a chat template or a system message that cannot be
        shipped = model.generation_config.eos_token_id if model.generation_config is not None else None
        self.eos_ids = end_token_ids(tokenizer, shipped, chat=chat)
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.eos_ids[0]
        # Whatever a model ships for generation is replaced: no top-k, top-p, penalties or other processors.
        self.model.generation_config = self._generation(**FULL_DISTRIBUTION, temperature=sampling.temperature)

    def _sample_groups(self, prompts: list[tuple[int, ...]], n: int, seed: int) -> list[list[Completion]]:
        """Prompts of the same number of tokens share batches."""
        groups: list[list[Completion]] = [[] for _ in prompts]
        for index, part in enumerate(self._batches(prompts, n)):
            drawn = self._sample_batch([prompts[k] for k in part], np.random.SeedSequence([seed, index]))
            for position, completion in zip(part, drawn, strict=True):
                groups[position].append(completion)
        return groups

    def at_temperature(self, temperature: float | None) -> TransformersPolicy:
        """This policy, sharing its weights, at another temperature; None takes its own."""
        if temperature in (None, self.sampling.temperature):
            return self
        other = copy(self)
        other.sampling = self.sampling.model_copy(update={"temperature": temperature})
        return other

    def greedy(self, prompts: Sequence[str]) -> list[Completion]:
        """The likeliest token at every place, for each prompt; log-probabilities are not recorded.

        Raises ValueError if prompt and completion could exceed the model's context.
        """
        encoded = self.encode_all(prompts)
        answers: dict[int, Completion] = {}
        for part in self._batches(encoded, 1):
            # transformers takes a top_k of 50 for "not given", and complains about 0 in a greedy search.
            tokens = self._generate([encoded[k] for k in part], do_sample=False, top_k=50)
            answers |= zip(part, (self._completion(row, []) for row in tokens.tolist()), strict=True)
        return [answers[position] for position in range(len(prompts))]

    def score(self, prompt: str, completions: Sequence[Completion | Sequence[int]]) -> TokenScores:
        """Log-probabilities and logit-level score norms of given completions; see `token_scores.token_scores`."""
        with _evaluating(self.model):
            return token_scores.token_scores(
                self.model, self.encode(prompt), completions, temperature=self.sampling.temperature
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
        recorder = _TemperAndRecord(self.sampling.temperature)
        with torch.random.fork_rng([self.model.device] if self.model.device.type == "cuda" else []):
            torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
            tokens = self._generate(prompts, recorder, **FULL_DISTRIBUTION, temperature=1.0)  # the recorder tempers
        rows = zip(tokens.tolist(), recorder.log_probs(tokens).tolist(), strict=True)
        return [self._completion(row, log_probs) for row, log_probs in rows]

    def _generate(
        self, prompts: Sequence[Sequence[int]], *processors: LogitsProcessor, **settings: Any
    ) -> torch.Tensor:
        """Tokens after prompts of one length."""
        inputs = torch.tensor(prompts, device=self.model.device)
        config = self._generation(**settings, max_new_tokens=self.sampling.max_new_tokens)
        with _evaluating(self.model), torch.no_grad():
            found = self.model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=config,
                logits_processor=LogitsProcessorList(processors),
            )
        return found[:, inputs.shape[1] :]

    def _generation(self, **settings: Any) -> GenerationConfig:
        return GenerationConfig(**settings, eos_token_id=list(self.eos_ids), pad_token_id=self._pad_id)

    def _batches(self, prompts: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        """Positions of prompts, each ``n`` times, in batches of one length: padding would change logits' rounding."""
        by_length: dict[int, list[int]] = {}
        for position, ids in enumerate(prompts):
            by_length.setdefault(len(ids), []).extend([position] * n)
        size = self.sampling.batch_size
        return [rows[start : start + size] for rows in by_length.values() for start in range(0, len(rows), size)]

    def _completion(self, tokens: list[int], log_probs: list[float]) -> Completion:
        """A row of generate's output without what follows the first end token."""
        ends = [position for position, token in enumerate(tokens) if token in self.eos_ids]
        length = ends[0] + 1 if ends else len(tokens)
        text = self.tokenizer.decode(tokens[:length], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Completion(tuple(tokens[:length]), tuple(log_probs[:length]), text, finished=bool(ends))


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
