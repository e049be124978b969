"""Gram matrices of scores against one plain autograd gradient per completion."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from transformers import Qwen2ForCausalLM

from llm_experiments.gradient import output_layer, products
from llm_experiments.gradient.architecture import Decoder, select
from llm_experiments.gradient.gram import gram_matrix, score_norms
from llm_experiments.gradient.memory import MemoryBudgetError, MemoryPlan, plan_memory
from llm_experiments.gradient.pool import CompletionPool
from llm_experiments.gradient.reverse_pass import ReversePass, undisturbed
from tests.helpers.small_decoders import END_ID, FAMILIES, PADDING_ID, TEMPERATURE, VOCABULARY, log_prob, tiny_model

PROMPT = [1, 5, PADDING_ID, 7, 5]  # the padding token, whose embedding torch gives no gradient, and one token twice
SUBSETS = {
    "all": r".",
    "final_block": r"layers\.2\.|lm_head",
    r"layers\.1\..*(norm|q_proj)": r"layers\.1\..*(norm|q_proj)",
    "embed_tokens": "embed_tokens",
    "lm_head": "lm_head",
    r"model\.norm|bias": r"model\.norm|bias",
}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def pooled(seed=0, n=9, longest=8):
    rng = np.random.default_rng(seed)
    drawn = [[*rng.integers(0, VOCABULARY, size=rng.integers(0, longest)).tolist(), END_ID] for _ in range(n)]
    return [*drawn, drawn[0], drawn[n // 2]]


def slow_scores(model, prompt, completions, pattern):
    """Gradient of each completion's log-probability by itself, flattened; a tied parameter goes by both names."""
    named = model.named_parameters(remove_duplicate=False)
    chosen = list({id(parameter): parameter for name, parameter in named if re.search(pattern, name)}.values())
    training = model.training
    model.eval()
    rows, log_probs = [], []
    for completion in completions:
        found = log_prob(model, prompt, completion)
        gradients = torch.autograd.grad(found, chosen, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
        log_probs.append(found.item())
    model.train(training)
    return torch.stack(rows).double().numpy(), np.array(log_probs)


def relative_error(found, expected):
    """Largest error of a Gram matrix, each entry against the norms of its two scores."""
    scale = np.sqrt(np.diagonal(expected))
    return np.abs((found - expected) / np.outer(scale, scale)).max()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("family", FAMILIES)
def test_inner_products_are_those_of_autograd_gradients(family, tied, dtype):
    model, completions = tiny_model(family, tied=tied, dtype=dtype), pooled()
    for parameters, pattern in SUBSETS.items():
        scores, log_probs = slow_scores(model, PROMPT, completions, pattern)
        found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters=parameters)
        norms = score_norms(model, PROMPT, completions, temperature=TEMPERATURE, parameters=parameters)
        expected = scores @ scores.T
        assert relative_error(found.gram, expected) < TOLERANCE[dtype], parameters
        np.testing.assert_allclose(norms.squared_norms, np.diagonal(expected), rtol=TOLERANCE[dtype])
        for result in (found, norms):
            np.testing.assert_allclose(result.log_probs, log_probs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
            assert result.n_parameters == scores.shape[1]


def test_a_completion_that_was_drawn_twice_takes_one_backward_pass():
    completions = pooled()
    found = gram_matrix(tiny_model(), PROMPT, completions, temperature=1.0, parameters="all")
    assert found.backward_passes == len({tuple(completion) for completion in completions}) < len(completions)
    np.testing.assert_array_equal(found.gram[0], found.gram[-2])


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_inner_products_do_not_depend_on_how_the_pass_is_cut(stride, tied):
    """Modules one at a time, a vocabulary row and a weight row at a time, states kept at each so many layers."""
    model, completions = tiny_model(tied=tied), pooled(n=5)
    scores, _ = slow_scores(model, PROMPT, completions, ".")
    decoder = Decoder.of(model)
    pool = CompletionPool.of(PROMPT, completions, vocabulary=VOCABULARY)
    for pairs in (True, False):
        plan = MemoryPlan(batch_tokens=14, stride=stride, capture_bytes=1, buffer_bytes=256)
        with undisturbed(model):
            cut = ReversePass(decoder, select(decoder, "all"), pool, plan, temperature=TEMPERATURE, pairs=pairs)
            result = cut.run()
        assert len(cut.cuts) > 1 and result.sweeps == 7  # linear maps of a layer
        expected = scores @ scores.T
        products = result.products.numpy()
        if pairs:
            assert relative_error(products[np.ix_(pool.index, pool.index)], expected) < 1e-10
        else:
            np.testing.assert_allclose(products[pool.index], np.diagonal(expected), rtol=1e-10)


def test_both_forms_of_a_product_are_taken_where_they_are_cheaper(monkeypatch):
    """Few tokens against wide weights go by pairs of tokens; many tokens by written-out gradients."""
    taken = []
    for module, name in [
        (products, "add_token_pairs"),
        (products, "add_written_out"),
        (output_layer, "add_pair_sums"),
        (output_layer, "add_written_out"),
    ]:
        monkeypatch.setattr(module, name, _noted(taken, (module, name), getattr(module, name)))
    model = tiny_model(hidden_size=64, intermediate_size=160)
    for completions, form in (([[5, END_ID], [7, END_ID]], "pair"), (pooled(n=40, longest=20), "written_out")):
        scores, _ = slow_scores(model, PROMPT, completions, ".")
        taken.clear()
        found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters="all")
        assert relative_error(found.gram, scores @ scores.T) < 1e-10
        assert {module for module, name in taken if form in name} == {products, output_layer}


def _noted(taken, name, function):
    def wrapper(*args):
        taken.append(name)
        return function(*args)

    return wrapper


def test_eager_attention_with_sliding_windows_gives_each_layer_its_own_mask():
    settings = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
    model, completions = tiny_model(**settings, attn_implementation="eager"), pooled()
    scores, _ = slow_scores(model, PROMPT, completions, ".")
    found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters="all")
    gram = scores @ scores.T
    assert relative_error(found.gram, gram) < 1e-6  # transformers takes the softmax of eager attention in float32
    wider = tiny_model(**settings | {"sliding_window": 4}, attn_implementation="eager")
    elsewhere = gram_matrix(wider, PROMPT, completions, temperature=TEMPERATURE, parameters="all").gram
    assert relative_error(elsewhere, gram) > 1e-3  # another mask is far outside of that rounding


def test_dropout_of_a_model_in_training_mode_is_off():
    model, completions = tiny_model(attention_dropout=0.5).train(), pooled()
    scores, _ = slow_scores(model, PROMPT, completions, ".")
    found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters="all")
    assert relative_error(found.gram, scores @ scores.T) < 1e-10


def test_an_output_layer_with_a_bias():
    model, completions = tiny_model(), pooled()
    model.lm_head = torch.nn.Linear(32, VOCABULARY, bias=True).to(torch.float64)
    for parameters in ("all", "lm_head.bias", "lm_head.weight"):
        pattern = "." if parameters == "all" else parameters
        scores, _ = slow_scores(model, PROMPT, completions, pattern)
        found = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters=parameters)
        assert relative_error(found.gram, scores @ scores.T) < 1e-10


def test_half_precision_models_come_close():
    completions = pooled()
    exact = gram_matrix(tiny_model(), PROMPT, completions, temperature=TEMPERATURE, parameters="all")
    model = tiny_model(dtype=torch.bfloat16)
    rounded = gram_matrix(model, PROMPT, completions, temperature=TEMPERATURE, parameters="all")
    assert relative_error(rounded.gram, exact.gram) < 0.1


@pytest.mark.parametrize("place", ["mlp", "norm", "nowhere"])
def test_the_model_is_left_as_it_was_also_after_an_error(place):
    model = tiny_model()
    frozen = model.model.layers[1].mlp.up_proj.weight.requires_grad_(False)
    model.train()
    model.model.norm.eval()
    before = [parameter.clone() for parameter in model.parameters()]
    module = model.model.layers[0].mlp if place == "mlp" else model.model.norm
    forward, calls = module.forward, []

    def failing(*args):
        calls.append(args)
        if torch.is_grad_enabled() and place != "nowhere":
            raise RuntimeError("broken")
        return forward(*args)

    module.forward = failing
    with nullcontext() if place == "nowhere" else pytest.raises(RuntimeError, match="broken"):
        gram_matrix(model, PROMPT, pooled(), temperature=1.0, parameters="all")
    assert calls and all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))

    assert all(parameter.grad is None for parameter in model.parameters())
    assert [parameter for parameter in model.parameters() if not parameter.requires_grad] == [frozen]
    assert model.training and model.model.layers[0].training and not model.model.norm.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_scores_can_be_taken_inside_inference_mode_and_without_gradients():
    model, completions = tiny_model(), pooled()
    expected = gram_matrix(model, PROMPT, completions, temperature=1.0).gram
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            np.testing.assert_array_equal(gram_matrix(model, PROMPT, completions, temperature=1.0).gram, expected)


def test_a_smaller_budget_gives_up_time_before_it_refuses():
    model = tiny_model(hidden_size=128, intermediate_size=384, num_hidden_layers=9, vocab_size=500)
    decoder, completions = Decoder.of(model), pooled(n=60, longest=20)
    pool, selection = CompletionPool.of(PROMPT, completions, vocabulary=500), select(Decoder.of(model), "all")

    def plan(gib):
        return plan_memory(decoder, selection, pool, memory_gib=gib, batch_tokens=4096, pairs=True)

    with pytest.raises(MemoryBudgetError) as refusal:
        plan(1e-4)
    least = float(re.search(r"at least ([\d.e-]+) GiB", str(refusal.value)).group(1))
    tight, ample = plan(1.01 * least), plan(8.0)
    assert (ample.batch_tokens, ample.stride) == (4096, 1)
    assert tight.batch_tokens < ample.batch_tokens and tight.stride > 1
    assert tight.capture_bytes < ample.capture_bytes and tight.buffer_bytes < ample.buffer_bytes
    with pytest.raises(MemoryBudgetError, match="memory_gib"):
        plan(0.99 * least)


def test_peak_memory_stays_within_the_budget():
    """Written out, the scores alone would take eight times the budget."""
    sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "vocab_size": 4000}
    model = tiny_model("llama", dtype=torch.float32, tied=True, **sizes)
    completions = pooled(n=48, longest=30)
    gram_matrix(model, PROMPT, completions[:4], temperature=1.0, parameters="all")  # what torch allocates once
    found = gram_matrix(model, PROMPT, completions, temperature=1.0, parameters="all", memory_gib=0.12)
    written_out = found.backward_passes * found.n_parameters * 4
    assert written_out > 8 * 0.12 * 2**30 > 8 * found.peak_bytes > 0
    assert found.total_bytes > found.peak_bytes + 4 * found.n_parameters  # the model is there too


def test_norms_do_with_a_budget_that_cannot_hold_the_whole_pool():
    model, completions = tiny_model(), pooled(n=60, longest=20)
    limits = {"temperature": 1.0, "parameters": "all", "memory_gib": 0.002}
    with pytest.raises(MemoryBudgetError):
        gram_matrix(model, PROMPT, completions, **limits)
    norms = score_norms(model, PROMPT, completions, **limits)
    gram = gram_matrix(model, PROMPT, completions, **(limits | {"memory_gib": 2.0})).gram
    np.testing.assert_allclose(norms.squared_norms, np.diagonal(gram), rtol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_ids": []}, "prompt_ids"),
        ({"completions": []}, "completions is empty"),
        ({"completions": [[1], []]}, r"completions\[1\]"),
        ({"completions": [[VOCABULARY]]}, "vocabulary"),
        ({"temperature": 0.0}, "temperature"),
        ({"memory_gib": float("nan")}, "memory_gib"),
        ({"parameters": "("}, "regular expression"),
        ({"parameters": "lm_tail"}, r"lm_tail(.|\n)*embed_tokens"),
        ({"memory_gib": 1e-6}, "memory_gib"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    given = {"prompt_ids": PROMPT, "completions": pooled(), "temperature": 1.0} | arguments
    with pytest.raises(ValueError, match=message):
        gram_matrix(tiny_model(), given.pop("prompt_ids"), given.pop("completions"), **given)


def test_a_model_of_another_structure_is_refused():
    with pytest.raises(ValueError, match=r"Linear whose model\.model is"):
        gram_matrix(torch.nn.Linear(2, 2), PROMPT, pooled(), temperature=1.0)


def test_a_model_that_changes_its_logits_is_refused():
    class Capped(Qwen2ForCausalLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = torch.tanh(output.logits)
            return output

    model = Capped(tiny_model().config)
    with pytest.raises(ValueError, match="does not compute its logits"):
        gram_matrix(model, PROMPT, pooled(), temperature=1.0)


def test_a_model_that_scales_its_embeddings_is_refused_where_they_are_chosen():
    model = tiny_model()
    model.model.layers[0].register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:]), prepend=True)
    with pytest.raises(ValueError, match="embeddings"):
        gram_matrix(model, PROMPT, pooled(), temperature=1.0, parameters="all")


def test_parameters_outside_the_understood_parts_are_refused():
    model = tiny_model()
    model.extra = torch.nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match="extra"):
        gram_matrix(model, PROMPT, pooled(), temperature=1.0, parameters="all")
