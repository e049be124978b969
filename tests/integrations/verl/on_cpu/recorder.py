"""Writes what goes into our verl trainers' advantages and what comes out, in the process that computes them.

Loaded by verl (``VERL_USE_EXTERNAL_MODULES``); writes lines of JSON to the file that `FILE` names.
"""

import json
import os

from kaestat.integrations.verl.after_import import after_import

FILE = "KAESTAT_RECORD"


def _record():
    from kaestat.integrations.verl import trainer

    compute, compute_turns = trainer.row_advantages, trainer.turn_advantages

    def recorded(baseline, rows, step, index, rewards, weights, version=None):
        advantages = compute(baseline, rows, step, index, rewards, weights, version)
        write(baseline, rows, step, rewards, version, advantages, final=rows.final.tolist())
        return advantages

    def recorded_turns(watched, turns, rows, step, index, token_rewards, version=None):
        advantages = compute_turns(watched, turns, rows, step, index, token_rewards, version)
        told = [each.tolist() for each in turns.earned]
        write(watched, rows, step, token_rewards, version, advantages, mask=turns.mask.tolist(), told=told)
        return advantages

    def write(watched, rows, step, rewards, version, advantages, **further):
        line = {
            "step": step,
            "ids": [None if prompt is None else prompt.id for prompt in rows.prompts],
            "padding": rows.padding.tolist(),
            "rewards": rewards.tolist(),
            "version": None if version is None else version.tolist(),
            "advantages": advantages.tolist(),
            "known_prompts": watched.metrics["baseline/known_prompts"],
        }
        with open(os.environ[FILE], "a") as file:
            file.write(json.dumps(line | further) + "\n")

    trainer.row_advantages, trainer.turn_advantages = recorded, recorded_turns


after_import("kaestat.integrations.verl.trainer", _record)
