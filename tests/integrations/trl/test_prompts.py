"""Ids of prompts: a column of the data set or a hash, watched either way."""

from importlib.resources import files

import pytest
from datasets import Dataset

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.prompt_ids import UnstablePromptIds, hash_prompt
from llm_experiments.policies.tiny import TinySize
from tests.helpers.tiny_trl import RecordingTrainer, questions, tiny_trainer, train_tiny


def trained(folder, dataset, prompt_id, **config):
    estimator, options = AdvantageEstimator("kae", bandwidth=5.0), {"prompt_id": prompt_id}
    return train_tiny(folder, estimator, dataset=dataset, trainer_options=options, **config)


def test_a_column_that_is_not_there_raises_with_the_columns_that_are(tmp_path):
    with pytest.raises(UnstablePromptIds, match=r"'uid'.*prompt, question_id.*remove_unused_columns=False"):
        trained(tmp_path, questions(4), "uid")
    with pytest.raises(UnstablePromptIds, match="remove_unused_columns=False"):
        trained(tmp_path, questions(4), "question_id", remove_unused_columns=True)


class Environment:
    """Gives its tasks out one after the other, each twice; the row of the data set is not asked."""

    made = 0

    def __init__(self):
        self.task, self.reward = divmod(type(self).made, 2)
        type(self).made += 1

    def reset(self, **_):
        return f"task {self.task}"

    def look(self) -> str:
        """Look around.

        Returns:
            What is seen.
        """
        return "nothing"

    def get_reward(self):
        return float(self.reward)


class Talkative(Environment):
    """Begins every conversation with other words."""

    spoken = 0

    def reset(self, **_):
        type(self).spoken += 1
        return f"Greeting number {self.spoken}. Solve your task."


def in_environment(folder, environment, trainer_class=RecordingTrainer, trainer_options=None):
    environment.made = 0
    return tiny_trainer(
        folder,
        AdvantageEstimator("kae", bandwidth=5.0),
        reward=None,
        dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": "Go: "}]] * 4, "question_id": [f"q{k}" for k in range(4)]}
        ),
        chat_template=(files("trl") / "chat_templates" / "qwen3.jinja").read_text(),
        size=TinySize(width=16, layers=1, heads=2, key_value_heads=1, feed_forward=16, context=2048),
        max_steps=2,
        trainer_class=trainer_class,
        trainer_options={"environment_factory": environment} | (trainer_options or {}),
    )


def test_prompts_that_an_environment_deals_out_are_told_apart_by_what_it_says(tmp_path):
    # The data set holds one empty prompt for all; a hash of that would be one id for every task.
    trainer = in_environment(tmp_path, Environment)
    trainer.train()
    assert len(trainer.advantage_estimator.history) == 4
    keys = [hash_prompt([{"role": "user", "content": f"Go: task {task}"}]) for task in range(4)]
    assert (trainer.advantage_estimator.history.visits(keys, 2).count.sum(axis=1) == 4).all()


class Unchecked(RecordingTrainer):
    check_prompts = False


def test_an_environment_whose_first_words_vary_is_refused_unless_they_may(tmp_path):
    named = {"trainer_options": {"prompt_id": "question_id"}}
    with pytest.raises(UnstablePromptIds, match="names two prompts"):
        in_environment(tmp_path, Talkative, **named).train()
    trainer = in_environment(tmp_path, Talkative, trainer_class=Unchecked, **named)
    trainer.train()
    visits = trainer.advantage_estimator.history.visits(["q0", "q1", "q2", "q3"], 2)
    assert (visits.count.sum(axis=1) == 4).all() and len(trainer.advantage_estimator.history) == 4


def test_prompts_that_are_not_checked_need_a_column_that_is(tmp_path):
    with pytest.raises(ValueError, match=r"check_prompts=False.*name a column"):
        in_environment(tmp_path, Talkative, trainer_class=Unchecked)
