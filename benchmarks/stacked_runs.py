"""What several runs as one batched computation save: an update of each of them, against one run alone.

Alone is a plain loop: transformers' ``generate``, rewards, `AdvantageEstimator`, a forward and backward pass, torch's
clipping and AdamW. Both train a small model of the world of habits on its prompts, 32 completions of six tokens a step,
``kae_eb`` with one completion per prompt. Processor time on one thread, since others used the machine; the loops take
turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.report import show
from benchmarks.rows import Row
from benchmarks.timing import estimate, ratio

CODE = ("llm_experiments/training",)
CLAIM = "Eight runs in one stack take at most a quarter of what each would take alone"
SIZES = {"full": (8, 48, 40), "tiny": (2, 16, 3)}
COMPLETIONS, TOKENS, RATE, WARM_UP = 32, 6, 4e-4, 2


def run(size: str = "full") -> list[Row]:
    """Milliseconds of an update per run, and their ratio."""
    import torch

    runs, width, updates = SIZES[size]
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = _made(Path(folder) / "model", width)
        stacked, single, alone = _stack(model, runs), _stack(model, 1), _alone(model)
        spent: dict[str, list[float]] = {"stack": [], "stack of one": [], "alone": []}
        for _ in range(WARM_UP + updates):
            for name, advance, each in (("stack", stacked, runs), ("stack of one", single, 1), ("alone", alone, 1)):
                begin = time.process_time()
                advance()
                spent[name].append((time.process_time() - begin) / each)
    kept = {name: np.array(seconds)[WARM_UP:] for name, seconds in spent.items()}
    case = f"{runs} runs × {COMPLETIONS} completions × {TOKENS} tokens, width {width}"
    return [
        Row(case, "update of a run in the stack", "ms", estimate(1e3 * kept["stack"])),
        Row(case, "update of a stack of one", "ms", estimate(1e3 * kept["stack of one"])),
        Row(case, "update of a run alone", "ms", estimate(1e3 * kept["alone"])),
        Row(case, "in the stack / alone", "ratio", ratio(kept["stack"], kept["alone"]), at_most=0.25),
    ]


def _made(folder: Path, width: int) -> Path:
    """An untrained model: what it says matters nothing here."""
    from llm_experiments.config import PretrainingConfig
    from llm_experiments.policies.model_folder import save_model
    from llm_experiments.policies.tiny import TinySize, tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    save_model(folder, tiny_model(tokenizer, 0, TinySize.of(PretrainingConfig(width=width, layers=2))), tokenizer)
    return folder


def _stack(folder: Path, runs: int) -> Callable[[], object]:
    from transformers import AutoTokenizer

    from llm_experiments.tasks.habits import habits
    from llm_experiments.tasks.selection import select
    from llm_experiments.training.stacked.codec import TokenCodec
    from llm_experiments.training.stacked.config import Design, StackConfig
    from llm_experiments.training.stacked.loop import StackedTraining

    config = StackConfig(
        design=Design(method="kae_eb"), completions=COMPLETIONS, budget=COMPLETIONS, max_new_tokens=TOKENS
    )
    pools = [select(habits(0), 1024, seed=seed) for seed in range(runs)]
    codec = TokenCodec(AutoTokenizer.from_pretrained(folder))
    return StackedTraining(config, [folder] * runs, pools, range(runs), codec, [RATE] * runs).advance


def _alone(folder: Path) -> Callable[[], object]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from kaestat import AdvantageEstimator
    from llm_experiments.tasks.habits import habits
    from llm_experiments.tasks.selection import select

    tokenizer, task = AutoTokenizer.from_pretrained(folder), select(habits(0), 1024, seed=0)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    estimator, rng, steps = AdvantageEstimator("kae_eb"), np.random.default_rng(0), iter(range(10**6))

    def advance() -> None:
        problems = [task.problems[row] for row in rng.choice(1024, COMPLETIONS, replace=False)]
        prompts = tokenizer([problem.prompt for problem in problems], return_tensors="pt")
        with torch.no_grad():
            tokens = model.generate(**prompts, do_sample=True, max_new_tokens=TOKENS, min_new_tokens=TOKENS)
        start = prompts.input_ids.shape[1]
        texts = tokenizer.batch_decode(tokens[:, start:])
        rewards = [task.rewards(problem, [text])[0] for problem, text in zip(problems, texts, strict=True)]
        advantages = torch.tensor(estimator.step([each.id for each in problems], rewards, next(steps)))
        logits = model(input_ids=tokens[:, :-1]).logits[:, start - 1 :]
        scores = logits.log_softmax(-1).gather(-1, tokens[:, start:, None])[..., 0]
        loss = -(advantages[:, None] * scores).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return advance


if __name__ == "__main__":
    show(CLAIM, run())
