"""The trainer itself, fed row by row, through the conformance kit; test_sampling has the prompts that it draws."""

import numpy as np
import pytest

from kaestat.integrations.shared import conformance
from tests.helpers.tiny_trl import questions, tiny_trainer


def given_reward(reward, **_):
    """The reward that stands in the row; None for padding."""
    return list(reward)


def no_rollout(prompts, trainer):
    """Completions of one token, to be quick."""
    n = len(prompts)
    return {"prompt_ids": [[1]] * n, "completion_ids": [[2]] * n, "logprobs": [[0.0]] * n}


class OneTrainer:
    """The adapter: one trainer's method that TRL calls for every generation batch."""

    def __init__(self, folder, estimator, prompt_id):
        self._trainer = tiny_trainer(
            folder,
            estimator,
            reward=given_reward,
            num_generations=1,  # so that rows may come in any order and number
            dataset=questions(8),
            trainer_options={"prompt_id": prompt_id, "rollout_func": no_rollout},
        )
        self._trainer.model.train()

    def advantages(self, rows: conformance.Rows) -> np.ndarray:
        # TRL has no padding rows; a completion without a reward is its nearest kin.
        rewards = [None if pad else reward for reward, pad in zip(rows.rewards.tolist(), rows.padding, strict=True)]
        batch = [
            {"prompt": prompt, "id": key, "reward": reward}
            for prompt, key, reward in zip(rows.prompts, rows.ids, rewards, strict=True)
        ]
        self._trainer.generation = rows.step  # a trainer that comes to a step twice
        return self._trainer._generate_and_score_completions(batch)["advantages"].numpy()

    def state(self):
        return self._trainer.session.state_dict()

    def restore(self, state) -> None:
        self._trainer.session.load_state_dict(state)


@pytest.mark.filterwarnings("ignore:You are using 'rollout_func'")
@pytest.mark.parametrize("prompt_id", ["id", None])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_the_trainer_conforms(check, prompt_id, tmp_path):
    check(lambda estimator: OneTrainer(str(tmp_path), estimator, prompt_id))
