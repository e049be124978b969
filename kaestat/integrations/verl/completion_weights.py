"""Weights of completions from the output of verl's actor: stand-ins for the squared norm of the score.

verl's engines can return ``sum_v pi(v)^2`` of every token with its log probability, in the same forward pass. verl's
own optimal token baseline uses it. Its V1 trainers (0.9.1, and main at 1dda039) do not request it. Ours do if the
configuration says ``actor_rollout_ref.actor.calculate_sum_pi_squared=True``.
"""

from typing import Any

import torch
import transfer_queue
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_from_nested

ASKED = "calculate_sum_pi_squared"  # verl's name, in its configuration and in what it hands to its workers


def check_actor(config: Any, wanted: str) -> bool:
    """Whether the actor must be ours to give sums of squared probabilities, as with verl's fused kernels.

    A ValueError for a configuration in which neither gives them; ``wanted`` is the option that needs them.
    """
    because = f"algorithm.{wanted}: "
    if not config.actor_rollout_ref.actor.get(ASKED, False):
        raise ValueError(f"{because}set actor_rollout_ref.actor.{ASKED}=True.")
    fused = bool(config.actor_rollout_ref.model.get("use_fused_kernels", False))
    if fused and config.actor_rollout_ref.actor.strategy != "fsdp2":
        raise ValueError(
            f"{because}verl's fused kernels never hold the logits; set actor_rollout_ref.actor.strategy=fsdp2, with "
            "which they are made again, or actor_rollout_ref.model.use_fused_kernels=False."
        )
    if (config.algorithm.get("rollout_correction", None) or {}).get("bypass_mode", False):
        raise ValueError(
            f"{because}the actor computes no log probabilities before the advantages with "
            "algorithm.rollout_correction.bypass_mode=True; set it to False."
        )
    return fused


def token_norms(data: DataProto, algorithm: Any) -> torch.Tensor:
    """Squared norm of each token's score with respect to the logits, (N, response length), float32.

    That is ``1 - 2 pi_t(y_t) + sum_v pi_t(v)^2``. If verl corrects for the rollout's policy, a token's loss is
    multiplied by its importance weight w, and its norm by w^2: the best baseline is then ``E[w^2 |s|^2 r] / E[w^2
    |s|^2]``, as in verl's optimal token baseline. Norms outside the mask are returned, too. A ValueError if the actor
    returned no sums of squared probabilities.
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
