"""Small untrained policies for the tests, and the slow obvious reference of their scores."""

import numpy as np
import torch
from transformers import PreTrainedModel

from llm_experiments.config import SamplingConfig
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer
from llm_experiments.policies.transformers_policy import TransformersPolicy

SIZE = TinySize(width=32, layers=2, heads=4, key_value_heads=2, feed_forward=48, context=64)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def small_model(seed: int = 0, sharpness: float = 8.0, size: TinySize = SIZE):
    """A model whose next-token distributions are far from uniform, and its tokenizer."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, seed, size)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(sharpness)
    return model, tokenizer


def chat_tokenizer():
    """With a chat template whose turns end with another token than the tokenizer's own end."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return tokenizer


def small_policy(
    seed: int = 0, *, temperature: float = 0.7, max_new_tokens: int = 6, batch_size: int = 64, **options
) -> TransformersPolicy:
    """A policy that ends its completions at many lengths: some thirty tokens count as the end."""
    model, tokenizer = small_model(seed, **options)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, *range(0, 256, 8)]
    sampling = SamplingConfig(temperature=temperature, max_new_tokens=max_new_tokens, batch_size=batch_size)
    return TransformersPolicy(model, tokenizer, sampling, chat=False)


def reference_scores(model: PreTrainedModel, prompt_ids, completion, temperature: float) -> tuple[list[float], float]:
    """Log-probabilities and squared norm of the score with respect to the tempered logits, by autograd in float64."""
    ids = torch.tensor([[*prompt_ids, *completion]])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
    tempered = (logits.double() / temperature).requires_grad_()
    log_probs = tempered.softmax(-1).log()[torch.arange(len(completion)), torch.tensor(completion)]
    (gradient,) = torch.autograd.grad(log_probs.sum(), tempered)
    return log_probs.tolist(), float(np.square(gradient.numpy()).sum())
