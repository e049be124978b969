"""Writes what goes into our verl trainers' advantages and what comes out, in the process that computes them.

Loaded by verl (``VERL_USE_EXTERNAL_MODULES``); writes lines of JSON to the file that `FILE` names.
"""

import json
import os

from kaestat.integrations.verl.after_import import after_import

FILE = "KAESTAT_RECORD"


def _record():
    from kaestat.integrations.verl import trainer

    compute = trainer.row_advantages

    def recorded(baseline, rows, step, index, rewards, weights, version=None):
        advantages = compute(baseline, rows, step, index, rewards, weights, version)
        line = {
            "step": step,
            "ids": [None if prompt is None else prompt.id for prompt in rows.prompts],
            "padding": rows.padding.tolist(),
            "final": rows.final.tolist(),
            "rewards": rewards.tolist(),
            "version": None if version is None else version.tolist(),
            "advantages": advantages.tolist(),
            "known_prompts": baseline.metrics["baseline/known_prompts"],
        }
        with open(os.environ[FILE], "a") as file:
            file.write(json.dumps(line) + "\n")
        return advantages

    trainer.row_advantages = recorded


after_import("kaestat.integrations.verl.trainer", _record)
