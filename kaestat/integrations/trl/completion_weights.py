"""Weights of completions for the variance-optimal baselines: stand-ins for the squared norm of the score."""

from functools import partial
from inspect import signature
from typing import Any

import torch
from accelerate.utils import DistributedType, extract_model_from_parallel, is_peft_model
from torch.distributed.fsdp import CPUOffloadPolicy
from trl import GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import add_fused_lm_head, selective_log_softmax

from kaestat.integrations.adam_units import check_optimizer, mean_squares
from kaestat.integrations.gradient_norms import gradient_norms

WEIGHTS = ("none", "length", "score_norm", "exact", "adam")
NORMS = WEIGHTS[2:]
OF_PARAMETERS = NORMS[1:]

_OF_IMAGES = (  # arguments of `_get_per_token_logps_and_entropies` for models that see images
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
)


def loss_mask(output: dict[str, Any]) -> torch.Tensor:
    """One for each token in the loss, shape (n, T): not padding, not a tool's answer, not truncated."""
    mask = output["completion_mask"]
    return mask * output["tool_mask"] if "tool_mask" in output else mask


def completion_lengths(output: dict[str, Any]) -> torch.Tensor:
    """The number of each completion's tokens in the loss, shape (n,) (OPO: Hao et al., 2025)."""
    return loss_mask(output).sum(dim=1).float()


def score_norms(trainer: GRPOTrainer, output: dict[str, Any]) -> torch.Tensor:
    """Squared norm of each completion's score with respect to the logits, shape (n,), float32.

    ``sum_t (1 - 2 pi_t(y_t) + sum_v pi_t(v)^2)`` over the tokens in the loss, under the tempered distribution; top-p,
    top-k and min-p are not accounted for. It takes one forward pass over the generation batch. If TRL corrects for
    vLLM's probabilities, a token's norm is multiplied by the square of its importance ratio.
    """
    model = _Recorder(trainer.model)
    width = output["completion_ids"].size(1)
    with torch.no_grad(), disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
        log_probs, _, _ = trainer._get_per_token_logps_and_entropies(
            model,
            torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
            torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
            width,
            batch_size=trainer.args.per_device_train_batch_size,
            **{name: output[name] for name in _OF_IMAGES if name in output},
        )
    squares = torch.cat([square_sums[:, -width:] for square_sums in model.log_square_sums])
    norms = 1 - 2 * log_probs.float().exp() + squares.float().exp()
    return (norms.clamp(min=0) * token_weights(trainer, output) ** 2).sum(dim=1)


def token_weights(trainer: GRPOTrainer, output: dict[str, Any]) -> torch.Tensor:
    """The factor of each token in the loss, shape (n, T): 0 or 1, times the importance ratio if there is one."""
    weights = loss_mask(output).float()
    if "importance_sampling_ratio" in output and trainer.loss_type != "vespo":  # the loss that takes it otherwise
        weights = weights * output["importance_sampling_ratio"].float()
    return weights


def parameter_norms(trainer: GRPOTrainer, output: dict[str, Any], *, in_adams_units: bool) -> torch.Tensor:
    """Squared norm of each completion's score in all trained parameters, shape (n,), float32.

    The score, importance ratios and limitations are as in `score_norms`. It takes one more forward and backward pass,
    one completion at a time. In Adam's units, norms before the optimiser's first step are plain.
    """
    if any(name in output for name in _OF_IMAGES):
        raise ValueError("weights: 'exact' and 'adam' are for text models; use 'score_norm' if there are images.")
    squares = mean_squares(trainer.optimizer) if in_adams_units else None
    tokens = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
    attention = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
    completions, counted = output["completion_ids"], token_weights(trainer, output)
    width = completions.size(1)
    can_cut = "logits_to_keep" in signature(bare_model(trainer).forward).parameters
    options = {"logits_to_keep": width + 1} if can_cut else {}

    def scores(row: torch.Tensor) -> torch.Tensor:
        given = {"input_ids": tokens[row], "attention_mask": attention[row], "use_cache": False}
        logits = trainer.model(**given, **options).logits[:, -width - 1 : -1].float() / trainer.temperature
        return (selective_log_softmax(logits, completions[row]) * counted[row]).sum(dim=1)

    rows = torch.arange(len(tokens), device=tokens.device).split(1)
    with disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
        return torch.cat([gradient_norms(trainer.model, partial(scores, row), squares) for row in rows])


def check_parameter_norms(trainer: GRPOTrainer) -> None:
    """Raise a ValueError for models whose norms cannot be computed, after a trial with two fake completions."""
    kind = trainer.accelerator.distributed_type
    readable = kind == DistributedType.NO or kind.value.startswith("MULTI_")
    if kind == DistributedType.FSDP:
        plugin = trainer.accelerator.state.fsdp_plugin
        readable = plugin.fsdp_version == 2 and not isinstance(plugin.cpu_offload, CPUOffloadPolicy)
    if not readable:
        raise ValueError(
            f"weights: 'exact' and 'adam' cannot read parameters as {kind.value} holds them here; take 'score_norm', "
            "or FSDP with fsdp_version: 2 and fsdp_offload_params: false."
        )
    if next(trainer.model.parameters()).is_meta:  # FSDP2: the first process alone has read the model, and tries it
        return
    ids = torch.zeros(2, 2, dtype=torch.long, device=next(trainer.model.parameters()).device)
    names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    try:
        with torch.random.fork_rng():
            parameter_norms(trainer, dict(zip(names, (ids, ids + 1, ids, ids + 1), strict=True)), in_adams_units=False)
    except ValueError as error:
        raise ValueError(
            f"weights: 'exact' and 'adam' do not work with this model ({error}); take 'score_norm'."
        ) from error


def check_units(trainer: GRPOTrainer) -> None:
    """Raise a ValueError for optimisers whose units `mean_squares` does not know."""
    made = trainer.optimizer_cls_and_kwargs or trainer.get_optimizer_cls_and_kwargs(trainer.args, trainer.model)
    check_optimizer(made[0] if trainer.optimizer is None else type(trainer.optimizer))


def bare_model(trainer: GRPOTrainer) -> Any:
    """The trainer's model, without what DDP and PEFT wrap around it."""
    model = extract_model_from_parallel(trainer.model)
    return model.get_base_model() if is_peft_model(model) else model


def keep_square_sums(trainer: GRPOTrainer) -> None:
    """Make the trainer's fused LM head also return ``log sum_v pi(v)^2``; call it once, after construction."""
    add_fused_lm_head(
        bare_model(trainer),
        temperature=trainer.temperature,
        cast_lm_head_to_fp32=trainer.args.cast_lm_head_to_fp32,
        outputs=("log_probs", "entropy", "log_sum_sq_probs"),
    )


class _Recorder:
    """A model that keeps the part of its outputs that TRL does not pass on."""

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self.log_square_sums: list[torch.Tensor] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self._model(*args, **kwargs)
        self.log_square_sums.append(outputs.log_sum_sq_probs)
        return outputs
