"""Tables of an evaluation: accuracy by set, every problem's share, and the comparison of two models."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from llm_experiments.evaluation.accuracy import Estimate, accuracy, average, difference, pass_at_k
from llm_experiments.evaluation.suites import PAPER_SETS, EvaluationSet
from llm_experiments.pools.store import PromptPool
from llm_experiments.seeding import seed_of

AVERAGE, PAPER_AVERAGE = "average", "paper_average"


def accuracy_table(
    sets: Sequence[EvaluationSet], pools: Mapping[str, Sequence[PromptPool]], *, seed: int
) -> pd.DataFrame:
    """Accuracy of each set, and their plain average: the paper's own six sets where all are there, else all.

    Returns: ``set, accuracy, se, se_sampling, ci_low, ci_high, pass_at_samples, n_problems, n_problems_whole, samples,
        mean_length, finished``: see `accuracy.Estimate`; the chance that one of a problem's completions is right;
        problems graded and those of the whole set; tokens per completion, and the share that the model ended itself.
        The last row is ``paper_average``, over `PAPER_SETS` alone, or else ``average``; a single set has none.
    """
    rows, estimates = [], []
    for each in sets:
        rewards = np.stack([pool.rewards for pool in pools[each.task]])
        estimate = accuracy(rewards, seed=seed_of(seed, each.task))
        estimates.append(estimate)
        completions = [completion for pool in pools[each.task] for completion in pool.completions]
        rows.append(
            {
                **_columns(each.task, estimate),
                "pass_at_samples": pass_at_k(rewards, rewards.shape[1]).mean(),
                "n_problems": len(rewards),
                "n_problems_whole": each.n_problems,
                "samples": rewards.shape[1],
                "mean_length": np.mean([len(completion) for completion in completions]),
                "finished": np.mean([completion.finished for completion in completions]),
            }
        )
    rows += _averages({each.task: estimate for each, estimate in zip(sets, estimates, strict=True)}, "accuracy")
    counts = {"n_problems": "Int64", "n_problems_whole": "Int64", "samples": "Int64"}
    return pd.DataFrame(rows).astype(counts)


def problem_table(pools: Mapping[str, Sequence[PromptPool]]) -> pd.DataFrame:
    """Every completion's reward, ``set, problem, sample, reward``: what comparisons and pass@k are made from."""
    rows = [
        (name, pool.problem_id, sample, reward)
        for name, of_set in pools.items()
        for pool in of_set
        for sample, reward in enumerate(pool.rewards)
    ]
    return pd.DataFrame(rows, columns=["set", "problem", "sample", "reward"])


def comparison_table(folder: Path, reference: Path) -> pd.DataFrame:
    """Paired differences of two evaluations on the sets and problems that both have.

    folder, reference: Results folders of two evaluations.
    Returns: ``set, difference, se, se_sampling, ci_low, ci_high, n_problems``; the last row is an average, as in
        `accuracy_table`.
    Raises FileNotFoundError if a folder holds no evaluation.
    Raises ValueError if the two share no set, or a set was evaluated on other problems.
    """
    mine, theirs = _rewards(folder), _rewards(reference)
    shared = [name for name in mine if name in theirs]
    if not shared:
        raise ValueError(f"{folder} and {reference} share no set: {', '.join(mine)} and {', '.join(theirs)}.")
    rows, estimates = [], []
    for name in shared:
        if mine[name].index.tolist() != theirs[name].index.tolist():
            raise ValueError(f"set {name}: {folder} and {reference} hold other problems; evaluate both on the same.")
        estimate = difference(mine[name].to_numpy(), theirs[name].to_numpy(), seed=seed_of(0, name))
        estimates.append(estimate)
        rows.append({**_columns(name, estimate, mean="difference"), "n_problems": len(mine[name])})
    rows += _averages(dict(zip(shared, estimates, strict=True)), "difference")
    return pd.DataFrame(rows).astype({"n_problems": "Int64"})


def _rewards(folder: Path) -> dict[str, pd.DataFrame]:
    """Rewards (problems x samples) of each set."""
    path = Path(folder) / "problems.csv"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; name the results folder of an evaluation.")
    frame = pd.read_csv(path)
    return {
        name: part.set_index(["problem", "sample"])["reward"].unstack("sample")  # noqa: PD010 - there is nothing to aggregate
        for name, part in frame.groupby("set", sort=False)
    }


def _averages(estimates: Mapping[str, Estimate], mean: str) -> list[dict[str, float | str]]:
    if set(PAPER_SETS) <= set(estimates):
        return [_columns(PAPER_AVERAGE, average([estimates[name] for name in PAPER_SETS]), mean)]
    return [_columns(AVERAGE, average(list(estimates.values())), mean)] if len(estimates) > 1 else []


def _columns(name: str, estimate: Estimate, mean: str = "accuracy") -> dict[str, float | str]:
    values = asdict(estimate)
    return {"set": name, mean: values.pop("mean"), **values}
