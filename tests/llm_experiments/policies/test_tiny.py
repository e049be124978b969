"""The tiny model: bytes as tokens, a folder that reloads as it was, and training on answers only."""

import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from llm_experiments.config import PretrainingConfig, SamplingConfig
from llm_experiments.policies.model_folder import save_model
from llm_experiments.policies.tiny import TinySize, pretrain, tiny_model, tiny_tokenizer
from llm_experiments.policies.transformers_policy import TransformersPolicy
from tests.helpers.small_policies import SIZE

TOKENIZER = tiny_tokenizer()
SUMS = [(f"{a}+{b}=", str(a + b)) for a in range(4) for b in range(4)]


@given(st.text(max_size=40))
def test_any_text_becomes_its_bytes_and_comes_back(text):
    text = unicodedata.normalize("NFC", text)
    ids = TOKENIZER(text, split_special_tokens=True).input_ids
    assert len(ids) == len(text.encode())
    assert TOKENIZER.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.fixture(scope="module")
def reloaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "model"
    save_model(folder, tiny_model(TOKENIZER, seed=0, size=SIZE), TOKENIZER)
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    "text", ["37+58=", " 12 * 3 = ", "-7", "Grüße, 漢字 🙂\n\n\tend", "don't 1000", "a<|endoftext|>b"]
)
def test_a_reloaded_tokenizer_gives_the_same_tokens(reloaded, text):
    assert reloaded[1](text).input_ids == TOKENIZER(text).input_ids
    ids = TOKENIZER(text).input_ids
    assert reloaded[1].decode(ids) == TOKENIZER.decode(ids)


def train(examples=SUMS, *, steps=3, seed=0, size=SIZE, learning_rate=2e-3, progress=None):
    config = PretrainingConfig(steps=steps, batch_size=32, learning_rate=learning_rate)
    return pretrain(examples, config, seed, size=size, progress=progress)


def weights(model) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


def test_a_seed_gives_the_same_weights_whatever_torch_drew_before():
    torch.manual_seed(1)
    first = weights(train()[0])
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(weights(train()[0]), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(weights(train(seed=1)[0]), first)


def test_training_learns_sums_and_where_answers_end():
    losses = []
    size = TinySize(width=64, layers=2, heads=4, key_value_heads=2, feed_forward=128, context=32)
    model, tokenizer = train(
        steps=250, size=size, learning_rate=5e-3, progress=lambda done, steps, loss: losses.append(loss)
    )
    assert len(losses) == 250 and losses[0] > 3 and losses[-1] < 0.05
    policy = TransformersPolicy(model, tokenizer, SamplingConfig(max_new_tokens=5), chat=False)
    for (prompt, answer), completions in zip(SUMS, policy.sample_groups([p for p, _ in SUMS], 10, seed=0), strict=True):
        right = sum(each.text == answer and each.finished for each in completions)
        assert right >= 8, f"{prompt} answered by {answer} {right} times of 10"


def test_the_loss_is_the_mean_over_answers_and_ends():
    losses = []
    examples = [("1+1=", "2"), ("10+10=", "20")]
    config = PretrainingConfig(steps=1, batch_size=64)
    pretrain(examples, config, 0, size=SIZE, progress=lambda done, steps, loss: losses.append(loss))
    model = tiny_model(TOKENIZER, 0, SIZE)
    rows = torch.randint(2, (64,), generator=torch.Generator().manual_seed(0)).tolist()
    terms = []
    for prompt, answer in [examples[row] for row in rows]:
        before = TOKENIZER(prompt).input_ids
        after = [*TOKENIZER(answer).input_ids, TOKENIZER.eos_token_id]
        log_pi = model(torch.tensor([before + after])).logits[0].log_softmax(-1)[len(before) - 1 : -1]
        terms += [-log_pi[position, token].item() for position, token in enumerate(after)]
    assert losses == [pytest.approx(sum(terms) / len(terms), rel=1e-5)]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "examples is empty"),
        ([("1+1=", "2"), ("", "2")], r"example ''"),
        ([("1" * 64, "2")], r"66 tokens, the prompt 64; allowed are 1 to 64"),
    ],
)
def test_examples_that_cannot_be_learned_from_are_refused(examples, message):
    with pytest.raises(ValueError, match=message):
        train(examples)
