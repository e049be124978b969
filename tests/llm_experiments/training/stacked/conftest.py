"""A small world of columns, and untrained models of one shape."""

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer
from llm_experiments.tasks.columns import columns
from llm_experiments.tasks.selection import select
from llm_experiments.training.stacked.codec import TokenCodec

SIZE = TinySize(width=16, layers=2, feed_forward=24, context=32)
SEEDS = (3, 4, 5)


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """One model folder for each seed."""
    tokenizer, found = tiny_tokenizer(), []
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp("models") / str(seed)
        save_model(folder, tiny_model(tokenizer, seed, SIZE), tokenizer)
        found.append(folder)
    return found


@pytest.fixture(scope="session")
def codec(folders):
    return TokenCodec(AutoTokenizer.from_pretrained(folders[0]))


@pytest.fixture(scope="session")
def pools():
    """Each seed's own 24 prompts."""
    return [select(columns(0), 24, seed=seed) for seed in SEEDS]


@pytest.fixture(scope="session")
def llamas(tmp_path_factory):
    """Two folders of SmolLM2's family: no biases, three query heads for each of keys and values."""
    found = []
    for seed in range(2):
        config = LlamaConfig(
            vocab_size=258,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        )
        torch.manual_seed(seed)
        found.append(tmp_path_factory.mktemp("llamas") / str(seed))
        LlamaForCausalLM(config).save_pretrained(found[-1])
    return found


@pytest.fixture(params=["folders", "llamas"])
def family(request):
    """Two folders of one family."""
    return request.getfixturevalue(request.param)[:2]
