"""Writes what goes into our verl trainers' advantages and what comes out, in the process that computes them.

Loaded by verl (``VERL_USE_EXTERNAL_MODULES``); writes lines of JSON to the file that `FILE` names. Beside it, every
process of the actor writes what it takes norms of: ``update-NUMBER-RANK.pt``.
"""

import json
import os
from pathlib import Path

from kaestat.integrations.verl.after_import import after_import

FILE = "KAESTAT_RECORD"


def _record():
    from kaestat.integrations.verl import trainer

    compute = trainer.row_advantages

    def recorded(baseline, rows, step, index, rewards, weights, version=None):
        advantages = compute(baseline, rows, step, index, rewards, weights, version)
        further = {"final": rows.final.tolist()}
        further["weights"] = None if weights is None else weights.tolist()
        write(baseline, rows, step, rewards, version, advantages, **further)
        return advantages

    def write(watched, rows, step, rewards, version, advantages, **further):
        line = {
            "step": step,
            "ids": [None if prompt is None else prompt.id for prompt in rows.prompts],
            "padding": rows.padding.tolist(),
            "rewards": rewards.tolist(),
            "version": None if version is None else version.tolist(),
            "advantages": advantages.tolist(),
            "known_prompts": watched.metrics.get("baseline/known_prompts"),
        }
        with open(os.environ[FILE], "a") as file:
            file.write(json.dumps(line | further) + "\n")

    trainer.row_advantages = recorded


def _record_passes():
    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.engine_workers import TrainingWorker

    infer, known = TrainingWorker.infer_batch, {}

    def recorded(actor, data):
        if type(actor) is TrainingWorker and not tu.get(data, key="calculate_sum_pi_squared", default=False):
            return infer(actor, data)
        engine, optimizer = actor.engine, actor.engine.optimizer
        names = {parameter: name for name, parameter in engine.module.named_parameters()}
        whole = {
            "parameters": {name: parameter.full_tensor().clone() for parameter, name in names.items()},
            "squares": {
                names[parameter]: (own["exp_avg_sq"].full_tensor().clone(), float(own["step"]))
                for parameter, own in optimizer.state.items()
            },
            "rows": list(data["input_ids"].clone().unbind()),
            "counted": list(data["response_mask"].clone().unbind()),
        }
        found = infer(actor, data)
        known["passes"] = known.get("passes", -1) + 1
        rank, number = torch.distributed.get_rank(), known["passes"]
        folder = Path(os.environ[FILE]).parent
        while (path := folder / f"update-{number:02}-{rank}.pt").exists():  # of a run before
            number += 1
        torch.save(whole, path)
        return found

    TrainingWorker.infer_batch = recorded


after_import("verl.workers.engine_workers", _record_passes)
after_import("kaestat.integrations.verl.trainer", _record)
