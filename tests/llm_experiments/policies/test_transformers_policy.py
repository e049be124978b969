"""Sampling with transformers: the full tempered distribution, reproducibly, with log-probabilities as scores give."""

import numpy as np
import pytest
import torch

from llm_experiments.config import SamplingConfig
from llm_experiments.policies.transformers_policy import TransformersPolicy
from tests.helpers.small_policies import SIZE, TEMPLATE, small_model, small_policy
from tests.helpers.statistical import Discrepancy, check_mean

PROMPT = "37+58="


@pytest.fixture(scope="module")
def policy():
    return small_policy()


def first_token_probabilities(policy, temperature) -> np.ndarray:
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([policy.encode(PROMPT)])).logits[0, -1]
    return (logits.double() / temperature).softmax(-1).numpy()


def check_frequencies(policy, probabilities):
    """The tokens drawn first, against probabilities: their mean probability, which any truncation would raise."""
    tokens = [each.token_ids[0] for each in policy.sample(PROMPT, 4000, seed=1)]
    check_mean(probabilities[tokens], target=float(probabilities @ probabilities), detect=0.05)
    likely = probabilities.argsort()[::-1][:3]
    for token in likely:
        check_mean(np.equal(tokens, token).astype(float), target=float(probabilities[token]), detect=0.06)


def test_tokens_come_from_the_tempered_distribution():
    policy = small_policy(max_new_tokens=1, batch_size=1000)
    check_frequencies(policy, first_token_probabilities(policy, policy.sampling.temperature))


def test_the_check_of_frequencies_finds_another_temperature():
    policy = small_policy(max_new_tokens=1, batch_size=1000)
    with pytest.raises(Discrepancy):
        check_frequencies(policy, first_token_probabilities(policy, 1.0))


def test_what_a_model_ships_for_generation_is_left_out():
    model, tokenizer = small_model()
    shipped = {"top_k": 2, "top_p": 0.5, "repetition_penalty": 1.5, "suppress_tokens": [3, 4], "min_new_tokens": 4}
    for name, value in shipped.items():
        setattr(model.generation_config, name, value)
    plain = small_policy(max_new_tokens=5)
    sampling = SamplingConfig(temperature=0.7, max_new_tokens=5)
    policy = TransformersPolicy(model, tokenizer, sampling, chat=False)
    policy.eos_ids = plain.eos_ids
    assert policy.sample(PROMPT, 50, seed=2) == plain.sample(PROMPT, 50, seed=2)


def test_a_completion_ends_with_its_end_token_or_at_the_limit(policy):
    completions = policy.sample(PROMPT, 100, seed=4)
    for completion in completions:
        assert not set(completion.token_ids[:-1]) & set(policy.eos_ids)
        assert completion.finished == (completion.token_ids[-1] in policy.eos_ids)
        assert completion.finished or len(completion) == policy.sampling.max_new_tokens
        assert len(completion.log_probs) == len(completion)
    assert {each.finished for each in completions} == {True, False}


def test_a_seed_gives_the_same_completions_whatever_torch_drew_before_and_torch_draws_on(policy):
    torch.manual_seed(1)
    first = policy.sample(PROMPT, 20, seed=7)
    assert torch.equal(torch.rand(4), torch.rand(4, generator=torch.Generator().manual_seed(1)))
    torch.manual_seed(2)
    assert policy.sample(PROMPT, 20, seed=7) == first
    assert policy.sample(PROMPT, 20, seed=8) != first


def test_groups_hold_completions_of_their_own_prompts():
    policy = small_policy(batch_size=7)
    prompts = ["37+58=", "1", "9*9=", "5-1=", "12*34="]
    groups = policy.sample_groups(prompts, 5, seed=1)
    for prompt, group in zip(prompts, groups, strict=True):
        assert len(group) == 5
        own = policy.score(prompt, group)
        other = policy.score("0-0=", group)
        recorded = np.concatenate([each.log_probs for each in group])
        np.testing.assert_allclose(recorded, np.concatenate(own.log_probs), atol=2e-5)
        assert np.abs(recorded - np.concatenate(other.log_probs)).max() > 0.01
    assert policy.sample_groups(prompts, 5, seed=1) == groups


def test_dropout_is_off_in_sampling_and_comes_back_for_training():
    policy = small_policy()
    policy.model.config.attention_dropout = 0.5
    for layer in policy.model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    policy.model.train()
    completions = policy.sample(PROMPT, 10, seed=0)
    assert completions == small_policy().sample(PROMPT, 10, seed=0)
    assert policy.score(PROMPT, completions).log_probs == small_policy().score(PROMPT, completions).log_probs
    assert policy.model.training


def chat_policy(system=None) -> TransformersPolicy:
    """As base models come: the template closes turns by a token that is not the model's own end."""
    model, tokenizer = small_model()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = TEMPLATE
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return TransformersPolicy(model, tokenizer, SamplingConfig(max_new_tokens=3), chat=True, system=system)


def test_a_saved_model_ends_its_completions_where_the_policy_does(tmp_path):
    policy = chat_policy()
    policy.save(tmp_path / "model")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert model.generation_config.eos_token_id == list(policy.eos_ids)
    assert (model.generation_config.top_k, model.generation_config.top_p) == (0, 1.0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    again = TransformersPolicy(model, tokenizer, policy.sampling, chat=True)
    assert again.sample(PROMPT, 10, seed=0) == policy.sample(PROMPT, 10, seed=0)


def test_a_completion_beyond_the_context_is_refused_before_it_is_sampled():
    policy = small_policy(max_new_tokens=SIZE.context)
    with pytest.raises(ValueError, match=r"make 70 tokens.*holds 64; lower max_new_tokens"):
        policy.sample(PROMPT, 1, seed=0)


def test_chat_without_a_template_is_refused():
    model, tokenizer = small_model()
    with pytest.raises(ValueError, match="no chat template"):
        TransformersPolicy(model, tokenizer, SamplingConfig(), chat=True)
    with pytest.raises(ValueError, match="needs the chat template"):
        TransformersPolicy(model, tokenizer, SamplingConfig(), chat=False, system="Think.")
