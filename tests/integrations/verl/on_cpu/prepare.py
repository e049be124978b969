"""A model of 0.1M parameters with a chat template, and twelve prompts."""

from pathlib import Path

import pandas as pd

from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer

TURNS = "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}\n{% endfor %}"
TEMPLATE = TURNS + "{% if add_generation_prompt %}a:{% endif %}"
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
