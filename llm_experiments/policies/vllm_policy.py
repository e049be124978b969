"""A policy that samples with vLLM; `vllm_engine` says how vLLM is installed, with a GPU and without.

vLLM samples faster than transformers' ``generate`` where completions are many or of unlike length, and does nothing
else: scores, gradients and updates are the transformers policy's. The two hold the weights each for itself, so after
every replacement `VllmPolicy.check_agreement` must say that they are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..seeding import seed_of
from .base import Completion, Policy
from .vllm_engine import end_engine, global_generators_kept, replace_weights, start_engine

if TYPE_CHECKING:
    from vllm.outputs import CompletionOutput

    from .transformers_policy import TransformersPolicy

# Mean absolute difference in nats per token that rounding explains, a single token's being at most LARGEST times that.
# Twice what a model of 135M parameters shows at temperature 0.6 in bfloat16, 15 times in float32: there a single
# update at a learning rate of 1e-6, which moves log-probabilities by 4e-3, is noticed; in bfloat16 it is not.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
LARGEST = 10


class VllmPolicy(Policy):
    """The sampling companion of a transformers policy: its tokenizer, prompts, end tokens, temperature and type.

    reference: The policy.
    folder: Model folder with the weights to start with.
    Raises ImportError if vLLM is not installed or cannot be imported; the message says how to install it.
    Raises FileNotFoundError if there is no model folder.
    """

    def __init__(self, reference: TransformersPolicy, folder: str | Path):
        self.dtype = str(reference.model.dtype).removeprefix("torch.")
        self._engine = start_engine(folder, reference.sampling, dtype=self.dtype)
        self.sampling = reference.sampling
        self.chat = reference.chat
        self.system = reference.system
        self.context = int(self._engine.model_config.max_model_len)
        self.tokenizer = reference.tokenizer
        self.eos_ids = reference.eos_ids

    def _sample_groups(self, prompts: list[tuple[int, ...]], n: int, seed: int) -> list[list[Completion]]:
        """All prompts in one queue."""
        from vllm import SamplingParams

        requests, params = [], []
        for k, prompt_ids in enumerate(prompts):
            for index in range(n):
                requests.append({"prompt_token_ids": list(prompt_ids)})
                params.append(
                    SamplingParams(
                        seed=seed_of(seed, "completion", k, index),
                        temperature=self.sampling.temperature,
                        max_tokens=self.sampling.max_new_tokens,
                        logprobs=0,
                        detokenize=False,
                        # Only our end tokens count, not those that the folder's generation settings may name.
                        ignore_eos=True,
                        stop_token_ids=list(self.eos_ids),
                    )
                )
        # What is cached decides which tokens are computed together, and rounding then which are drawn.
        self._engine.reset_prefix_cache()
        with global_generators_kept():
            outputs = self._engine.generate(requests, params, use_tqdm=False)
        drawn = [self._completion(output.outputs[0]) for output in outputs]
        return [drawn[start : start + n] for start in range(0, len(drawn), n)]

    def load_weights(self, checkpoint: str | Path) -> None:
        """Replace the weights by those of a model folder of the same architecture, in place.

        Call `check_agreement` afterwards.

        Raises FileNotFoundError, ValueError if there is no model folder, or it holds another architecture; the weights
            are then as they were.
        """
        replace_weights(self._engine, checkpoint)

    def close(self) -> None:
        """End the engine and give back its memory; the policy cannot be used any more."""
        end_engine(self._engine)
        del self._engine

    def check_agreement(self, reference: TransformersPolicy, prompts: Sequence[str], *, n: int = 4) -> None:
        """Make sure that this policy samples from the policy that ``reference`` scores.

        ``n`` completions of each prompt are sampled here and scored there; `TOLERANCE` is allowed between the two.

        reference: At the same weights.
        Raises RuntimeError if log-probabilities differ by more; the message says by how much, why that may be, and what
            to do.
        """
        differences = []
        for prompt, group in zip(prompts, self.sample_groups(prompts, n, seed=0), strict=True):
            scored = reference.score(prompt, group).log_probs
            differences += [
                np.subtract(each.log_probs, log_probs) for each, log_probs in zip(group, scored, strict=True)
            ]
        absolute = np.abs(np.concatenate(differences))
        mean, largest, allowed = absolute.mean(), absolute.max(), TOLERANCE[self.dtype]
        # Written so that a difference that is not a number fails too.
        if not (mean <= allowed and largest <= LARGEST * allowed):
            raise RuntimeError(
                f"vLLM and the scoring policy disagree on the log-probabilities of {absolute.size} tokens: by "
                f"{mean:.2g} nats on average and {largest:.2g} at most, where {allowed:.2g} and "
                f"{LARGEST * allowed:.2g} are allowed in {self.dtype}. Either the two were given different weights: "
                "call load_weights of both with the same folder; or vLLM kept old ones in place of those loaded last, "
                "as its packed linear layers on CPU can, an output layer tied to the embeddings above all: run the "
                "command again. Completions sampled since the last check are from another policy; discard them."
            )

    def _completion(self, output: CompletionOutput) -> Completion:
        token_ids = tuple(output.token_ids)
        log_probs = tuple(
            at_position[token].logprob for token, at_position in zip(token_ids, output.logprobs, strict=True)
        )
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Completion(token_ids, log_probs, text, finished=output.finish_reason == "stop")
