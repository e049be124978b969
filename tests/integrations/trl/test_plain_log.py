"""The reward wrapper of the page on logs, for those who train with TRL and without us."""

import re
from pathlib import Path

from trl import GRPOConfig, GRPOTrainer

import kaestat
from tests.helpers.tiny_trl import SIZE, parity_reward, questions, tiny_model, tiny_tokenizer

PAGE = Path(kaestat.__file__).parents[1] / "docs" / "guide" / "logs.md"
QUICK = {"max_steps": 2, "save_strategy": "no", "report_to": "none", "use_cpu": True, "bf16": False}
SIZES = {"per_device_train_batch_size": 8, "num_generations": 2, "max_completion_length": 4}


def test_the_wrapper_writes_every_graded_completion_of_a_plain_run_with_its_prompt_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [
        code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def logged" in code
    ]
    names: dict = {}
    exec(compile(block, "logs.md", "exec"), names)
    seen = []

    def reward(**columns):
        rewards = parity_reward(**columns)
        rewards[7] = None if not seen else rewards[7]
        seen.extend(zip(columns["question_id"], [len(seen) // 8] * 8, rewards, strict=True))
        return rewards

    GRPOTrainer(
        model=tiny_model(tokenizer := tiny_tokenizer(), seed=0, size=SIZE),
        reward_funcs=names["logged"](reward),
        args=GRPOConfig(output_dir=str(tmp_path), gradient_checkpointing=False, **QUICK, **SIZES),
        train_dataset=questions(4),
        processing_class=tokenizer,
    ).train()
    log = kaestat.read_log(tmp_path / "rewards-0.jsonl")
    found = sorted((log.prompts[row.prompt], row.step, row.reward) for row in log.frame.itertuples())
    assert len(seen) == 16 and found == sorted(row for row in seen if row[2] is not None)
