"""Sets of mathematical problems: GSM8K, MATH, DAPO-Math-17k, the evaluation sets, and files of one's own."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llm_experiments.verifiers.final_answers import after_hashes, last_boxed
from llm_experiments.verifiers.mathematics import MathVerifier
from llm_experiments.verifiers.numbers import NumberVerifier
from llm_experiments.verifiers.worker_pool import BUDGET

from .base import Problem, Task
from .rows import hub_rows, local_rows
from .sources import SOURCES, Source


@dataclass(frozen=True)
class MathematicsTask(Task):
    """Mathematical problems and their verifier."""

    problems: Sequence[Problem]
    verifier: MathVerifier | NumberVerifier

    def rewards(self, problem: Problem, texts: Sequence[str]) -> list[float]:
        """1.0 for each completion whose final answer equals the problem's, else 0.0."""
        return self.verifier.rewards(problem.answer, texts)

    def grade(self, problems: Sequence[Problem], texts: Sequence[str], *, patient: bool = False) -> list[float]:
        """As `Task.grade`; all workers are at work at once."""
        return self.verifier.grade([problem.answer for problem in problems], texts, patient=patient)


def mathematics(
    name: str,
    *,
    path: str | Path | None = None,
    split: str | None = None,
    levels: Sequence[int | str] | None = None,
    template: str | None = None,
    timeout: float = 5.0,
    memory_mib: int = 1024,
    workers: int | None = None,
    budget: float = BUDGET,
) -> MathematicsTask:
    """All problems of a set, in its order.

    The id of a problem is ``name/split/row``, whatever is left out; in verl's format ``source/split/index``, as the
    file says itself. A problem that stands there several times (one-shot training sets) is one problem.

    name: See `llm_experiments.tasks.sources.SOURCES`.
    path: Local file (.jsonl, .json or .parquet) in place of the hub.
    split: Instead of the source's; for a local file, it only names the problems.
    levels: Difficulties to take; None takes the source's own choice (MATH: 3 to 5), and an empty list all.
    template: The prompt around ``{problem}``; None takes the source's.
    timeout, memory_mib, workers, budget: Of `MathVerifier`, where the source is graded by it.
    Raises FileNotFoundError, ConnectionError if the problems can not be read.
    Raises ValueError if a column is missing, a row can not be read, or nothing is left.
    """
    source = SOURCES[name]
    if template is not None:
        if "{problem}" not in template:
            raise ValueError(f"template {template!r} lacks {{problem}}.")
        source = replace(source, template=template)
    split = split or source.split
    if path is not None:
        rows, origin = local_rows(Path(path)), str(path)
    elif source.hub is not None:
        rows = hub_rows(source.hub, source.subset, split, _expected(source))
        origin = source.hub
    else:
        raise ValueError(f"task {name} reads a local file: give path, a file with {_expected(source)}.")
    problems = _problems(rows, source, prefix=f"{name}/{split}", levels=levels, origin=origin)
    verifier = (
        NumberVerifier()
        if source.verifier == "numbers"
        else MathVerifier(timeout=timeout, memory_mib=memory_mib, workers=workers, budget=budget)
    )
    return MathematicsTask(problems, verifier)


def _problems(
    rows: list[dict], source: Source, *, prefix: str, levels: Sequence[int | str] | None, origin: str
) -> tuple[Problem, ...]:
    columns = list(rows[0]) if rows else []
    prompt_column = _first(source.prompts, columns, origin)
    answer_column = _first(tuple(source.answers), columns, origin)
    wanted = source.levels if levels is None else tuple(_level(each) for each in levels)
    if wanted and source.level not in columns:
        raise ValueError(
            f"{origin}: levels {list(wanted)} need a column of levels, of which there is none in {columns}."
        )
    found: dict[str, Problem] = {}
    unanswered = []
    for index, row in enumerate(rows):
        level = _level(row[source.level]) if source.level in row else ""
        if wanted and level not in wanted:
            continue
        answer = _answer(row.get(answer_column), source.answers[answer_column])
        if not answer:
            unanswered.append(index)
            continue
        problem = Problem(
            id=_verl_id(row, index) if source.ids == "verl" else f"{prefix}/{index}",
            prompt=source.template.replace("{problem}", _text(row.get(prompt_column), f"{origin}, row {index}")),
            answer=answer,
            level=level,
        )
        if found.setdefault(problem.id, problem) != problem:
            raise ValueError(
                f"{origin}: id {problem.id} stands for two different problems, the second at row {index}; read the "
                "file as task `file`, which numbers its rows."
            )
    if not found:
        raise ValueError(
            f"{origin}: no problem is left of {len(rows)} rows: levels {list(wanted) or 'all'}, {len(unanswered)} rows "
            f"without an answer in column {answer_column} (read as {source.answers[answer_column]!r})."
        )
    if unanswered:
        warnings.warn(
            f"{origin}: {len(unanswered)} of {len(rows)} rows have no answer, and are left out: {unanswered[:10]}.",
            stacklevel=3,
        )
    return tuple(found.values())


def _first(names: tuple[str, ...], columns: list[str], origin: str) -> str:
    for name in names:
        if name in columns:
            return name
    raise ValueError(
        f"{origin}: has none of the columns {', '.join(names)}, only {', '.join(columns) or 'no rows'}; rename the "
        "right one."
    )


def _expected(source: Source) -> str:
    return f"the columns {' or '.join(source.prompts)}, and {' or '.join(source.answers)}"


def _answer(value: Any, reading: str) -> str:
    if reading == "reward_model":
        value = (value or {}).get("ground_truth")
    if reading == "list":
        value = ", ".join(value or ())
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value).strip()
    if reading == "hashes":
        return (after_hashes(text) or "").strip()
    return (last_boxed(text) or "").strip() if reading == "boxed" else text


def _text(prompt: Any, where: str) -> str:
    """A prompt as the user's text; verl keeps it as a list of messages."""
    match prompt:
        case str() if prompt.strip():
            return prompt
        case [{"role": "user", "content": str(content)}]:
            return content
    raise ValueError(
        f"{where}: prompt {str(prompt)[:200]} must be a text or one message of the user; a system message belongs into "
        "the configuration of the model."
    )


def _verl_id(row: dict, index: int) -> str:
    extra = row.get("extra_info") or {}
    return f"{row.get('data_source', 'verl')}/{extra.get('split', 'train')}/{extra.get('index', index)}"


def _level(value: Any) -> str:
    return str(value).removeprefix("Level ").strip()
