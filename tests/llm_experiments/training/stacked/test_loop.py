"""A stack's runs are what each would be alone, and what a plain loop over transformers makes of the same numbers."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from kaestat import AdvantageEstimator
from llm_experiments.seeding import seed_of
from llm_experiments.training.stacked.config import Design, StackConfig
from llm_experiments.training.stacked.loop import Epochs, StackedTraining

from .conftest import SEEDS

RATES = (3e-3, 1e-3, 3e-4)
DESIGNS = {
    "group": Design(method="grpo", group_size=4),
    "history": Design(method="kae_eb"),
    "weights in Adam's units": Design(method="kae_eb", weights="adam"),
}


def config(design, **changes):
    settings = {"completions": 8, "budget": 64, "max_new_tokens": 4} | changes
    return StackConfig(design=design, **settings)


def easy(monkeypatch):
    """Rewards that untrained models get about half of: the first letter's number is even."""
    monkeypatch.setattr(
        "llm_experiments.training.stacked.loop.grade", lambda task, problem, text: float(sum(map(ord, text)) % 2)
    )


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS)
def test_a_stacks_runs_are_those_of_stacks_of_one(design, folders, pools, codec, monkeypatch):
    easy(monkeypatch)
    together = StackedTraining(config(design), folders, pools, SEEDS, codec, RATES)
    facts = [together.advance() for _ in range(4)]
    for run, seed in enumerate(SEEDS):
        alone = StackedTraining(config(design), [folders[run]], [pools[run]], [seed], codec, [RATES[run]])
        for fact in facts:
            assert {name: each[0] for name, each in alone.advance().items()} == pytest.approx(
                {name: each[run] for name, each in fact.items()}, rel=1e-4
            )
        for name, weight in alone.parameters.items():
            torch.testing.assert_close(weight[0], together.parameters[name][run], rtol=1e-4, atol=1e-5)
    assert any(fact["live"].max() > 0 for fact in facts)


def test_a_run_is_that_of_a_plain_loop(folders, pools, codec, monkeypatch):
    """The slow reference: transformers' model, torch's clipping and optimiser, one seed, whole sequences each time."""
    easy(monkeypatch)
    fast = StackedTraining(config(DESIGNS["history"]), folders[:1], pools[:1], SEEDS[:1], codec, RATES[:1])
    model = AutoModelForCausalLM.from_pretrained(folders[0], dtype=torch.float32).eval()
    steps = torch.optim.AdamW(list(model.parameters()), 3e-3, weight_decay=0.0)
    problems, estimator = pools[0].problems, AdvantageEstimator("kae_eb")
    ids = [problem.id for problem in problems]
    source = Epochs(len(ids), 1, seed_of(SEEDS[0], "prompts") % 2**32)
    random = torch.Generator().manual_seed(seed_of(SEEDS[0], "tokens") % 2**63)
    for step in range(4):
        fact = fast.advance()
        rows = source.batch(8)
        prompts = codec.tokens([problems[row].prompt for row in rows])
        uniforms, tokens = torch.rand(8, 4, generator=random), prompts
        for place in range(4):
            with torch.no_grad():
                mass = model(input_ids=tokens).logits[:, -1].softmax(-1).cumsum(-1)
            drawn = torch.searchsorted(mass / mass[:, -1:], uniforms[:, place, None].contiguous(), right=True)
            tokens = torch.cat([tokens, drawn], 1)
        start = prompts.shape[1]
        completions = tokens[:, start:]
        counted = torch.ones(8, 4)
        for row, one in enumerate(completions.tolist()):
            if codec.end in one:
                counted[row, one.index(codec.end) + 1 :] = 0
        rewards = np.array([float(sum(map(ord, text)) % 2) for text in codec.texts(completions)])
        assert rewards.mean() == fact["reward"][0]
        advantages = torch.from_numpy(estimator.step([ids[row] for row in rows], rewards, step)).float()
        scores = model(input_ids=tokens).logits[:, start - 1 : -1].log_softmax(-1)
        scores = scores.gather(-1, completions[..., None])[..., 0]
        steps.zero_grad()
        (-(advantages[:, None] * scores * counted).sum() / counted.sum()).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert float(norm) == pytest.approx(fact["gradient_norm"][0], rel=1e-3)
        steps.step()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(fast.parameters[name][0], weight, rtol=1e-3, atol=1e-5)


def filtered(folders, pools, codec):
    """A filtered training, and the facts of its first step."""
    training = StackedTraining(
        config(Design(method="grpo", group_size=2, filtered=True)), folders, pools, SEEDS, codec, RATES
    )
    return training, training.advance()


def test_a_filtered_step_has_live_groups_counts_what_was_dropped_and_ends_where_nothing_is_live(
    folders, pools, codec, monkeypatch
):
    easy(monkeypatch)
    training, fact = filtered(folders, pools, codec)
    assert (fact["live"] == 1).all()
    assert (training.generated >= 8).all() and training.generated.max() > 8
    assert (fact["reward"] == 0.5).all()
    monkeypatch.setattr("llm_experiments.training.stacked.loop.grade", lambda *_: 1.0)
    training, fact = filtered(folders, pools, codec)
    assert (fact["live"] == 0).all() and (training.generated == 80).all()


def test_no_batch_has_a_prompt_twice_and_every_epoch_has_all():
    source = Epochs(7, 2, seed=0)
    batches = [source.batch(4)[::2].tolist() for _ in range(14)]
    assert all(len(set(batch)) == 4 for batch in batches)
    drawn = [row for batch in batches for row in batch]
    assert all(sorted(drawn[start : start + 7]) == list(range(7)) for start in range(0, 56, 7))
    with pytest.raises(ValueError, match="a step has 8 groups, but there are 7 prompts"):
        source.batch(8)


def advantages_of(design, folders, pools, codec):
    """Advantages and rewards of the first two steps of one run."""
    training = StackedTraining(config(design), folders[:1], pools[:1], SEEDS[:1], codec, RATES[:1])
    step, found = training.runs[0].estimator.step, []

    def seen(ids, rewards, number, weights):
        found.append((step(ids, rewards, number, weights=weights), rewards, list(ids)))
        return found[-1][0]

    training.runs[0].estimator.step = seen
    facts = [training.advance() for _ in range(2)]
    return found, facts


def test_signed_rewards_change_no_baseline_but_none(folders, pools, codec, monkeypatch):
    easy(monkeypatch)
    found, facts = advantages_of(Design(method="none", coding="signed"), folders, pools, codec)
    assert set(found[0][0]) == {-1.0, 1.0}, "without a baseline a wrong answer is now a step away from it"
    assert 0 < facts[0]["reward"][0] < 1, "what is reported stays the share of right answers"
    (plain, _, _), _ = advantages_of(Design(method="rloo", group_size=4), folders, pools, codec)[0]
    (signed, _, _), _ = advantages_of(Design(method="rloo", group_size=4, coding="signed"), folders, pools, codec)[0]
    np.testing.assert_allclose(signed, 2 * plain, atol=1e-12)


def test_one_history_for_all_prompts_is_one_number_besides_the_own_reward(folders, pools, codec, monkeypatch):
    easy(monkeypatch)
    found, _ = advantages_of(Design(method="kae:bandwidth=10", keys="all"), folders, pools, codec)
    (first, rewards, ids), (second, later, _) = found
    assert set(ids) == {"all"}
    np.testing.assert_allclose(rewards - first, (rewards.sum() - rewards) / 7)
    past, now = 2 * (1 - 1 / 10), 2  # the triangular kernel at lags 1 and 0
    wanted = (past * rewards.sum() + now * (later.sum() - later)) / (past * 8 + now * 7)
    np.testing.assert_allclose(later - second, wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "grpo", "group_size": 1, "filtered": True}, "group_size above 1"),
        ({"method": "kae", "group_size": 2, "filtered": True}, "history of 'kae' would have the kept groups alone"),
        ({"method": "kae", "group_size": 4, "keys": "all"}, "one baseline for all prompts"),
        ({"method": "reinforce++", "weights": "adam"}, "same without weights=adam; set scale='none'"),
        ({"method": "kae", "keys": "all", "scale": "batch_std", "weights": "adam"}, "takes it out again"),
        ({"method": "spo", "weights": "adam"}, "does not average rewards"),
    ],
)
def test_designs_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Design(**changes)


def test_steps_have_whole_groups_and_each_seed_a_model_and_a_pool(folders, pools, codec):
    with pytest.raises(ValueError, match="multiple of group_size"):
        config(Design(method="grpo", group_size=3))
    with pytest.raises(ValueError, match="each of the 3 seeds"):
        StackedTraining(config(DESIGNS["group"]), folders[:2], pools, SEEDS, codec, RATES)
