"""A small untrained model, and problems of a world of habits."""

import pytest
from transformers import AutoTokenizer

from llm_experiments.config import checked
from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer
from llm_experiments.study.config import StudyConfig
from llm_experiments.study.controls import required_controls
from llm_experiments.tasks.habits import habits
from llm_experiments.tasks.selection import select
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.config import Design, StackConfig
from llm_experiments.training.stacked.loop import StackedTraining


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    tokenizer, place = tiny_tokenizer(), tmp_path_factory.mktemp("model") / "tiny"
    save_model(place, tiny_model(tokenizer, 3, TinySize(width=16, layers=2, feed_forward=24, context=32)), tokenizer)
    return place


@pytest.fixture(scope="session")
def codec(folder):
    return TokenCodec(AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="session")
def pool():
    return select(habits(0), 24, seed=3)


@pytest.fixture
def stack(folder, codec, pool, monkeypatch):
    """Makes a stack of one run; its rewards depend on the first token, and an untrained model gets half of them."""
    monkeypatch.setattr(
        "llm_experiments.training.stacked.loop.grade", lambda task, problem, text: float(sum(map(ord, text)) % 2)
    )

    def make(design, seeds=(3,), rate=1e-2, **changes):
        settings = {"completions": 8, "budget": 64, "max_new_tokens": 1, "max_grad_norm": 1e6} | changes
        config = StackConfig(design=Design(**design), **settings)
        n = len(seeds)
        return StackedTraining(config, [folder] * n, [pool] * n, seeds, codec, [rate] * n)

    return make


@pytest.fixture
def small_study():
    return checked(
        StudyConfig,
        "test",
        {
            "name": "small",
            "world": {
                "task": "habits",
                "n_prompts": 32,
                "n_examples": 500,
                "pretraining": {"steps": 5, "batch_size": 16, "width": 16, "layers": 1},
                "bases": [0],
                "max_new_tokens": 6,
            },
            "completions": 8,
            "budget": 32,
            "rates": [5e-4, 1e-3, 2e-3],
            "rate_seeds": [6, 7, 8, 9],
            "seeds": [0, 1],
            "tests": {"every": 16, "temperatures": [1.0], "samples": 1, "passes": 2},
            "designs": {
                "grpo_4": {"method": "grpo", "group_size": 4},
                "kae_1": {"method": "kae"},
                "kae_eb_1": {"method": "kae_eb"},
            },
            "reference": "grpo_4",
            "recommended": "kae_eb_1",
            "rivals": ["kae_1"],
            "left_out": {
                name: "a test of noise" for name in required_controls(Design(method="kae_eb")) if name != "grpo_4"
            },
            "noise": {"path": "kae_eb_1", "at": [16, 24], "seeds": [0, 1], "draws": 4, "designs": ["kae_eb_1"]},
        },
    )
