"""A value for every turn of an agent that calls tools, on data as TRL has it.

TRL marks tokens that the model wrote by 1 and tools' answers by 0 (``tool_mask``), and its loss takes an advantage for
each token. In a subclass of ``GRPOTrainer``, put the result of `token_advantages` into ``output["advantages"]`` at the
end of ``_generate_and_score_completions``, and save the estimator with each checkpoint.
"""

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.estimator.turns import TurnEstimator


def token_advantages(turns, prompts, tool_mask, earned, outcomes, step):
    """The advantage of each token's turn, (N, T); 0 for tools' answers and padding.

    ``earned`` has a list for each completion, what each of its turns earned. The outcome belongs to the last turn.
    """
    mask = np.asarray(tool_mask, dtype=bool)
    begins = mask & ~np.pad(mask, ((0, 0), (1, 0)))[:, :-1]
    turn = begins.cumsum(axis=1) - 1
    rewards = [np.array(each, dtype=float) for each in earned]
    for row, outcome in enumerate(outcomes):
        assert len(rewards[row]) == begins[row].sum(), "a number for each turn"
        rewards[row][-1:] += outcome
    found = np.zeros(mask.shape)
    for row, advantages in enumerate(turns.step(prompts, rewards, step)):
        found[row, mask[row]] = advantages[turn[row, mask[row]]]
    return found


def conversation(rng, chance, turns=4):
    """Mask, what the turns earned, and outcome: each turn leads to the next unless it goes wrong."""
    mask, earned, right = [], [], True
    while right and len(earned) < turns:
        mask += [1, 1, 0]  # two tokens and a tool's answer of one
        right = rng.random() < chance
        earned.append(0.0)
    return mask[:-1], earned, float(right)


def main(prompts=64, group=2, steps=50, warm=20):
    """Print the noise of the gradient with a value per turn, as a share of that with one advantage per completion."""
    rng = np.random.default_rng(0)
    ids, chances = np.repeat(np.arange(prompts), group), np.repeat(rng.uniform(0.5, 0.95, prompts), group)
    whole, turns = AdvantageEstimator("kae"), TurnEstimator("kae", turns=4)
    squares = []
    for step in range(steps):
        masks, earned, outcomes = zip(*(conversation(rng, chance) for chance in chances), strict=True)
        mask = np.array([each + [0] * (11 - len(each)) for each in masks])
        of_turns = token_advantages(turns, ids, mask, earned, outcomes, step)
        of_completions = whole.step(ids, outcomes, step)[:, None] * mask
        if step >= warm:
            squares.append([(of_turns**2).sum(), (of_completions**2).sum()])
    per_turn, per_completion = np.sum(squares, axis=0)
    print(f"noise with a value per turn: {per_turn / per_completion:.2f} of that with a value per completion")


if __name__ == "__main__":
    main()
