"""The policy that samples, beside the one that transformers has loaded; and what tells its weights from others."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from llm_experiments.policies.base import Policy

if TYPE_CHECKING:
    from llm_experiments.policies.transformers_policy import TransformersPolicy

SHORT_PROMPTS = ("What is 2 + 3?", "Name a prime number.")


def sampler_beside(policy: TransformersPolicy, engine: str, name: str, folder: Path) -> Policy:
    """What samples for a policy.

    engine ({"transformers", "vllm"}): The policy itself, or vLLM at its weights, after both have agreed on what
        completions are worth.
    name: What the policy was loaded from.
    folder: Where its weights are saved for vLLM, which reads a model folder, if ``name`` is none.
    """
    if engine == "transformers":
        return policy
    from llm_experiments.policies.vllm_policy import VllmPolicy

    source = Path(name).expanduser()
    if not source.is_dir():
        source = folder
        if not source.is_dir():
            policy.save(source)
    sampler = VllmPolicy.beside(policy, source)
    sampler.check_agreement(policy, list(SHORT_PROMPTS))
    return sampler


def digest_in_memory(policy: TransformersPolicy) -> str:
    """SHA-256 of the weights in memory, by name."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(policy.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
