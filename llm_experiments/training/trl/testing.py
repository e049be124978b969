"""Held-out accuracy along a run: greedy, at a temperature, and pass@k, with errors over problems."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from llm_experiments.evaluation.accuracy import accuracy, pass_at_k
from llm_experiments.policies.transformers_policy import TransformersPolicy
from llm_experiments.seeding import seed_of
from llm_experiments.tasks.base import Problem, Task


@dataclass(frozen=True, eq=False)
class HeldOutTest:
    """The problems of a run's tests, and how they are asked.

    problems: Those of the task's that training does not see.
    samples: Completions per problem.
    temperature: Of these completions; None takes the policy's.
    """

    task: Task
    problems: Sequence[Problem]
    samples: int
    seed: int
    temperature: float | None = None

    def run(self, policy: TransformersPolicy, step: int) -> dict[str, list]:
        """Rewards of greedy answers and of sampled ones, as plain data.

        Torch's global random state is left as it was, so that testing more or less often changes no training.

        policy: Sharing the weights of the model in training.
        step: Training steps made.
        """
        prompts = [problem.prompt for problem in self.problems]
        with torch.no_grad():
            greedy = policy.greedy(prompts)
            sampler = policy.at_temperature(self.temperature)
            groups = sampler.sample_groups(prompts, self.samples, seed=seed_of(self.seed, "test", step))
        sampled = self._grade([each for group in groups for each in group], self.samples)
        return {
            "greedy": self._grade(greedy, 1),
            "sampled": [sampled[start : start + self.samples] for start in range(0, len(sampled), self.samples)],
        }

    def _grade(self, completions: Sequence, samples: int) -> list[float]:
        """Rewards of the completions of all problems, ``samples`` of each in a row."""
        problems = [problem for problem in self.problems for _ in range(samples)]
        return self.task.grade(problems, [each.text for each in completions], patient=True)


def summarise(record: dict[str, list]) -> dict[str, float]:
    """The figures of one test.

    Returns: ``greedy, greedy_se, accuracy, accuracy_se, pass_at_samples, n_problems, samples``; errors over problems.
        Greedy is NaN where no such answers were taken, as on verl.
    """
    sampled = np.array(record["sampled"])
    drawn = accuracy(sampled, n_boot=0)
    best = accuracy(np.array(record["greedy"])[:, None], n_boot=0) if "greedy" in record else None
    return {
        "greedy": np.nan if best is None else best.mean,
        "greedy_se": np.nan if best is None else best.se,
        "accuracy": drawn.mean,
        "accuracy_se": drawn.se,
        "pass_at_samples": float(pass_at_k(sampled, sampled.shape[1]).mean()),
        "n_problems": len(sampled),
        "samples": sampled.shape[1],
    }
