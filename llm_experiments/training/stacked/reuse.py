"""Several updates of one batch: the clipped objective of completions that an earlier policy sampled."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, eq=False)
class Learnt:
    """A batch of every run, as its first update saw it.

    prompts, completions: Tensor of int, shapes (runs, rows, P) and (runs, rows, T).
    counted (Tensor of bool, shape (runs, rows, T)): True up to and with the end of each completion.
    advantages: Tensor, shape (runs, rows).
    scores (Tensor, shape (runs, rows, T)): Log-probabilities of the completions' tokens under the policy that sampled
        them.
    """

    prompts: torch.Tensor
    completions: torch.Tensor
    counted: torch.Tensor
    advantages: torch.Tensor
    scores: torch.Tensor


def clipped_losses(scores: torch.Tensor, learnt: Learnt, clip: float) -> torch.Tensor:
    """Each run's clipped loss, averaged over its tokens, shape (runs,).

    With r the ratio of a token's probability to that under the policy that sampled it, and A its completion's
    advantage, a token adds ``-min(r A, clamp(r, 1 - clip, 1 + clip) A)`` (Schulman et al., 2017, eq. 7). TRL's
    ``GRPOTrainer`` has the same loss with ``epsilon = clip``, no reference model, and ``loss_type="dapo"``, which
    averages over all tokens of the batch. At r = 1 its gradient is that of ``-A log r``, the loss of the first update.

    scores (Tensor, shape (runs, rows, T)): Log-probabilities of the completions' tokens now.
    """
    ratio = (scores - learnt.scores).exp()
    advantages = learnt.advantages[..., None]
    gained = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return -(gained * learnt.counted).sum((1, 2)) / learnt.counted.sum((1, 2))
