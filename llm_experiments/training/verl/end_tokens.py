"""Where completions of verl's rollouts end: at the tokens that end them in evaluation and diagnostics.

vLLM takes the end tokens of its generation settings beside the tokenizer's own. A base model's settings often name no
token that ends a turn of the chat template, so the run's folder gets settings that name all of them.
"""

import json
from pathlib import Path

from kaestat.core.storage import write_atomically
from llm_experiments.config import ModelConfig
from llm_experiments.policies.presets import PRESETS, Preset, prompt_style
from llm_experiments.policies.prompting import end_token_ids, shipped_end_tokens

FILE = "generation_config.json"


def write_generation_config(model: ModelConfig, folder: Path, *, fetch: bool = True) -> tuple[int, ...]:
    """The tokens that end a completion, after writing them to ``generation_config.json`` in a folder.

    Nothing else is in the file: temperature and the like are verl's options.

    model: A hub id or a folder.
    folder: Made if it does not exist.
    fetch: Whether a hub id may be fetched; else only what is in the local cache is read.
    Raises OSError if the tokenizer or the model's configuration is neither here nor can be fetched.
    Raises ValueError if no token would end a completion; see `end_token_ids`.
    """
    from transformers import AutoTokenizer

    source = PRESETS.get(model.name.lower(), Preset("hub")).hub_id or model.name
    options = {"local_files_only": not fetch}
    tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False, **options)
    ends = end_token_ids(tokenizer, shipped_end_tokens(source, **options), chat=prompt_style(model)[0])
    write_atomically(folder / FILE, json.dumps({"eos_token_id": list(ends)}, indent=1) + "\n")
    return ends
