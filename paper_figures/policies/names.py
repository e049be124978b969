"""What the designs of a study are called where people read them."""

from llm_experiments.training.stacked.config import Design
from paper_figures.shared.charts import LABELS

WEIGHTS = {"none": "", "score_norm": ", weighted", "exact": ", exact weights", "adam": ", weights in Adam's units"}
OWN = LABELS | {"rloo": "RLOO", "reinforce++": "Batch mean"}  # elsewhere RLOO's value stands for GRPO's


def name_of(design: Design) -> str:
    """A design in a few words, such as ``GRPO, G = 8, live groups only``."""
    parts = [OWN.get(design.method, design.method), f"G = {design.group_size}"]
    if design.coding == "signed":
        parts[0] += ", rewards of ±1"
    if design.keys == "all":
        parts[0] = "One constant"
    parts[0] += WEIGHTS[design.weights]
    if design.filtered:
        parts.append("live groups only")
    return ", ".join(parts)
