"""Which problems an evaluation asks, and how many answers it takes of each."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class EvaluationSet:
    """One set of problems.

    task: Name in `llm_experiments.tasks.TASKS`.
    samples: Completions per problem.
    n_problems: Problems of the whole set, as the paper evaluates it.
    split: Split of the public data set; None takes the task's own.
    files: Names under which a folder of local data may hold the set.
    """

    task: str
    samples: int
    n_problems: int
    split: str | None = None
    files: tuple[str, ...] = ()


SETS: dict[str, EvaluationSet] = {
    each.task: each
    for each in (
        EvaluationSet("aime24", 32, 30, files=("aime24.jsonl",)),
        EvaluationSet("aime25", 32, 30, files=("aime25.jsonl",)),
        EvaluationSet("amc", 32, 83, files=("amc.jsonl", "amc23.jsonl")),
        EvaluationSet("math500", 1, 500, files=("math500.jsonl",)),
        EvaluationSet("minerva", 1, 272, files=("minerva.jsonl", "minerva_math.jsonl")),
        EvaluationSet("olympiadbench", 1, 675, files=("olympiadbench.jsonl",)),
        EvaluationSet("gsm8k", 1, 1319, split="test", files=("gsm8k_test.jsonl",)),
    )
}
"""The paper's evaluation sets (section 5.3). AIME and AMC are small, hence 32 answers per problem; every number in its
AMC column is a multiple of 1/(83 * 32), so that set has 83 problems, not the 40 of AMC23."""

PAPER_SETS = tuple(name for name in SETS if name != "gsm8k")
"""Those that the average in the paper's Tables 3 and 4 is over."""

SUITES: dict[str, tuple[str, ...]] = {"paper": (*PAPER_SETS, "gsm8k")}
"""Sets by the name of a suite; GSM8K is reported beside the paper's average, not in it."""


def parse_suite(text: str) -> tuple[EvaluationSet, ...]:
    """Sets by the name of a suite, or by their own names: ``"paper"``, ``"math500,aime24"``, ``"aime24:8"``.

    A number after a colon takes the place of the set's number of completions per problem.

    Raises ValueError if a name is unknown or given twice, or a number is not a whole number of at least 1.

    Examples
    --------
    >>> [(each.task, each.samples) for each in parse_suite("aime24:8,math500")]
    [('aime24', 8), ('math500', 1)]
    """
    names = SUITES.get(text) or tuple(name.strip() for name in text.split(","))
    sets = tuple(_parse_set(name) for name in names)
    named = [each.task for each in sets]
    if len(set(named)) < len(named):
        raise ValueError(f"suite: sets must differ, got {', '.join(named)}.")
    return sets


def _parse_set(text: str) -> EvaluationSet:
    name, _, samples = text.partition(":")
    if name not in SETS:
        raise ValueError(
            f"suite: {name!r} is unknown; give {', '.join(SUITES)}, or names out of {', '.join(SETS)} with commas."
        )
    if not samples:
        return SETS[name]
    if not samples.isdecimal() or int(samples) < 1:
        raise ValueError(f"suite: {text!r} must end in a whole number of completions per problem, at least 1.")
    return replace(SETS[name], samples=int(samples))
