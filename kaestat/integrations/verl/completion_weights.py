"""Weights of completions from verl's actor: squared norms of scores, with respect to logits or to parameters."""

from typing import Any

import numpy as np
import torch
import transfer_queue
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_from_nested

from kaestat.integrations.gradient_norms import usable_weights
from kaestat.integrations.verl.options import WEIGHTS_OPTION
from kaestat.integrations.verl.rows import BatchRows

SQUARES = "calculate_sum_pi_squared"  # verl's name, in its configuration and in what it hands to its workers
NORMS = "kaestat_norms"  # in a batch's extra_info: the weights wanted; in its stored fields: norms of rows


def check_actor(config: Any, weights: str, verl_mode: str) -> None:
    """Raise a ValueError for a configuration in which the actor cannot give the norms that the weights need."""
    actor, model, algorithm = config.actor_rollout_ref.actor, config.actor_rollout_ref.model, config.algorithm
    correction, engine = algorithm.get("rollout_correction", None) or {}, actor.get("fsdp_config", None) or {}
    precision = (engine.get("mixed_precision", None) or {}).get("param_dtype", "bf16")
    parts = max(each.get("ulysses_sequence_parallel_size", 1) for each in (actor, engine))
    wrong = {
        "actor_rollout_ref.model.use_fused_kernels=False": model.get("use_fused_kernels", False),
        "algorithm.rollout_correction.bypass_mode=False": correction.get("bypass_mode", False),
    }
    if weights == "score_norm":
        wrong[f"actor_rollout_ref.actor.{SQUARES}=True"] = not actor.get(SQUARES, False)
    else:
        wrong |= {
            "trainer.v1.trainer_mode=kaestat_sync": verl_mode != "sync",
            "model_engine=dp and actor_rollout_ref.actor.strategy=fsdp2": actor.strategy != "fsdp2",
            "actor_rollout_ref.model.use_remove_padding=False": model.get("use_remove_padding", False),
            "actor_rollout_ref.model.mtp.enable=False": (model.get("mtp", None) or {}).get("enable", False),
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size=1": parts > 1,
            "actor_rollout_ref.actor.fsdp_config.offload_policy=False": engine.get("offload_policy", False),
            "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16": "16" in str(precision)
            and "bf" not in str(precision),
            "algorithm.rollout_correction.rollout_is=null": correction.get("rollout_is", None) is not None,
        }
    remedy = next((remedy for remedy, needed in wrong.items() if needed), None)
    if remedy is not None:
        raise ValueError(
            f"{WEIGHTS_OPTION}={weights} takes norms from the actor, which needs {remedy}; or take "
            f"{WEIGHTS_OPTION}={'length' if weights == 'score_norm' else 'score_norm'}."
        )


def stored_row_norms(batch: KVBatchMeta, rows: BatchRows, weights: str) -> torch.Tensor:
    """Weights of a V1 batch's rows by their norms in the parameters, shape (N,), from verl's transfer queue."""
    if (rows.final != np.arange(len(rows.final))).any():
        raise ValueError(
            f"{WEIGHTS_OPTION}={weights}: an agent loop gave several outputs for a completion, whose norms do not add "
            f"up to its own; take {WEIGHTS_OPTION}=score_norm."
        )
    stored = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=[NORMS])
    norms = torch.stack([row.reshape(()) for row in stored[NORMS].unbind()])
    found, kept = torch.zeros_like(norms), torch.as_tensor(~rows.padding)
    found[kept] = usable_weights(norms[kept], over_mean=weights == "adam")
    return found


def token_norms(data: DataProto, algorithm: Any) -> torch.Tensor:
    """Squared norm of each token's score with respect to the logits, (N, response length), float32.

    That is ``1 - 2 pi_t(y_t) + sum_v pi_t(v)^2``, times the square of verl's importance weight if it corrects for the
    rollout's policy. Norms outside the mask are returned, too.
    """
    if "sum_pi_squared" not in data.batch.keys():
        raise ValueError(
            "verl's actor returned no sum_pi_squared, of which score norms are made. The engines fsdp, megatron and "
            "veomni of verl 0.9.1 do; take one of them, or algorithm.kaestat.weights=length."
        )
    probability = data.batch["old_log_probs"].float().exp()
    norms = (1 - 2 * probability + data.batch["sum_pi_squared"].float()).clamp(min=0)
    importance = _importance_weights(data, algorithm.get("rollout_correction", None))
    return norms if importance is None else norms * importance.float() ** 2


def stored_token_norms(batch: KVBatchMeta, algorithm: Any) -> torch.Tensor:
    """`token_norms` of a V1 batch, from verl's transfer queue."""
    names = ["response_mask", "old_log_probs", "sum_pi_squared", "rollout_log_probs"]
    stored = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
    if "sum_pi_squared" in stored.keys():  # of prompt and response, as the engine returned it
        stored["sum_pi_squared"] = response_from_nested(stored["sum_pi_squared"], stored["response_mask"])
    return token_norms(DataProto(batch=stored.to_padded_tensor()), algorithm)


def _importance_weights(data: DataProto, correction: Any) -> torch.Tensor | None:
    """The factor by which verl will multiply the loss; its own copy is not available before the advantages."""
    if correction is None or correction.get("rollout_is", None) is None or "rollout_log_probs" not in data.batch.keys():
        return None
    names = ["response_mask", "old_log_probs", "rollout_log_probs"]
    corrected, _ = compute_rollout_correction_and_add_to_batch(data.select(batch_keys=names), correction)
    return corrected.batch["rollout_is_weights"]
