"""A small world of columns, and untrained models of one shape."""

import pytest
from transformers import AutoTokenizer

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
