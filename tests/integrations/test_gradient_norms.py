"""Squared norms of completions' gradients against a loop over completions that forms each gradient."""

from functools import partial

import pytest
import torch
from torch import nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from kaestat.integrations.adam_units import FLOOR, Units, mean_squares
from kaestat.integrations.gradient_norms import gradient_norms, norms_in_backward

WIDTH, PROMPT, VOCABULARY = 12, 4, 23
SMALL = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2}


def qwen2(**changes):
    options = SMALL | {"intermediate_size": 20, "num_key_value_heads": 1, "tie_word_embeddings": True} | changes
    return Qwen2ForCausalLM(Qwen2Config(**options))


def llama(**changes):
    options = SMALL | {"intermediate_size": 20, "num_key_value_heads": 2, "tie_word_embeddings": False} | changes
    return LlamaForCausalLM(LlamaConfig(**options))


def neox():
    return GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL, intermediate_size=20, hidden_dropout=0.0, attention_dropout=0.0))


def gemma():
    """Its embeddings are multiplied by a number."""
    own = {"intermediate_size": 20, "num_key_value_heads": 1, "head_dim": 6, "pad_token_id": 0}
    return Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, **own))


def frozen_below():
    model = llama()
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)
    return model


class LoRA(nn.Module):
    """A frozen layer and a trained product of two small ones, as PEFT's."""

    def __init__(self, layer, rank=3):
        super().__init__()
        self.layer, self.scaling = layer, 2.0
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.scaling * self.up(self.down(x))


def lora():
    model = qwen2().requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.mlp.down_proj = LoRA(layer.self_attn.q_proj), LoRA(layer.mlp.down_proj)
    return model


MODELS = {"tied": qwen2, "untied": llama, "padding token": lambda: qwen2(pad_token_id=3), "frozen": frozen_below}
MODELS |= {"layer norms": neox, "LoRA": lora, "scaled embeddings": gemma}


class Batch:
    """Five completions of up to six tokens after prompts that are padded on the left."""

    def __init__(self, model):
        torch.manual_seed(1)
        self.model = model
        self.ids = torch.randint(4, VOCABULARY, (5, PROMPT + 6))
        self.ids[1, PROMPT + 1 :: 2] = 7  # a token that comes again
        self.mask = torch.ones_like(self.ids)
        self.mask[2, :2], self.mask[3, PROMPT + 3 :] = 0, 0
        self.ids[self.mask == 0] = 3
        self.counted = self.mask[:, PROMPT:].float()
        self.counted[4] = torch.tensor([1.0, 0.0, 2.0, 1.0, 0.5, 1.0])

    def scores(self, rows=slice(None)):
        logits = self.model(input_ids=self.ids[rows], attention_mask=self.mask[rows]).logits[:, PROMPT - 1 : -1]
        own = (logits / 0.7).log_softmax(-1).gather(2, self.ids[rows, PROMPT:, None])[..., 0]
        return (own * self.counted[rows]).sum(1)


def slow(batch, squares=None):
    norms = []
    for row in range(len(batch.ids)):
        batch.model.zero_grad()
        batch.scores(slice(row, row + 1)).sum().backward()
        total = 0.0
        for parameter in batch.model.parameters():
            if parameter.grad is not None:
                gradient = parameter.grad.double()
                total += float((gradient / roots(parameter, squares)).square().sum())
        norms.append(total)
    batch.model.zero_grad()
    return torch.tensor(norms)


def roots(parameter, squares):
    """What Adafactor would divide by."""
    if squares is None:
        return 1.0
    square = squares[parameter].double()
    if square.ndim == 1:
        return (square + FLOOR * square.mean()).sqrt()
    row, column = square.mean(1), square.mean(0)
    row, column = (each + FLOOR * each.mean() for each in (row, column))
    return (row[:, None] * column[None] / square.mean()).sqrt()


def stepped(model, steps=3, batch=None):
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    batch = batch or Batch(model)
    for _ in range(steps):
        optimizer.zero_grad()
        batch.scores().sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    return optimizer


def policy(name):
    """A model all of whose parameters matter, and whose attention is far from even."""
    torch.manual_seed(0)
    model = MODELS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(params=MODELS)
def model(request):
    return policy(request.param)


PLAIN_ADAM = partial(torch.optim.AdamW, lr=1.0, betas=(0.0, 0.5), eps=1e-3, weight_decay=0.0)
OPTIMIZERS = {
    "Adam": PLAIN_ADAM,
    "AMSGrad": partial(PLAIN_ADAM, amsgrad=True),
}


def steps_of(optimizer, model, scales):
    """After a step for each scale of the scores: the gradients that it was given, and its units."""
    for scale in scales:
        optimizer.zero_grad()
        (scale * Batch(model).scores().sum()).backward()
        optimizer.step()
        yield [each.grad for each in model.parameters()], mean_squares(optimizer)


@pytest.mark.parametrize("rounding", [0.0, 1e-17])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_that_has_seen_no_gradient_has_no_units(kind, rounding):
    """As after steps on rewards that are all alike, whose advantages are 0 or rounding errors."""
    model = qwen2()
    units = [squares for _, squares in steps_of(OPTIMIZERS[kind](model.parameters()), model, (rounding, rounding, 1.0))]
    assert [squares is None for squares in units] == [True, True, False]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_units_are_what_the_optimizer_divides_a_gradient_by(kind):
    """With eps and without the bias of the beginning: a step goes by the gradient's ratio to them."""
    model = qwen2()
    before = [each.detach().clone() for each in model.parameters()]
    for gradients, squares in steps_of(OPTIMIZERS[kind](model.parameters()), model, (3.0, 1.0)):
        assert len(squares) == len(before) and set(squares) == set(model.parameters())
        for each, old, gradient in zip(model.parameters(), before, gradients, strict=True):
            torch.testing.assert_close(old - each.detach(), gradient / squares[each].sqrt(), rtol=1e-3, atol=1e-6)
        before = [each.detach().clone() for each in model.parameters()]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.RAdam, torch.optim.NAdam, torch.optim.Adafactor])
def test_an_optimizer_whose_units_are_not_known_is_named(kind):
    model = qwen2()
    optimizer = kind(model.parameters(), lr=0.1)
    for _ in range(2):  # before and after its first step
        with pytest.raises(ValueError, match=f"{kind.__name__} does not keep a mean square"):
            mean_squares(optimizer)
        Batch(model).scores().sum().backward()
        optimizer.step()


def test_modules_whose_norms_cannot_be_taken_are_refused():
    layer, wide = nn.Linear(3, 3), nn.Linear(3, 2)
    shared = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    shared[1].weight = shared[0].weight
    for model, scores, message in (
        (layer, lambda: layer(layer(torch.ones(2, 4, 3))).sum((1, 2)), "not called once"),
        (shared, lambda: shared(torch.ones(2, 4, 3)).sum((1, 2)), "share"),
        (wide, lambda: wide(torch.ones(8, 3)).view(2, 8).sum(1), r"module .* is called with 8 rows and not 2"),
    ):
        with pytest.raises(ValueError, match=message):
            gradient_norms(model, scores)


@pytest.mark.parametrize("checkpointing", [None, {"use_reentrant": False}, {"use_reentrant": True}])
def test_norms_are_those_of_a_loop_and_gradients_stay(model, checkpointing):
    squares, batch = mean_squares(stepped(model)), Batch(model)
    expected = [slow(batch), slow(batch, squares)]
    batch.scores().sum().backward()
    plain = gradients_of(model)
    if checkpointing is not None:
        model.train().gradient_checkpointing_enable(checkpointing)
        model.enable_input_require_grads()
    for given, norm in zip((None, squares), expected, strict=True):
        with norms_in_backward(model, Units(given)) as norms:
            scores = batch.scores()
            norms.begin(scores)
            scores.sum().backward()
        torch.testing.assert_close(norms.norms, norm, rtol=1e-4, atol=0)
        torch.testing.assert_close(gradients_of(model), plain, rtol=1e-4, atol=1e-5)
    model.gradient_checkpointing_disable()
    for given, norm in zip((None, squares), expected, strict=True):
        torch.testing.assert_close(gradient_norms(model, batch.scores, given), norm, rtol=1e-4, atol=0)


def gradients_of(model):
    found = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("name", ["tied", "untied", "LoRA"])
def test_norms_under_autocast_are_those_of_a_loop_under_autocast(name):
    made = policy(name)
    squares, batch = mean_squares(stepped(made)), Batch(made)
    with torch.autocast("cpu", torch.bfloat16):
        for units in (None, squares):
            torch.testing.assert_close(gradient_norms(made, batch.scores, units), slow(batch, units), rtol=1e-2, atol=0)
