"""What the designs of a study are called where people read them."""

from __future__ import annotations

from llm_experiments.training.stacked.config import Design
from paper_figures.shared.charts import LABELS

SAMPLING = {"neyman": "Neyman", "greso": "GRESO", "mopps": "MoPPS", "spo": "SPO", "knapsack": "knapsack"}
WEIGHTS = {"none": "", "score_norm": ", weighted", "exact": ", exact weights", "adam": ", weights in Adam's units"}
OWN = LABELS | {"rloo": "RLOO", "reinforce++": "Batch mean"}  # elsewhere RLOO's value stands for GRPO's


def name_of(design: Design) -> str:
    """A design in a few words, such as ``KAE-EB, G = 1, Neyman sampling``."""
    parts = [OWN.get(design.method, design.method), f"G = {design.group_size}"]
    if design.coding == "signed":
        parts[0] += ", rewards of ±1"
    if design.keys == "all":
        parts[0] = "One constant"
    parts[0] += WEIGHTS[design.weights]
    if design.filtered:
        parts.append("live groups only")
    if design.sampling != "uniform":
        kind = {"full": "", "clipped": ", clipped", "none": ", uncorrected"}[design.correction]
        parts.append(f"{SAMPLING.get(design.sampling, design.sampling)} sampling{kind}")
    return ", ".join(parts)
