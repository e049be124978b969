"""Models of 0.1M parameters with chat templates, and twelve prompts."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from llm_experiments.config import PretrainingConfig, TaskConfig
from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import END, PAD, TinySize, pretrain, tiny_model, tiny_tokenizer
from llm_experiments.tasks import pretraining_examples

TURNS = "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}\n{% endfor %}"
TEMPLATE = TURNS + "{% if add_generation_prompt %}a:{% endif %}"
ANSWERS = "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}" + END + "{% endif %}{% endfor %}"
# vLLM's attention on a CPU refuses a head of 16: two heads of 32.
SIZE = TinySize(width=64, layers=2, heads=2, key_value_heads=1, feed_forward=64, context=64)


def write_model_and_data(folder: Path) -> None:
    """Into ``model``, ``train.parquet`` and ``validation.parquet``, whose prompts are those of the training set."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tiny_model(tokenizer, 0, SIZE).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = pd.DataFrame(
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f"{k}+1="}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(k + 1)},
            "extra_info": {"split": "train", "index": k},
        }
        for k in range(12)
    )
    rows.to_parquet(folder / "train.parquet")
    rows[:8].to_parquet(folder / "validation.parquet")  # the hardest case for the history, which must not see them


def write_taught_model(folder: Path, task: dict) -> None:
    """One that answers a task's questions now and then, and whose template adds nothing to them.

    Its answers end at the token that closes a turn of the template; its settings and its tokenizer name another, as
    those of some base models do.
    """
    taught = PretrainingConfig(steps=200, batch_size=32)
    size = replace(SIZE, context=2048)  # the prompts of the paper's runs have up to 1,024 tokens
    model, tokenizer = pretrain(
        pretraining_examples(TaskConfig(**task), taught, seed=0, exclude=[]), taught, 0, size=size
    )
    tokenizer.chat_template = ANSWERS
    tokenizer.eos_token = PAD
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    save_model(folder, model, tokenizer)
