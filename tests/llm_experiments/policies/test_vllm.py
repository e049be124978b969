"""The vLLM policy against the transformers policy at the same weights: a small random model, really run by vLLM."""

import random
import shutil

import numpy as np
import pytest
import torch

from llm_experiments.config import SamplingConfig
from llm_experiments.policies import vllm_engine
from llm_experiments.policies.tiny import TinySize, tiny_model
from llm_experiments.policies.transformers_policy import TransformersPolicy
from llm_experiments.policies.vllm_policy import VllmPolicy
from tests.helpers.small_policies import small_policy
from tests.helpers.statistical import Discrepancy, check_mean

pytestmark = pytest.mark.vllm

SIZE = TinySize(width=128, layers=2, heads=4, key_value_heads=2, feed_forward=64, context=128)
PROMPTS = ["12+34=", "7+8=", "a much longer prompt than the others: 1+1="]
KINDS = {"tied": (True, "float32"), "untied": (False, "float32"), "bfloat16": (True, "bfloat16")}


def random_policy(seed: int, tied: bool, dtype: str) -> TransformersPolicy:
    """A random policy in either type, its output layer tied to the embeddings or not.

    Its matrices are enlarged so that the whole context matters, not the last token alone.
    """
    policy = small_policy(seed, size=SIZE, sharpness=4.0, max_new_tokens=8)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if weight.ndim == 2 and "embed" not in name:
                weight *= 6
    if not tied:
        generation = policy.model.generation_config
        config = policy.model.config.to_dict() | {"tie_word_embeddings": False}
        model = type(policy.model)(type(policy.model.config)(**config))
        model.load_state_dict(policy.model.state_dict())
        with torch.no_grad():
            model.lm_head.weight *= 0.9
        model.generation_config = generation
        policy = TransformersPolicy(model, policy.tokenizer, policy.sampling, chat=False)
    policy.model.to(getattr(torch, dtype))
    return policy


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request):
    return KINDS[request.param]


@pytest.fixture(scope="module")
def folders(kind, tmp_path_factory):
    """Model folders of two random policies."""
    root = tmp_path_factory.mktemp("models")
    for seed in (0, 1):
        random_policy(seed, *kind).save(root / str(seed))
    return [root / "0", root / "1"]


@pytest.fixture(scope="module")
def reference(kind):
    return random_policy(0, *kind)


@pytest.fixture(scope="module")
def policy(reference, folders):
    policy = VllmPolicy(reference, folders[0])
    yield policy
    policy.close()


def test_both_engines_give_sampled_tokens_the_same_tempered_log_probabilities(policy, reference):
    policy.check_agreement(reference, PROMPTS, n=16)


def test_log_probabilities_are_not_those_before_the_temperature(policy, reference):
    completions = policy.sample(PROMPTS[0], 8, seed=1)
    untempered = TransformersPolicy(reference.model, reference.tokenizer, SamplingConfig(temperature=1.0), chat=False)
    untempered.eos_ids = reference.eos_ids
    scored = untempered.score(PROMPTS[0], completions).log_probs
    assert np.mean(np.abs(np.concatenate([c.log_probs for c in completions]) - np.concatenate(scored))) > 0.2


def test_completions_end_at_the_first_end_token_or_at_the_limit(policy):
    completions = policy.sample(PROMPTS[1], 96, seed=2)
    assert len(completions) == 96
    for completion in completions:
        *inner, last = completion.token_ids
        assert not set(inner) & set(policy.eos_ids)
        assert completion.finished == (last in policy.eos_ids)
        assert completion.finished or len(completion) == policy.sampling.max_new_tokens
        assert len(completion.log_probs) == len(completion) and max(completion.log_probs) <= 0
        assert completion.text == policy.tokenizer.decode(completion.token_ids, skip_special_tokens=True)
    assert {completion.finished for completion in completions} == {True, False}
    assert len({len(completion) for completion in completions}) > 4


def test_the_seed_decides_the_completions_whatever_was_drawn_before(policy):
    first = policy.sample(PROMPTS[0], 80, seed=3)
    policy.sample_groups(PROMPTS[1:], 5, seed=4)
    torch.manual_seed(17)
    assert policy.sample(PROMPTS[0], 80, seed=3) == first
    assert policy.sample(PROMPTS[0], 80, seed=5) != first
    assert len({completion.token_ids for completion in first}) > 60


def test_sampling_leaves_the_global_generators_alone(policy):
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    policy.sample(PROMPTS[0], 4, seed=6)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assert after == states


def test_tokens_are_drawn_from_the_full_tempered_distribution(policy, reference):
    """The mean log-probability of a draw is minus the entropy, of this temperature and no other."""
    drawn = np.array([completion.log_probs[0] for completion in policy.sample(PROMPTS[0], 1500, seed=8)])
    ids = torch.tensor([reference.encode(PROMPTS[0])])
    with torch.no_grad():
        logits = reference.model(input_ids=ids).logits[0, -1].double()

    def mean_log_probability(temperature: float) -> float:
        log_pi = (logits / reference.sampling.temperature).log_softmax(-1)
        return float(((logits / temperature).softmax(-1) * log_pi).sum())

    check_mean(drawn, target=mean_log_probability(reference.sampling.temperature), detect=0.35)
    with pytest.raises(Discrepancy):
        check_mean(drawn, target=mean_log_probability(1.0), detect=0.35)


def test_new_weights_replace_the_old_ones_in_place(policy, reference, folders, kind):
    before = policy.sample(PROMPTS[0], 8, seed=9)
    policy.load_weights(folders[1])
    policy.check_agreement(random_policy(1, *kind), PROMPTS)
    assert policy.sample(PROMPTS[0], 8, seed=9) != before
    policy.load_weights(folders[0])
    policy.check_agreement(reference, PROMPTS)
    assert policy.sample(PROMPTS[0], 8, seed=9) == before


def test_an_output_layer_with_old_weights_is_noticed(policy, folders, kind, monkeypatch):
    """vLLM's own reload on CPU forgets the packed copy of an output layer tied to the embeddings."""
    tied, _ = kind
    moved = random_policy(1, *kind)
    monkeypatch.setattr(vllm_engine, "_pack_embeddings", lambda model: None)
    policy.load_weights(folders[1])
    if tied and vllm_engine._on_cpu():
        with pytest.raises(RuntimeError, match="tied to the embeddings above all"):
            policy.check_agreement(moved, PROMPTS)
    else:
        policy.check_agreement(moved, PROMPTS)
    monkeypatch.undo()
    policy.load_weights(folders[0])


def test_another_architecture_is_refused_and_the_weights_stay(policy, reference, folders, tmp_path):
    wide = tiny_model(reference.tokenizer, 0, TinySize(width=128, layers=1, heads=4, feed_forward=64, context=128))
    wide.save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match="num_hidden_layers is 1 there and 2 here"):
        policy.load_weights(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        policy.load_weights(tmp_path)
    shutil.copytree(folders[1], tmp_path / "empty", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(FileNotFoundError, match="no safetensors"):
        policy.load_weights(tmp_path / "empty")
    policy.check_agreement(reference, PROMPTS)


def test_arguments_out_of_range_are_refused(policy, reference):
    with pytest.raises(ValueError, match="n must be at least 1"):
        policy.sample(PROMPTS[0], 0, seed=0)
    with pytest.raises(ValueError, match="seed must be at least 0"):
        policy.sample(PROMPTS[0], 1, seed=-1)
    with pytest.raises(ValueError, match="the model's context holds 128"):
        policy.sample("x" * 121, 1, seed=0)
    assert len(policy.sample("x" * 120, 1, seed=0)) == 1  # one completion
