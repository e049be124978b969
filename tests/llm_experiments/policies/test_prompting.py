"""Prompt tokens and end tokens: what the policies of a model folder must agree on."""

import json

import pytest

from llm_experiments.policies.prompting import encode_prompt, end_token_ids, shipped_end_tokens
from tests.helpers.small_policies import chat_tokenizer


@pytest.fixture
def tokenizer():
    return chat_tokenizer()


def test_plain_prompts_are_encoded_as_they_are(tokenizer):
    assert encode_prompt(tokenizer, "1+1=", chat=False) == tuple(tokenizer("1+1=").input_ids)


@pytest.mark.parametrize("system", [None, "Count."])
def test_chat_prompts_open_the_answer(tokenizer, system):
    text = tokenizer.decode(encode_prompt(tokenizer, "1+1=", chat=True, system=system))
    head = "" if system is None else "<|im_start|>system\nCount.<|im_end|>\n"
    assert text == head + "<|im_start|>user\n1+1=<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("prompt", ["1+1=", " two  spaces\n", "5 · 6 = ?", ""])
def test_chat_prompts_have_the_tokens_of_the_template_itself(tokenizer, prompt):
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False
    )
    assert encode_prompt(tokenizer, prompt, chat=True) == tuple(expected)


def test_prompts_that_cannot_be_encoded_are_refused(tokenizer):
    with pytest.raises(ValueError, match="has no token"):
        encode_prompt(tokenizer, "", chat=False)
    with pytest.raises(ValueError, match=r"system = 'Count\.' needs the chat template"):
        encode_prompt(tokenizer, "1+1=", chat=False, system="Count.")
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="has no chat template"):
        encode_prompt(tokenizer, "1+1=", chat=True)


def test_with_chat_the_end_of_a_turn_ends_a_completion(tokenizer):
    turn_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert end_token_ids(tokenizer, None, chat=False) == (tokenizer.eos_token_id,)
    assert end_token_ids(tokenizer, [7, tokenizer.eos_token_id], chat=False) == (tokenizer.eos_token_id, 7)
    assert end_token_ids(tokenizer, 7, chat=True) == (tokenizer.eos_token_id, 7, turn_end)


def test_a_model_without_an_end_is_refused(tokenizer):
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="end-of-sequence"):
        end_token_ids(tokenizer, None, chat=False)


def test_generation_settings_go_before_the_configuration(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "eos_token_id": 5}))
    assert shipped_end_tokens(tmp_path) == 5
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [6, 7]}))
    assert shipped_end_tokens(tmp_path) == [6, 7]
