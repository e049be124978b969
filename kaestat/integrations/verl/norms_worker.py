"""verl's actor, which also gives the squared norms of completions' scores with their log-probabilities."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.padding import no_padding_2_padding

from kaestat.integrations.adam_units import Units, mean_squares
from kaestat.integrations.gradient_norms import BackwardNorms, norms_in_backward
from kaestat.integrations.verl.completion_weights import NORMS

SIZES = ("use_dynamic_bsz", "max_token_len_per_gpu", "micro_batch_size_per_gpu")  # of training: a backward pass fits


class NormsActor(TrainingWorker):
    """A `TrainingWorker` that returns norms of rows, shape (n, 1), with log-probabilities if a batch asks for them."""

    def infer_batch(self, data: TensorDict) -> TensorDict:
        """verl's; the batch names the weights wanted, ``exact`` or ``adam``."""
        wanted, engine = tu.pop(data, key=NORMS, default=None), self.engine
        if wanted is None:
            return super().infer_batch(data)
        sizes = {name: getattr(self.engine_config, name) for name in SIZES}
        tu.assign_non_tensor(data, return_model_output=True, disable_auto_offload=True, **sizes)
        with engine.train_mode():  # loads what is offloaded, and at its end forgets the gradients
            units = Units(mean_squares(engine.optimizer) if wanted == "adam" else None)
            with norms_in_backward(engine.module, units) as norms:
                engine.infer_batch = partial(_there_and_back, engine, norms)  # of this engine, for this pass
                try:
                    return super().infer_batch(data)
                finally:
                    del engine.infer_batch

    def try_norms(self) -> None:
        """A pass over two rows without training; raises a ValueError for models whose norms cannot be taken."""
        engine, dtype = self.engine, self.engine._autocast_dtype
        ids = torch.zeros(2, 2, dtype=torch.long, device=get_device_id())
        given = {"input_ids": ids, "attention_mask": ids + 1, "position_ids": torch.arange(2).to(ids).expand(2, -1)}
        cast = nullcontext() if dtype == torch.float32 else torch.autocast(device_type=get_device_name(), dtype=dtype)
        with torch.random.fork_rng(), engine.train_mode(), norms_in_backward(engine.module, Units(None)) as norms:
            with cast:
                scores = engine.module(**given, use_cache=False).logits.float().log_softmax(-1)[..., 0].sum(1)
            norms.begin(scores)
            scores.sum().backward()


def _there_and_back(engine: Any, norms: BackwardNorms, data: TensorDict, loss_function: Any = None) -> Any:
    """An engine's forward pass over a batch, and the backward pass of its rows' scores."""
    engine.module.train()  # gradient checkpointing is off otherwise
    return engine.forward_backward_batch(data, partial(_score, norms), forward_only=False)


def _score(
    norms: BackwardNorms, *, model_output: Any, data: TensorDict, dp_group: Any = None
) -> tuple[torch.Tensor, dict[str, Any]]:
    """In place of a loss: the sum of the log-probabilities of a micro-batch's tokens in the loss."""
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    scores = (log_probs * data.select("response_mask").to_padded_tensor()["response_mask"]).sum(1)
    norms.begin(scores)
    model_output[NORMS] = norms.norms[:, None]  # the same memory, which the backward pass fills
    return scores.sum(), {}


class NormsWorker(ActorRolloutRefWorker):
    """verl's worker with a `NormsActor`."""

    actor_worker_cls = NormsActor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def try_norms(self) -> None:
        """As the actor's."""
        self.actor.try_norms()
