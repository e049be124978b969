"""Where the sets of mathematical problems come from, and what their columns are called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BOXED = "{problem} Let's think step by step and output the final answer within \\boxed{}."
AS_IT_IS = "{problem}"

Reading = Literal["plain", "hashes", "boxed", "list", "reward_model"]
"""How a ground truth stands in its column: as it is; after ``####``; in the last ``\\boxed{}`` of a solution; as a list
of values; under ``ground_truth`` in verl's column ``reward_model``."""


@dataclass(frozen=True)
class Source:
    """A set of problems.

    hub: Id on the Hugging Face hub; None reads local files alone.
    subset: Its configuration there.
    split: Unless another is asked for.
    prompts: Columns that may hold the problem; the first that exists counts.
    answers: Columns that may hold the ground truth, and how; the first that exists counts.
    level: Column of the difficulty.
    levels: Levels that are taken unless others are asked for; empty takes all.
    template: The prompt, around ``{problem}``.
    ids ({"row", "verl"}): Whether problems are named by their rows, or by what verl's columns say of them.
    """

    hub: str | None
    split: str
    subset: str | None = None
    prompts: tuple[str, ...] = ("problem", "question")
    answers: Mapping[str, Reading] = field(default_factory=lambda: {"answer": "plain"})
    level: str | None = None
    levels: tuple[str, ...] = ()
    verifier: Literal["mathematics", "numbers"] = "mathematics"
    template: str = BOXED
    ids: Literal["row", "verl"] = "row"


SOURCES: dict[str, Source] = {
    "gsm8k": Source("openai/gsm8k", "train", "main", answers={"answer": "hashes"}, verifier="numbers"),
    "math": Source(
        "DigitalLearningGmbH/MATH-lighteval",
        "train",
        answers={"answer": "plain", "solution": "boxed"},
        level="level",
        levels=("3", "4", "5"),
    ),
    "dapo": Source(
        "open-r1/DAPO-Math-17k-Processed",
        "train",
        "all",
        prompts=("prompt",),
        answers={"reward_model": "reward_model", "solution": "plain"},
        ids="verl",
    ),
    "aime24": Source("HuggingFaceH4/aime_2024", "train"),
    "aime25": Source("math-ai/aime25", "test"),
    "amc": Source("AI-MO/aimo-validation-amc", "train"),
    "math500": Source("HuggingFaceH4/MATH-500", "test", level="level"),
    "minerva": Source("math-ai/minervamath", "test", answers={"answer": "plain", "solution": "boxed"}),
    "olympiadbench": Source("math-ai/olympiadbench", "test", answers={"final_answer": "list"}),
    "verl": Source(
        None, "train", prompts=("prompt",), answers={"reward_model": "reward_model"}, template=AS_IT_IS, ids="verl"
    ),
    "file": Source(
        None,
        "train",
        prompts=("problem", "question", "prompt"),
        answers={"answer": "plain", "final_answer": "list", "reward_model": "reward_model", "solution": "boxed"},
        level="level",
    ),
}
"""Sets of problems by name. ``verl`` is any data set in verl's format (its prompts hold their own instructions),
``file`` any table of problems and answers; both take a local file."""
