"""verl's actor, which also reads the squared norms of completions' scores from the training pass.

It does not patch verl: its trainer starts `NormsWorker` in place of verl's worker, whose ``actor_worker_cls`` is
`NormsActor`; that wraps the loss of an update's first pass. Rows may come one above the other, or end to end
(``use_remove_padding``). Parameters are shards of FSDP2; a process sees whole rows, and sums of its own alone.

verl's fused kernels never hold the logits. Of them the last hidden states are kept, for the norms in the output layer,
and in the pass of the log-probabilities for the sums of squared probabilities, of which score norms are made.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
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

from kaestat.integrations.adam_units import Units, mean_squares, whole
from kaestat.integrations.backward_norms import norms_in_backward
from kaestat.integrations.row_norms import VOCABULARY, FusedHead
from kaestat.integrations.verl.completion_weights import ASKED as SQUARES

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
            hidden = stack.enter_context(last_hidden(self.engine)) if self.engine_config.use_fused_kernels else None
            self.loss_fn, finish = watched(plain, stack.enter_context(taken), self.norms, hidden)
            stack.callback(setattr, self, "loss_fn", plain)
            found = super().train_batch(data)
            finish()
        return found

    def infer_batch(self, data: TensorDict) -> TensorDict:
        """verl's; with sums of squared probabilities also where its kernels are fused."""
        if not (self.engine_config.use_fused_kernels and tu.get(data, key=SQUARES, default=False)):
            return super().infer_batch(data)
        tu.pop(data, key=SQUARES)  # verl raises an error
        engine = self.engine
        plain = engine.prepare_model_outputs

        def prepare(output: Any, output_args: Any, micro_batch: TensorDict, logits_processor_func: Any) -> Any:
            more = output_args, micro_batch, logits_processor_func
            sums = square_sums(hidden.last, output_layer(engine), micro_batch["temperature"])
            # verl lays them out as it does log-probabilities.
            return plain(output, *more) | {"sum_pi_squared": plain(replace(output, log_probs=sums), *more)["log_probs"]}

        with ExitStack() as stack:
            hidden = stack.enter_context(last_hidden(engine))
            engine.prepare_model_outputs = prepare  # of this engine, for this pass
            stack.callback(delattr, engine, "prepare_model_outputs")
            return super().infer_batch(data)

    def try_norms(self) -> None:
        """A pass over two rows without training; raises a ValueError for models whose norms cannot be taken."""
        engine = self.engine
        ids = torch.zeros(2, 2, dtype=torch.long, device=get_device_id())
        given = {"input_ids": ids, "attention_mask": ids + 1, "position_ids": torch.arange(2).to(ids).expand(2, -1)}
        dtype = engine._autocast_dtype
        cast = nullcontext() if dtype == torch.float32 else torch.autocast(device_type=get_device_name(), dtype=dtype)
        fused = self.engine_config.use_fused_kernels
        given |= {"temperature": 1.0, "return_dict": True} if fused else {}
        with torch.random.fork_rng(), engine.train_mode(), norms_in_backward(engine.module, [Units(None)]) as norms:
            with cast:
                output = engine.module(**given, use_cache=False)
            log_probs = output.log_probs if fused else output.logits.float().log_softmax(-1)[..., 0]
            norms.of_scores(log_probs, torch.ones_like(log_probs))
            log_probs.sum().backward()


class LastHidden:
    """The last input of an engine's output layer, (B, T, d), from `last_hidden`."""

    def __init__(self, engine: Any):
        self.engine, self.last = engine, torch.zeros(0)

    def keep(self, model: Any, given: Any, output: Any) -> None:
        """Hold the model's last hidden states; a forward hook."""
        self.last = output.last_hidden_state.detach()

    def head(self, data: TensorDict, log_probs: torch.Tensor, lengths: list[int] | None) -> FusedHead:
        """The output layer at the responses' tokens, of a micro-batch's rows; its ``log_probs`` come end to end."""
        ids = data["input_ids"]
        if lengths is None:
            seen = torch.arange(self.last.shape[1], device=ids.device) < ids.offsets().diff()[:, None]
            hidden = self.last[seen]
        else:
            hidden = self.last[0, : sum(lengths)]
        into, tokens, given = (no_padding_2_padding(each, data) for each in (hidden, ids.values().roll(-1), log_probs))
        return FusedHead(output_layer(self.engine), into, tokens, given, data["temperature"])


@contextmanager
def last_hidden(engine: Any) -> Iterator[LastHidden]:
    """A context that keeps the last input of an engine's output layer."""
    found = LastHidden(engine)
    handle = _unwrapped(engine).base_model.register_forward_hook(found.keep)
    try:
        yield found
    finally:
        handle.remove()


def output_layer(engine: Any) -> Any:
    """The layer that makes the logits."""
    return _unwrapped(engine).get_output_embeddings()


def _unwrapped(engine: Any) -> Any:
    module = engine.module
    return module.get_base_model() if hasattr(module, "get_base_model") else module  # of peft


def square_sums(hidden: torch.Tensor, layer: Any, temperature: float) -> torch.Tensor:
    """``sum_v pi(v)^2`` of each token, like ``hidden`` without its last dimension, a part of the vocabulary at once."""
    weight = whole(layer.weight.detach())
    total = squares = hidden.new_full(hidden.shape[:-1], -torch.inf, dtype=torch.float32)
    for part in weight.split(VOCABULARY):
        logits = (hidden @ part.to(hidden.dtype).T).float() / temperature
        total = torch.logaddexp(total, logits.logsumexp(-1))
        squares = torch.logaddexp(squares, (2 * logits).logsumexp(-1))
    return (squares - 2 * total).exp()


def watched(loss: Loss, norms: Any, into: torch.Tensor, hidden: LastHidden | None) -> tuple[Loss, Callable[[], None]]:
    """verl's loss with the norms of every micro-batch, and what to call after the last: they are then ``into``.

    With fused kernels ``hidden`` has the input of the output layer.
    """
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
        head = None if hidden is None else hidden.head(data, of_tokens.detach(), lengths)
        norms.of_scores(of_tokens, counted, head, rows=of_rows, lengths=lengths)
        log_probs = torch.nested.nested_tensor_from_jagged(of_tokens, given.offsets())
        return loss(model_output={**model_output, "log_probs": log_probs}, data=data, dp_group=dp_group)

    return compute, collect


def _counted(data: TensorDict, log_probs: torch.Tensor) -> torch.Tensor:
    """The factor of each log-probability's gradient in the loss, (B, T), up to a factor of each row."""
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
    def try_norms(self) -> None:
        """As the actor's."""
        self.actor.try_norms()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def row_norms(self) -> tuple[int, np.ndarray]:
        """The process's place among those that share the batch, and the norms of its rows in the last update."""
        return self.actor.engine.get_data_parallel_rank(), self.actor.norms.numpy()
