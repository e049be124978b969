"""The process in which a `reasoning_gym` data set makes and scores its problems; see `reasoning_gym_task`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from llm_experiments.verifiers.worker_loop import serve


def prepare(arguments: dict) -> Callable[[list], Any]:
    """Make the data set, and the function that answers ``["entry", index]`` and ``["score", index, answer]``."""
    import reasoning_gym

    dataset = reasoning_gym.create_dataset(
        arguments["dataset"], seed=arguments["seed"], size=arguments["size"], **arguments["parameters"]
    )
    entry = lru_cache(maxsize=4096)(dataset.__getitem__)

    def answer(request: list) -> Any:
        kind, index, *rest = request
        if kind == "entry":
            return [str(entry(index)["question"]), str(entry(index)["answer"])]
        score = float(dataset.score_answer(rest[0], entry(index)))
        return min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0

    return answer


if __name__ == "__main__":
    serve(prepare)
