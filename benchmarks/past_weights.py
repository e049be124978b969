"""Do weights from the training pass learn as much as weights from a pass of their own?

The training pass gives a step's weights after its advantages. So these take expected weights, from completions of the
same reward in earlier steps, and the true weights are recorded for later values. Here the norms come from the same
backward pass in both ways; only what the advantages take differs.

The plan, written before any run: task `columns`, 4,800 completions in steps of 32, as in
``llm_experiments/configs/study/columns.yaml``, base model 0, new seeds: 16 with one completion per prompt, and 8 for
each of two methods with groups of four, at the rates that the study chose (for groups, the rate of GRPO with four). The
endpoint is mean accuracy over the budget at matched temperature, paired by seed.
**No difference is a 95 % interval of the mean paired difference that includes 0 and lies within .01**, as in the study.

The second question is about groups: at each step of the runs with their own weights both kinds of advantages are
computed from the same state. Their noise is the sum of ``W A^2`` in Adam's units, with the true W. Past weights are
right for groups if their noise is at most 2 % larger.
"""

from __future__ import annotations

import argparse
import copy
import json
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from rich.console import Console

from kaestat.core.storage import write_atomically
from kaestat.integrations.trl.training_norms import ExpectedWeights
from llm_experiments.console import timed_progress
from llm_experiments.provenance import provenance
from llm_experiments.study.config import load_study
from llm_experiments.study.curves import Tasks, learning_curves
from llm_experiments.study.run import Study, areas
from llm_experiments.training.stacked.config import Design
from llm_experiments.training.stacked.loop import StackedTraining

BASE = 0
CELLS = (  # name, method, completions of a prompt, whose rate, seeds
    ("kae_eb_1", "kae_eb", 1, "kae_eb_1_adam", range(20, 36)),
    ("kae_eb_4", "kae_eb", 4, "grpo_4", range(20, 28)),
    ("rloo_4", "rloo", 4, "grpo_4", range(20, 28)),
)
WARM = 10  # steps before noise counts


class Compared(StackedTraining):
    """Runs that compute advantages with their own weights and with expected ones, and take one of them."""

    way, noise = "own", None

    def _advantages(self, run, groups, norms):
        ids = [run.ids[row] for row in groups.rows]
        if not hasattr(run, "expected"):
            run.expected = ExpectedWeights()
        weights = run.expected(groups.rewards)
        found = {"past": copy.deepcopy(run.estimator).step(ids, groups.rewards, self.step, weights=weights)}
        found["own"] = run.estimator.step(ids, groups.rewards, self.step, weights=norms)
        run.expected.add(groups.rewards, norms)
        run.source.observe(ids, groups.rewards, self.step)
        place = self.runs.index(run)
        self.noise += [(place, self.step, way, float(norms @ np.square(each))) for way, each in found.items()]
        return found[self.way] * groups.correction


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=Path("results/past_weights"))
    options = parser.parse_args()
    config = load_study("llm_experiments/configs/study/columns.yaml")
    study = Study(
        config, runs=options.runs, results=options.runs / "results", progress=partial(timed_progress, Console())
    )
    chosen = pd.read_csv("results/studies/columns/rates.csv").query("chosen").set_index(["base", "design"])["rate"]
    rows = []
    for name, method, size, rate_of, seeds in CELLS:
        rate, tasks = chosen[BASE, rate_of], Tasks.of(config.world, BASE, seeds)
        setting = config.setting("kae_eb_1_adam").model_copy(
            update={"design": Design(method=method, scale="none", weights="adam", group_size=size)}
        )
        both = {}
        for way in ("own", "past"):
            made = type("Way", (Compared,), {"way": way, "noise": []})
            with patch("llm_experiments.study.curves.StackedTraining", made):
                curves = learning_curves(config.tests, setting, tasks, seeds, [rate] * len(seeds), study._base(BASE))
            both[way] = pd.Series(areas(curves, config.budget), index=sorted(seeds))
            frame = pd.DataFrame(made.noise, columns=["place", "step", "way", "noise"]).query("step >= @WARM")
            sums = frame.pivot_table("noise", "place", "way", "sum")
            for place, seed in enumerate(seeds):
                own = sums.loc[place]
                rows.append((name, BASE, seed, rate, way, both[way][seed], own["past"] / own["own"]))
        columns = ["design", "base", "seed", "rate", "weights", "area", "noise_ratio"]
        options.results.mkdir(parents=True, exist_ok=True)
        table = pd.DataFrame(rows, columns=columns).round(6)
        table.to_csv(options.results / "runs.csv", index=False)
        origin = {key: value for key, value in provenance(config).items() if key != "config"}
        write_atomically(options.results / "provenance.json", json.dumps(origin, indent=1))
        print(name, (both["past"] - both["own"]).describe(), flush=True)


if __name__ == "__main__":
    main()
