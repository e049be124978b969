"""verl's actor, which also takes the squared norms of completions' scores from the pass that trains on them.

Nothing of verl is patched: its trainer starts `NormsWorker` in place of verl's worker, whose ``actor_worker_cls`` is
`NormsActor`; that wraps the loss of an update's first pass. Rows may come one above the other, or end to end
(``use_remove_padding``). Parameters are shards of FSDP2; a process sees whole rows, and sums of its own alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from kaestat.integrations.adam_units import Units, mean_squares
from kaestat.integrations.backward_norms import norms_in_backward

ASKED = "kaestat_norms"  # in a batch's extra_info: the weights wanted, exact or adam
ROW = "kaestat_row"  # of a row in its process's part of the batch; micro-batches take them in any order

Loss = Callable[..., tuple[torch.Tensor, dict[str, Any]]]


class NormsActor(TrainingWorker):
    """A `TrainingWorker` whose updates leave the squared norms of their rows in ``norms``, (n,); NaN if unknown."""

    loss_fn: Loss  # verl's
    norms = torch.zeros(0)
    _wanted: str | None = None

    def train_mini_batch(self, data: TensorDict) -> TensorDict:
        """verl's; takes norms in the first of its epochs if the batch asks for them."""
        self._wanted = tu.pop(data, key=ASKED, default=None)
        self.norms = torch.full((len(data),), torch.nan)
        data[ROW] = torch.arange(len(data))
        return super().train_mini_batch(data)

    def train_batch(self, data: TensorDict) -> TensorDict:
        """verl's; takes norms from the first update of a batch, in the units before it."""
        if self._wanted is None:
            return super().train_batch(data)
        units = Units(mean_squares(self.engine.optimizer) if self._wanted == "adam" else None)
        plain, self._wanted = self.loss_fn, None
        with ExitStack() as stack:
            taken = norms_in_backward(self.engine.module, [units])
            self.loss_fn, finish = watched(plain, stack.enter_context(taken), self.norms)
            stack.callback(setattr, self, "loss_fn", plain)
            found = super().train_batch(data)
            finish()
        return found

    def try_norms(self) -> None:
        """A pass over two rows that trains nothing: raises a ValueError for models whose norms cannot be taken."""
        engine = self.engine
        ids = torch.zeros(2, 2, dtype=torch.long, device=get_device_id())
        given = {"input_ids": ids, "attention_mask": ids + 1, "position_ids": torch.arange(2).to(ids).expand(2, -1)}
        dtype = engine._autocast_dtype
        cast = nullcontext() if dtype == torch.float32 else torch.autocast(device_type=get_device_name(), dtype=dtype)
        with torch.random.fork_rng(), engine.train_mode(), norms_in_backward(engine.module, [Units(None)]) as norms:
            with cast:
                log_probs = engine.module(**given, use_cache=False).logits.float().log_softmax(-1)[..., 0]
            norms.of_scores(log_probs, torch.ones_like(log_probs))
            log_probs.sum().backward()


def watched(loss: Loss, norms: Any, into: torch.Tensor) -> tuple[Loss, Callable[[], None]]:
    """verl's loss with the norms of every micro-batch, and what to call after the last: they are then ``into``."""
    rows = torch.zeros(0, dtype=torch.long)

    def collect() -> None:
        if len(rows):
            into[rows] = norms.norms[0].cpu()

    def compute(*, model_output: Any, data: TensorDict, dp_group: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        nonlocal rows
        collect()
        rows = data[ROW].cpu()
        given = model_output["log_probs"]
        of_tokens = given.values().clone()  # a tensor on the way from the loss to the model
        of_rows = partial(no_padding_2_padding, data=data)
        counted = _counted(data, of_rows(of_tokens.detach()))
        packed = tu.get_non_tensor_data(data=data, key="use_remove_padding", default=True)
        lengths = data["input_ids"].offsets().diff().tolist() if packed else None
        norms.of_scores(of_tokens, counted, rows=of_rows, lengths=lengths)
        log_probs = torch.nested.nested_tensor_from_jagged(of_tokens, given.offsets())
        return loss(model_output={**model_output, "log_probs": log_probs}, data=data, dp_group=dp_group)

    return compute, collect


def _counted(data: TensorDict, log_probs: torch.Tensor) -> torch.Tensor:
    """What the loss multiplies the gradients of log-probabilities by, but for a factor of each row, (B, T)."""
    names = ["response_mask", "old_log_probs"]
    names += ["rollout_is_weights"] if "rollout_is_weights" in data else []
    padded = data.select(*names).to_padded_tensor()
    counted: torch.Tensor = padded["response_mask"].float()
    ratio = (log_probs - padded["old_log_probs"]).exp().where(counted > 0, 0.0)
    counted = counted * ratio
    return counted * padded["rollout_is_weights"] if len(names) == 3 else counted


class NormsWorker(ActorRolloutRefWorker):
    """verl's worker with a `NormsActor`."""

    actor_worker_cls = NormsActor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        """verl's; then the norms are tried."""
        super().init_model()
        self.actor.try_norms()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def row_norms(self) -> tuple[int, np.ndarray]:
        """The process's place among those that share the batch, and the norms of its rows in the last update."""
        return self.actor.engine.get_data_parallel_rank(), self.actor.norms.numpy()
