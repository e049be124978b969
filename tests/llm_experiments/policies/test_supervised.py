"""A language model that is taught answers gives them, and is found again."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from llm_experiments.config import PretrainingConfig
from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.supervised import taught_folder
from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer

SIZE = TinySize(width=16, layers=1, feed_forward=24, context=16)
LETTERS = [(f"{one}=", one.upper()) for one in "abcd"]
LESSON = PretrainingConfig(steps=150, batch_size=8, learning_rate=2e-2)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "start"
    tokenizer = tiny_tokenizer()
    save_model(folder, tiny_model(tokenizer, 0, SIZE), tokenizer)
    return folder


def test_a_model_says_what_it_was_taught(start, tmp_path):
    losses = []
    folder = taught_folder(
        tmp_path, start, LETTERS, LESSON, 0, progress=lambda done, steps, loss: losses.append((done, steps, loss))
    )
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), tiny_tokenizer()
    for prompt, answer in LETTERS:
        with torch.no_grad():
            said = model(input_ids=torch.tensor([tokenizer(prompt).input_ids])).logits[0, -1].argmax()
        assert tokenizer.decode([said]) == answer
    assert [each[:2] for each in losses] == [(step, 150) for step in range(1, 151)]
    assert losses[-1][2] < 0.1 < losses[0][2]


def test_a_taught_model_is_made_once(start, tmp_path):
    quick = LESSON.model_copy(update={"steps": 2})
    made = taught_folder(tmp_path, start, LETTERS, quick, 0)
    steps = []
    assert taught_folder(tmp_path, start, LETTERS, quick, 0, progress=lambda *each: steps.append(each)) == made
    assert not steps
    assert taught_folder(tmp_path, start, LETTERS, quick, 1) != made
    assert taught_folder(tmp_path, start, LETTERS[:3], quick, 0) != made
    other = tmp_path / "elsewhere" / start.name
    tokenizer = tiny_tokenizer()
    save_model(other, tiny_model(tokenizer, 1, SIZE), tokenizer)
    assert taught_folder(tmp_path, other, LETTERS, quick, 0) != made, "another model of the same name was taken for it"
