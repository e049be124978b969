"""Norms of scores from the training pass, where the values of a generation do not need its own weights.

The advantages of a generation come before its norms. They take the weights that completions of the same rewards had in
the generations before. What is recorded, for later values, are the norms that the backward pass gives.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from trl import GRPOTrainer

from kaestat import AdvantageEstimator
from kaestat.integrations.adam_units import Units, mean_squares
from kaestat.integrations.backward_norms import BackwardNorms, norms_in_backward
from kaestat.integrations.row_norms import FusedHead
from kaestat.integrations.shared.weights import expected_suffice
from kaestat.integrations.trl.completion_weights import bare_model, token_weights

_Trainer: Any = object  # TRL's, beside it among the bases

ROW = "kaestat_row"  # of a completion in its process's generation batch; TRL shuffles them


class TrainingNorms:
    """Collects the squared norms of a generation's scores over the batches of its training.

    ``record`` gets the norms of all processes' completions, shape (N,), once all are known; NaN for those without one.
    """

    def __init__(self, trainer: GRPOTrainer, record: Callable[[torch.Tensor], None], *, in_adams_units: bool):
        self._trainer, self._record, self._in_adams_units = trainer, record, in_adams_units
        self._open, self._left = ExitStack(), 0
        self._norms = torch.zeros(0)
        self._units = Units(None)
        self._batch: dict[str, Any] | None = None
        self._pass: BackwardNorms | None = None
        self._hidden: torch.Tensor | None = None
        self._shown: torch.Tensor | None = None

    def begin(self, output: dict[str, Any]) -> None:
        """Start to collect the norms of a generation, in the units before its updates; its rows get numbers."""
        self._left = len(output["completion_ids"])
        output[ROW] = torch.arange(self._left, device=output["completion_ids"].device)
        self._norms = torch.full((self._left,), torch.nan, device=output["completion_ids"].device)
        trainer = self._trainer
        self._units = Units(mean_squares(trainer.optimizer, trainer.model) if self._in_adams_units else None)

    def open(self, batch: dict[str, Any]) -> None:
        """Before the forward pass of a batch; only the first on each completion is of the policy that sampled it."""
        if self._left == 0:
            return
        model = bare_model(self._trainer)
        self._batch = batch
        self._pass = self._open.enter_context(norms_in_backward(self._trainer.model, [self._units]))
        handle = model.base_model.register_forward_hook(self._keep_hidden)
        self._open.callback(handle.remove)

    def score(self, log_probs: torch.Tensor | None) -> None:
        """Set the log-probabilities from which the batch's loss is computed; a loss may take them elsewhere."""
        if self._pass is None or self._batch is None or self._hidden is None:
            return
        if log_probs is None or not log_probs.requires_grad:
            return
        tokens, head = self._batch["completion_ids"], bare_model(self._trainer).get_output_embeddings()
        hidden = self._hidden[:, -tokens.shape[1] - 1 : -1].detach()
        hidden = hidden.float() if self._trainer.args.cast_lm_head_to_fp32 else hidden
        fused = FusedHead(head, hidden, tokens, log_probs.detach(), self._trainer.temperature, self._shown)
        self._pass.of_scores(log_probs, token_weights(self._trainer, self._batch), fused)
        self._hidden = None

    def close(self) -> None:
        """After the backward pass, or after an error in it."""
        self._open.close()
        if self._pass is not None and self._batch is not None:
            if self._pass.norms:
                self._norms[self._batch[ROW]] = self._pass.norms[0].to(self._norms.device)
            self._left -= len(self._batch[ROW])
        self._pass = self._batch = self._hidden = self._shown = None

    def record(self) -> None:
        """Hand on the norms of the generation, if all are known by now."""
        if self._left > 0 or not len(self._norms):
            return
        norms, self._norms = self._trainer.accelerator.gather(self._norms), torch.zeros(0)
        self._record(norms)

    def _keep_hidden(self, model: Any, given: Any, output: Any) -> None:
        self._hidden = output.last_hidden_state if torch.is_grad_enabled() else None
        if isinstance(self._trainer.model, FullyShardedDataParallel):
            self._shown = bare_model(self._trainer).get_output_embeddings().weight


class TrainingNormsMixin(_Trainer):
    """Mixin to put before a GRPO trainer, with the hooks of `TrainingNorms`."""

    _norms_to_come: TrainingNorms | None = None

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's loss."""
        if self._norms_to_come is not None and self.model.training:
            self._norms_to_come.open(inputs)
        loss: torch.Tensor = super().compute_loss(model, inputs, *args, **kwargs)
        return loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._norms_to_come is not None:
            self._norms_to_come.score(found[0])
        return found

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's result; after the last batch of a generation's first epoch its norms are recorded."""
        try:
            loss: torch.Tensor = super().training_step(*args, **kwargs)
        finally:
            if self._norms_to_come is not None:
                self._norms_to_come.close()
        if self._norms_to_come is not None:
            self._norms_to_come.record()
        return loss


def reads_training_pass(trainer: GRPOTrainer, estimator: Any) -> bool:
    """Whether the training pass gives the norms of scores, so that no pass of their own is needed.

    It needs a first update by the policy that sampled, a loss of advantages times log-probabilities alone, and values
    for which `expected_suffice` holds.
    """
    args, config = trainer.args, bare_model(trainer).config.get_text_config()
    plain_head = (getattr(config, name, None) in (None, 1.0) for name in _LOGITS_TOO)
    return (
        isinstance(estimator, AdvantageEstimator)
        and expected_suffice(estimator.baseline, trainer.num_generations)
        and args.gradient_accumulation_steps % args.steps_per_generation == 0
        and trainer.beta == 0
        and trainer.top_entropy_quantile == 1
        and trainer.off_policy_mask_threshold is None
        and not (trainer.aux_loss_enabled or trainer._entropy_bonus_enabled)
        and not (args.fp16 or args.torch_compile)
        and all(plain_head)
    )


_LOGITS_TOO = (  # what TRL's fused head does to logits in some models
    "final_logit_softcapping",
    "logit_scale",
    "output_multiplier",
    "lm_head_multiplier",
    "logits_scaling",
)
