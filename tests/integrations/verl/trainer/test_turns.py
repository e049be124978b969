"""A value for every turn on verl's real transfer queue, of rollouts as its agent loops write them down."""

import numpy as np
import pytest
import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from kaestat.credit.turn_estimator import TurnEstimator
from tests.helpers.tiny_verl import balance, compute, make_trainer, put, sample

TURNS = ("+algorithm.kaestat.turns=True", "+algorithm.kaestat.params.bandwidth=4")
TOLD = (*TURNS, "+algorithm.kaestat.turn_rewards=tool_rewards", "+algorithm.kaestat.turn_gamma=0.9")

WRITTEN = ("responses", "response_mask", "rm_scores", "extra_fields")


def rollout(uid, session, prompt, turns, outcome, tool_rewards=(), turn_scores=()):
    """An output of an agent loop as verl's own class makes it of turns of given lengths, tools answering in between."""
    mask = [bit for length in turns for bit in [1] * length + [0, 0]][:-2]
    output = AgentLoopOutput(
        prompt_ids=[1, 1, 1],
        response_ids=[1] * len(mask),
        response_mask=mask,
        reward_score=outcome,
        num_turns=2 * len(turns),
        metrics=AgentLoopMetrics(),
        extra_fields={"turn_scores": list(turn_scores), "tool_rewards": list(tool_rewards)},
    )
    plain = sample(uid, session, 0, f"What is {prompt} + 1?", prompt, outcome, len(mask))
    written = output.as_dict()
    return plain | {name: written[name] for name in WRITTEN}


def step_of(step, n_prompts=4):
    """Rollouts of one step: 1-3 sessions a prompt, each of 1-4 turns; every tool gave a reward.

    The last turn, too, may have called a tool whose answer was cut off.
    """
    rng = np.random.default_rng([step, 3])
    rows, told = [], []
    for prompt in rng.permutation(6)[:n_prompts].tolist():
        for session in range(rng.integers(1, 4)):
            lengths = rng.integers(1, 4, size=rng.integers(1, 5)).tolist()
            outcome, last = float(rng.random() < 0.5), [0.0] * (len(lengths) - 1)
            tools = rng.random(len(last) + rng.integers(2)).round(2).tolist()
            rows.append(rollout(f"u{step}p{prompt}", session, prompt, lengths, outcome, tools))
            told.append((prompt, lengths, [*tools[: len(last)], sum(tools[len(last) :], outcome)], [*last, outcome]))
    return rows, told


def at_tokens(lengths, of_turns):
    """Turns' numbers at their tokens, 0 at the tools' answers."""
    tokens = [[number] * length + [0.0, 0.0] for length, number in zip(lengths, of_turns, strict=True)]
    return torch.tensor([each for turn in tokens for each in turn][:-2], dtype=torch.float32)


@pytest.mark.parametrize(("options", "gamma", "told_by_tools"), [(TURNS, 1.0, False), (TOLD, 0.9, True)])
@pytest.mark.parametrize("method", ["kae", "kae_eb", "kaestat_rloo"])
def test_every_turn_has_its_advantage_at_its_tokens_after_verls_padding_and_reordering(
    queue, method, options, gamma, told_by_tools
):
    params = {} if method == "kaestat_rloo" else {"bandwidth": 4.0}
    options = [option for option in options if params or "bandwidth" not in option]
    trainer = make_trainer(*options, method=method)
    plain = TurnEstimator(method.removeprefix("kaestat_"), gamma=gamma, **params)
    several, padded = 0, 0
    for step in range(4):
        rows, told = step_of(step)
        batch = put(queue, rows)
        keys = list(batch.keys)
        batch = balance(trainer, batch)
        found, metrics = compute(queue, trainer, batch, step)
        rewards = [all_turns if told_by_tools else last for _, _, all_turns, last in told]
        expected = plain.step([prompt for prompt, *_ in told], rewards, step)
        for key, (_, lengths, *_), of_turns in zip(keys, told, expected, strict=True):
            torch.testing.assert_close(found[key], at_tokens(lengths, of_turns), rtol=1e-5, atol=1e-6)
            several += len(set(of_turns.tolist())) > 1
        for key in set(batch.keys) - set(keys):
            assert not found[key].any(), "a padding row has an advantage"
            padded += 1
    assert several and padded, "no completion of several turns, or no padding: the test shows nothing"
    assert metrics.keys() >= {"baseline/squared_error", "baseline/turn_1/squared_error"}


def test_scores_of_an_agent_loop_of_ones_own(queue):
    trainer = make_trainer(*TURNS, "+algorithm.kaestat.turn_rewards=turn_scores")
    row = rollout("u", 0, 7, [1, 1, 1], 1.0, turn_scores=[0.25, 0.5, 0.0])
    found, _ = compute(queue, trainer, put(queue, [row]), 0)
    assert found["u_0_0"].tolist() == [1.75, 0.0, 0.0, 1.5, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("field", "told"),
    [("tool_rewards", []), ("tool_rewards", [0.1] * 4), ("turn_scores", []), ("turn_scores", [0.1] * 2)],
)
def test_rewards_that_cannot_be_those_of_the_turns_are_refused(queue, field, told):
    trainer = make_trainer(*TURNS, f"+algorithm.kaestat.turn_rewards={field}")
    row = rollout("u", 0, 7, [1, 2, 1], 1.0, **{field: told})
    with pytest.raises(ValueError, match=rf"output 'u_0_0' has 3 turns and {len(told)} {field}"):
        compute(queue, trainer, put(queue, [row]), 0)


def test_a_session_of_several_outputs_is_refused(queue):
    rows = [rollout("u", 0, 7, [1], 1.0), rollout("u", 0, 7, [2], 1.0) | {"output": 1}]
    with pytest.raises(ValueError, match="session 'u_0' has several outputs"):
        compute(queue, make_trainer(*TURNS), put(queue, rows), 0)


def test_versions_of_asynchronous_rollouts_are_those_of_their_turns(queue):
    trainer = make_trainer(*TURNS, mode="kaestat_colocate_async")
    plain = TurnEstimator("kae", bandwidth=4.0, order="any")
    for step, versions in enumerate([(0, 0), (0, 1), (1, 2), (1, 1)]):
        rows = [rollout(f"u{step}", k, 7, [1, 1 + k], float(k)) for k in range(2)]
        tags = [{"global_steps": 1, "min_global_steps": 0, "max_global_steps": version} for version in versions]
        found, _ = compute(queue, trainer, put(queue, rows, tags), step)
        expected = plain.step([7, 7], [[0.0, 0.0], [0.0, 1.0]], step, version=list(versions))
        for k, of_turns in enumerate(expected):
            torch.testing.assert_close(found[f"u{step}_{k}_0"], at_tokens([1, 1 + k], of_turns), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("+algorithm.kaestat.turn_gamma=0.5",), r"turn_gamma needs algorithm\.kaestat\.turns=True"),
        ((*TURNS, "+algorithm.kaestat.turn_rewards=scores"), "write tool_rewards or turn_scores"),
        ((*TURNS, "+algorithm.kaestat.turn_gamma=2"), "gamma"),
        ((*TURNS, "+algorithm.kaestat.weights=length"), "weights is not for turns"),
        ((*TURNS, "+algorithm.kaestat.prompt_sampler=neyman"), "prompt_sampler is not for turns"),
        ((*TURNS, "algorithm.filter_groups.enable=True"), "filter_groups drops groups"),
        ((*TOLD, "actor_rollout_ref.rollout.multi_turn.max_parallel_calls=2"), "max_parallel_calls=2"),
    ],
)
def test_options_that_do_not_go_with_turns_are_refused_before_workers_start(options, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(*options)
