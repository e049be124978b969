"""Small decoders of two families with random weights, whose scores are compared with plain autograd."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

VOCABULARY, LAYERS, PADDING_ID, END_ID = 29, 3, 3, 2
TEMPERATURE = 0.7
FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}


def tiny_model(family="qwen2", *, tied=False, dtype=torch.float64, **settings):
    config_class, model_class = FAMILIES[family]
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "vocab_size": VOCABULARY,
        "pad_token_id": PADDING_ID,
        "bos_token_id": 1,
        "eos_token_id": END_ID,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = model_class(config_class(tie_word_embeddings=tied, **(sizes | settings)))
        for parameter in model.parameters():  # biases and norms away from 0 and 1, attention away from uniform
            torch.nn.init.normal_(parameter, 0.0, 0.3)
    return model.to(dtype)


def log_prob(model, prompt, completion, temperature=TEMPERATURE):
    """Of one completion, by a plain forward pass; differentiable."""
    logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(completion)[:, None]).sum()
