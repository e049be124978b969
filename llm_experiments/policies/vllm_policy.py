"""A policy that samples with vLLM; `vllm_engine` says how vLLM is installed, with a GPU and without.

vLLM samples faster than transformers' ``generate`` where completions are many or of unlike length, and does nothing
else: scores, gradients and updates are the transformers policy's. The two hold the weights each for itself, so after
every replacement `VllmPolicy.check_agreement` must say that they are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ..config import SamplingConfig
from ..seeding import seed_of
from .base import Completion, Policy
from .prompting import end_token_ids, shipped_end_tokens
from .vllm_engine import end_engine, global_generators_kept, replace_weights, start_engine

if TYPE_CHECKING:
    from vllm.outputs import CompletionOutput

    from .transformers_policy import TransformersPolicy

# Mean absolute difference in nats per token that rounding explains, a single token's being at most LARGEST times that.
# Twice what a model of 135M parameters shows at temperature 0.6 in bfloat16, 15 times in float32: there a single
# update at a learning rate of 1e-6, which moves log-probabilities by 4e-3, is noticed; in bfloat16 it is not.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
LARGEST = 10


@dataclass(frozen=True)
class Agreement:
    """How far the log-probabilities of the same tokens are apart in two engines.

    mean, largest: Absolute difference in nats per token.
    """

    mean: float
    largest: float
    n_tokens: int


class VllmPolicy(Policy):
    """A model folder sampled by vLLM.

    folder: Model folder: configuration and safetensors.
    sampling: Up to ``batch_size`` completions are generated at once.
    chat: Whether prompts go through the tokenizer's chat template.
    system: System message of the chat template; None leaves it to the template.
    dtype ({"float32", "bfloat16"}): Of weights and activations; take the scoring policy's, or the two cannot agree.
    tokenizer: The folder's own by default. vLLM sees token ids alone.
    eos_ids: Tokens that end a completion; by default the folder's and tokenizer's own, and with ``chat`` the one that
        closes a turn.
    Raises ModuleNotFoundError, ImportError if vLLM is not installed or cannot be imported; the message says how to
        install it.
    Raises FileNotFoundError if there is no model folder.
    Raises ValueError if ``dtype`` is unknown, or no token ends a completion.
    """

    def __init__(
        self,
        folder: str | Path,
        sampling: SamplingConfig,
        *,
        chat: bool,
        system: str | None = None,
        dtype: str = "float32",
        tokenizer: PreTrainedTokenizerBase | None = None,
        eos_ids: tuple[int, ...] | None = None,
    ):
        if dtype not in TOLERANCE:
            raise ValueError(f"dtype must be one of {', '.join(TOLERANCE)}, got {dtype!r}.")
        self._engine = start_engine(folder, sampling, dtype=dtype)
        self.sampling = sampling
        self.chat = chat
        self.system = system
        self.dtype = dtype
        self.context = int(self._engine.model_config.max_model_len)
        if tokenizer is None:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids or end_token_ids(tokenizer, shipped_end_tokens(folder), chat=chat)

    @classmethod
    def beside(cls, reference: TransformersPolicy, folder: str | Path) -> VllmPolicy:
        """The sampling companion of a transformers policy: its tokenizer, prompts, end tokens, temperature and type.

        folder: Weights to start with.
        """
        return cls(
            folder,
            reference.sampling,
            chat=reference.chat,
            system=reference.system,
            dtype=str(reference.model.dtype).removeprefix("torch."),
            tokenizer=reference.tokenizer,
            eos_ids=reference.eos_ids,
        )

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

    def restart(self, folder: str | Path) -> None:
        """Replace the weights by ending the engine and starting another: slower than `load_weights`, and trusting
        nothing of the old one."""
        end_engine(self._engine)
        del self._engine
        self._engine = start_engine(folder, self.sampling, dtype=self.dtype)

    def close(self) -> None:
        """End the engine and give back its memory; the policy cannot be used any more."""
        end_engine(self._engine)
        del self._engine

    def check_agreement(self, reference: TransformersPolicy, prompts: Sequence[str], *, n: int = 4) -> Agreement:
        """Make sure that this policy samples from the policy that ``reference`` scores.

        ``n`` completions of each prompt are sampled here and scored there; `TOLERANCE` is allowed between the two.

        reference: At the same weights.
        Raises ValueError if a prompt has other tokens there, or the temperatures differ.
        Raises RuntimeError if log-probabilities differ by more; the message says by how much, why that may be, and what
            to do.
        """
        if not prompts:
            raise ValueError("prompts is empty: nothing can be compared.")
        if reference.sampling.temperature != self.sampling.temperature:
            raise ValueError(
                f"temperature is {self.sampling.temperature} in vLLM and {reference.sampling.temperature} in the "
                "scoring policy; give both the same SamplingConfig."
            )
        for prompt in prompts:
            if (here := self.encode(prompt)) != (there := tuple(reference.encode(prompt))):
                raise ValueError(
                    f"prompt {prompt!r} has tokens {here} for vLLM and {there} for the scoring policy; give both the "
                    "same tokenizer, chat and system."
                )
        differences = []
        for prompt, group in zip(prompts, self.sample_groups(prompts, n, seed=0), strict=True):
            scored = reference.score(prompt, group).log_probs
            differences += [
                np.subtract(each.log_probs, log_probs) for each, log_probs in zip(group, scored, strict=True)
            ]
        absolute = np.abs(np.concatenate(differences))
        found = Agreement(float(absolute.mean()), float(absolute.max()), absolute.size)
        allowed = TOLERANCE[self.dtype]
        # Written so that a difference that is not a number fails too.
        if not (found.mean <= allowed and found.largest <= LARGEST * allowed):
            raise RuntimeError(self._disagreement(found, allowed))
        return found

    def _disagreement(self, found: Agreement, allowed: float) -> str:
        tied = getattr(self._engine.model_config.hf_config, "tie_word_embeddings", False)
        output_layer = ", the output layer tied to the embeddings above all" if tied else ""
        return (
            f"vLLM and the scoring policy disagree on the log-probabilities of {found.n_tokens} tokens: by "
            f"{found.mean:.2g} nats on average and {found.largest:.2g} at most, where {allowed:.2g} and "
            f"{LARGEST * allowed:.2g} are allowed in {self.dtype}. Either the two were given different weights: call "
            "load_weights of both with the same folder; or vLLM kept old ones in place of those loaded last, as its "
            f"packed linear layers on CPU can{output_layer}: call restart with the folder. Completions sampled since "
            "the last check are from another policy; discard them."
        )

    def _completion(self, output: CompletionOutput) -> Completion:
        token_ids = tuple(output.token_ids)
        log_probs = tuple(
            at_position[token].logprob for token, at_position in zip(token_ids, output.logprobs, strict=True)
        )
        text = self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Completion(token_ids, log_probs, text, finished=output.finish_reason == "stop")
