"""Train on sums of two digits with one completion per prompt, and a baseline from each prompt's past rewards.

pip install '.[trl]'
python examples/train_with_trl.py --model Qwen/Qwen2.5-0.5B-Instruct
"""

import argparse
import itertools

import torch
from datasets import Dataset

from kaestat import AdvantageEstimator
from kaestat.integrations.trl import BaselineGRPOConfig, BaselineGRPOTrainer

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True, help="A hub id, or a folder with a model and its tokenizer.")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--out", default="runs/sums")
arguments = parser.parse_args()

sums = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in itertools.product(range(10), repeat=2)]


def reward(completions, answer, **_):
    """1 where the first word is the right sum, else 0."""
    return [float(text.split()[:1] == [right]) for text, right in zip(completions, answer, strict=True)]


estimator = AdvantageEstimator()
trainer = BaselineGRPOTrainer(
    advantage_estimator=estimator,
    model=arguments.model,
    reward_funcs=reward,
    train_dataset=Dataset.from_list(sums),
    args=BaselineGRPOConfig(
        output_dir=arguments.out,
        max_steps=arguments.steps,
        num_generations=1,  # one completion per prompt: the baseline comes from the past
        per_device_train_batch_size=32,
        max_completion_length=8,
        learning_rate=1e-5,
        bf16=torch.cuda.is_available(),
        report_to="none",
    ),
)
trainer.train()
print(estimator)
