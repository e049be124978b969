"""The controls that every study must have: designs that could take away what it claims for its recommended one."""

from collections.abc import Callable, Mapping

from llm_experiments.training.stacked.config import Design

GRPO_SIZES, RLOO_SIZES = (2, 4, 8, 16), (2, 4)


def required_controls(recommended: Design) -> dict[str, Callable[[Design], bool]]:
    """What a plan must hold, by name, and how a design is recognised as it.

    A design with a history and weights owes what it gains to the history, to the weights, or to its single completions.
    The controls take one of them away at a time.

    recommended: The weighted controls have its weights.
    """

    def single(design: Design, method: str, **fields: str) -> bool:
        plain = design.method == method and design.group_size == 1
        return plain and all(getattr(design, name) == value for name, value in fields.items())

    def group(design: Design, method: str, size: int) -> bool:
        return design.method == method and design.group_size == size and not design.filtered

    found: dict[str, Callable[[Design], bool]] = {
        "batch_mean_with_its_weights": lambda each: (
            single(each, "reinforce++", weights=recommended.weights) and each.keys == "prompt"
        ),
        "constant_with_its_weights": lambda each: (
            each.keys == "all" and each.group_size == 1 and each.weights == recommended.weights
        ),
        "none_binary": lambda each: single(each, "none", coding="binary"),
        "none_signed": lambda each: single(each, "none", coding="signed"),
        "batch_mean": lambda each: single(each, "reinforce++", weights="none") and each.keys == "prompt",
        "filtered_groups": lambda each: each.filtered,
    }
    for size in GRPO_SIZES:
        found[f"grpo_{size}"] = lambda each, size=size: group(each, "grpo", size)
    for size in RLOO_SIZES:
        found[f"rloo_{size}"] = lambda each, size=size: group(each, "rloo", size)
    return found


def check_controls(designs: Mapping[str, Design], recommended: str, left_out: Mapping[str, str]) -> None:
    """Refuse a plan that lacks a control and does not say why.

    left_out: Controls that the plan leaves out, each with the reason.
    Raises ValueError if a control is missing, or one is left out that is unknown or present; the message names it.
    """
    required = required_controls(designs[recommended])
    unknown = [name for name in left_out if name not in required]
    if unknown:
        raise ValueError(f"left_out: {unknown[0]!r} is not a control; controls are {', '.join(required)}.")
    present = {name for name, matches in required.items() if any(map(matches, designs.values()))}
    both = sorted(present & set(left_out))
    if both:
        raise ValueError(f"left_out: {both[0]!r} is among the designs; take it out of left_out.")
    missing = [name for name in required if name not in present and name not in left_out]
    if missing:
        raise ValueError(
            f"designs: the plan lacks the control {', '.join(missing)}. Add it to designs, or name it in left_out with "
            "the reason."
        )
