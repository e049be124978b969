"""From one number for each prompt and method to tables: means with standard errors, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kaestat.core.bootstrap import cluster_bootstrap, mean_with_interval
from kaestat.logs.prompt_risks import DIFFERENCE_COLUMNS as LOG_COLUMNS
from kaestat.logs.prompt_risks import PromptRisks

DIFFERENCE_COLUMNS = ["step", *(name for name in LOG_COLUMNS if name != "n_visits")]


@dataclass(frozen=True, eq=False)
class PromptErrors:
    """Mean squared error of each method for each prompt of one target step.

    per_prompt: ndarray, shape (P, K).
    """

    step: int
    methods: tuple[str, ...]
    per_prompt: np.ndarray

    def less(self, per_prompt: np.ndarray) -> PromptErrors:
        """With something, shape (P,), taken off every method's error."""
        return PromptErrors(self.step, self.methods, self.per_prompt - per_prompt[:, None])

    def table(self) -> pd.DataFrame:
        """``step, method, mse, se, n_prompts``; ``se`` over prompts."""
        mean, se, _, _ = mean_with_interval(self.per_prompt, np.empty((0, len(self.methods))))
        return pd.DataFrame(
            {"step": self.step, "method": list(self.methods), "mse": mean, "se": se, "n_prompts": len(self.per_prompt)}
        )

    def differences(self, references: Sequence[str], *, n_boot: int, seed: int) -> pd.DataFrame:
        """Every method against each reference, prompt by prompt.

        references: Those that are not among the methods are skipped.
        n_boot: Bootstrap draws of prompts; 0 gives normal intervals of the differences, and none of the ratios.
        Returns: ``step, method, reference, difference`` (negative where the method is better), its ``se`` over prompts
            and 95 % interval ``ci_low, ci_high``; ``ratio`` of the MSEs with its interval ``ratio_low, ratio_high``;
            ``n_prompts``. No ratio where the reference's own interval reaches 0.
        """
        frames = []
        for reference in references:
            if reference not in self.methods:
                continue
            others = [k for k, name in enumerate(self.methods) if name != reference]
            if not others:
                continue
            order = [*others, self.methods.index(reference)]
            risks = PromptRisks(self.methods, self.per_prompt, len(self.per_prompt), True).take(order)
            frame = risks.difference_table(n_boot=n_boot, seed=seed).drop(columns="n_visits")
            column = risks.per_prompt[:, -1:]
            _, _, low, _ = mean_with_interval(column, cluster_bootstrap(column, n_boot=n_boot, seed=seed))
            if not low[0] > 0:
                frame[["ratio", "ratio_low", "ratio_high"]] = np.nan
            frames.append(frame)
        if not frames:
            return pd.DataFrame(columns=DIFFERENCE_COLUMNS)
        return pd.concat(frames, ignore_index=True).assign(step=self.step)[DIFFERENCE_COLUMNS]
