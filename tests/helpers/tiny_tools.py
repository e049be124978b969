"""A tool loop of TRL's that a tiny, untrained model really walks through: any capital letter calls the tool."""

from pathlib import Path

from datasets import Dataset

from kaestat import AdvantageEstimator
from kaestat.credit.turn_estimator import TurnEstimator
from kaestat.integrations.trl import BaselineGRPOTrainer, TurnGRPOTrainer
from llm_experiments.policies.tiny import TinySize
from tests.helpers.tiny_trl import end_at_every, parity_reward, tiny_trainer

CHAT = (
    "{% for m in messages %}{{ m['role'][0] + ':' + m['content'] }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name + (call.function.arguments | tojson) }}{% endfor %}"
    "{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
CALLS = {
    "defaults": {"role": "assistant"},
    "start_anchor": "a:",
    "fields": {
        "tool_calls": {
            "open_pattern": r"[A-Z]",
            "close_pattern": r"$",
            "repeats": True,
            "content": "text",
            "transform": {"type": "function", "function": {"name": "look", "arguments": {}}},
        },
        "content": {"close_pattern": r"$", "content": "text"},
    },
}


def look() -> str:
    """Look around.

    Returns:
        What is seen.
    """
    return "a wall"


def spoken(completion: list[dict]) -> list[str]:
    """What the model said in each of its turns."""
    return [message["content"] for message in completion if message["role"] == "assistant"]


def rewards_of_turns(completions, **_) -> list[list[float]]:
    """One for every turn in which something was said before the tool was called."""
    return [[float(len(text) % 3 == 0) for text in spoken(completion)] for completion in completions]


class RecordingTurns(TurnGRPOTrainer):
    """Keeps what went into and came out of each generation."""

    def __init__(self, *args, **kwargs):
        self.batches: list[dict] = []
        super().__init__(*args, **kwargs)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._now = {
            "ids": [row["question_id"] for row in inputs],
            "completions": completions,
            "outcomes": rewards.clone(),
            "training": self.model.training,
        }
        return rewards

    def _generate_and_score_completions(self, inputs):
        output = super()._generate_and_score_completions(inputs)
        self.batches.append(self._now | {"output": {name: value for name, value in output.items()}})
        return output


def tool_trainer(
    folder: Path,
    estimator: TurnEstimator | AdvantageEstimator,
    *,
    trainer_class: type[BaselineGRPOTrainer] = RecordingTurns,
    turn_rewards=rewards_of_turns,
    trainer_options: dict | None = None,
    n_prompts: int = 4,
    reward=parity_reward,
    response_template: dict | None = None,
    dataset: Dataset | None = None,
    **config,
) -> BaselineGRPOTrainer:
    """A trainer whose generation batch has 8 completions of four prompts, each of one turn or several."""
    options = {"tools": [look], "prompt_id": "question_id"} | (trainer_options or {})
    if isinstance(estimator, TurnEstimator):
        options["turn_rewards"] = turn_rewards
    prompts = [[{"role": "user", "content": f"{k}+1="}] for k in range(n_prompts)]
    questions = Dataset.from_dict({"prompt": prompts, "question_id": [f"q{k}" for k in range(n_prompts)]})
    trainer = tiny_trainer(
        folder,
        estimator,
        dataset=questions if dataset is None else dataset,
        reward=reward,
        trainer_class=trainer_class,
        trainer_options=options,
        chat_template=CHAT,
        response_template=CALLS if response_template is None else response_template,
        size=TinySize(width=16, layers=1, heads=2, key_value_heads=1, feed_forward=16, context=256),
        **{"max_completion_length": 48, "max_tool_calling_iterations": 5} | config,
    )
    end_at_every(trainer, 5)  # a turn ends after five tokens on average
    return trainer
