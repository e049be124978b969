"""The runs of the paper on verl, and a small one; tested with and without verl."""

import json
from pathlib import Path

from llm_experiments.training.verl.command import Places
from llm_experiments.training.verl.launch import CONFIGS, verl_run_config

ALL = {path.stem: verl_run_config(path.stem) for path in sorted(CONFIGS.glob("*.yaml"))}
PAPER = tuple(name for name, config in ALL.items() if config.model.name.startswith("qwen"))
FOLDERS = (Path("/c"), Path("/t"), Path("/r"), Path("/v"), Path("/g"), Path("/h"))
PLACES = Places(Path("/d/train.parquet"), Path("/d/test.parquet"), *FOLDERS, ("/p",))

# Of the issue: (method, steps with the same minibatch; None leaves the file's).
SCHEDULED = [("kae:bandwidth=10", None), ("kae_eb:bandwidth=10", None), ("spo", None)]
SINGLE = [*SCHEDULED, ("none", 1), ("reinforce++", 1), ("none", None)]
MULTI = [*SINGLE, *((name, 1) for name in ("grpo", "dr_grpo", "gpg", "krpo", "james_stein")), ("grpo", None)]
ONE_SHOT = [*MULTI, ("pooled", 1), ("kae_stream:bandwidth=10", 1)]
RUNS = [
    (name, method, reuse)
    for name in PAPER
    for method, reuse in (
        SINGLE if ALL[name].updates.group_size == 1 else ONE_SHOT if ALL[name].updates.copies > 1 else MULTI
    )
]

ROWS = [{"question": f"What is {k} + 1?", "answer": f"It is {k + 1}.\n#### {k + 1}"} for k in range(12)]
SMALL = {
    "name": "small",
    "model": {"name": "qwen2.5-1.5b-instruct", "dtype": "bfloat16"},
    "task": {"name": "gsm8k", "path": "rows.jsonl"},
    "sampling": {"engine": "vllm", "max_new_tokens": 64},
    "method": "kae:bandwidth=10",
    "updates": {"steps": 20, "prompts": 8, "ppo_prompts": 4, "group_size": 2, "reuse": 5, "micro_batch": 2},
    "test": {"task": {"name": "gsm8k", "path": "test.jsonl"}, "every": 5},
    "report_to": ["tensorboard"],
}


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
