"""Noise of groups whose advantages take expected weights, relative to their own, on measured completions."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.expected_weights import ExpectedWeights

SETS = ("length", "smollm2", "workings")  # of results/law
STEPS, WARM, SEEDS = 25, 5, 4
COMPLETIONS = 64  # of a step


def noise_ratio(by_prompt: dict[str, np.ndarray], method: str, group: int, seed: int) -> float:
    """Of the sums of ``W A^2`` over steps; groups are drawn from a prompt's completions without replacement."""
    random, past, sums = np.random.default_rng(seed), ExpectedWeights(), np.zeros(2)
    estimator, names = AdvantageEstimator(method, scale="none"), list(by_prompt)
    for step in range(STEPS):
        chosen = random.choice(len(names), min(max(2, COMPLETIONS // group), len(names)), replace=False)
        ids = [names[place] for place in chosen for _ in range(group)]
        of_each = [by_prompt[names[place]] for place in chosen]
        rows = np.concatenate([each[random.choice(len(each), group, replace=False)] for each in of_each])
        reward, weight = rows[:, 0], rows[:, 1] / rows[:, 1].mean()
        with_past = copy.deepcopy(estimator).step(ids, reward, step, weights=past(reward))
        own = estimator.step(ids, reward, step, weights=weight)
        past.add(reward, weight)
        if step >= WARM:
            sums += weight @ with_past**2, weight @ own**2
    return float(sums[0] / sums[1])


def main() -> None:
    frames = [pd.read_csv(f"results/law/{name}/completions.csv.gz").assign(source=name) for name in SETS]
    rows = []
    for key, frame in pd.concat(frames).query("adam > 0").groupby(["source", "cell", "step"]):
        by_prompt = {prompt: own[["reward", "adam"]].to_numpy() for prompt, own in frame.groupby("prompt")}
        for method in ("rloo", "kae_eb"):
            for group in (4, 8, 16):
                if group <= min(map(len, by_prompt.values())):
                    found = [noise_ratio(by_prompt, method, group, seed) for seed in range(SEEDS)]
                    rows.append((*key, method, group, np.mean(found), np.std(found, ddof=1) / SEEDS**0.5))
    columns = ["source", "cell", "step", "method", "group_size", "noise_ratio", "se"]
    pd.DataFrame(rows, columns=columns).round(4).to_csv("results/past_weights/replay.csv", index=False)


if __name__ == "__main__":
    main()
