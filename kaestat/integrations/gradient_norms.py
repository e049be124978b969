"""Squared norms of single completions' gradients in a torch model, from one backward pass of their scores."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from kaestat.integrations.adam_units import Squares, Units
from kaestat.integrations.backward_norms import norms_in_backward


def gradient_norms(
    model: nn.Module, scores: Callable[[], torch.Tensor], squares: Squares | None = None
) -> torch.Tensor:
    """Squared norm of the gradient of each row's score in all trained parameters, shape (B,), float32.

    Raises a ValueError if a trained parameter belongs to an unsupported module, or has no mean square.

    Parameters
    ----------
    model : Module
        Its linear layers, embeddings and norms are called at most once in a forward pass, with rows first; an output
        layer may share the embedding's matrix. Gradient checkpointing must be off.
    scores : callable
        Calls the model on B rows and returns a score of each, shape (B,), such as the log-probability of its completion
        under the policy's temperature. A row's score must depend on that row alone.
    squares : mapping of Parameter to Tensor, optional
        Square of what each coordinate is divided by, as `mean_squares` reads it from an optimiser: the norm is then in
        Adam's units. Matrices are represented by their row and column means; parameters without a gradient so far
        count 0.
    """
    return score_gradients(model, scores, (squares,)).norms[0]


@dataclass(frozen=True, eq=False)
class ScoreGradients:
    """The result of one backward pass of B scores."""

    scores: torch.Tensor  # shape (B,)
    # shape (B,), float32; squared norms of the rows' gradients, in each of the units asked for
    norms: tuple[torch.Tensor, ...]
    total: dict[nn.Parameter, torch.Tensor]  # Gradient of the sum of all rows' scores, if requested; without units


def score_gradients(
    model: nn.Module,
    scores: Callable[[], torch.Tensor],
    units: Sequence[Squares | None] = (None,),
    *,
    total: bool = False,
) -> ScoreGradients:
    """Squared norms as `gradient_norms`, in several units, and the rows' summed gradient, from one backward pass.

    None among the ``units`` is the gradient's own. The summed gradient, returned with ``total``, has the size of the
    model.
    """
    with torch.enable_grad(), norms_in_backward(model, [Units(squares) for squares in units], total=total) as norms:
        found = scores()
        norms.begin(torch.ones_like(found, requires_grad=False))
        wanted = [parameter for parameter in model.parameters() if total and parameter.requires_grad]
        _, *own = torch.autograd.grad(found.sum(), [norms.reached, *wanted], allow_unused=True)
    kept = {parameter: each for parameter, each in zip(wanted, own, strict=True) if each is not None}
    return ScoreGradients(found.detach(), tuple(norms.norms), kept)


def usable_weights(norms: torch.Tensor, *, over_mean: bool = True) -> torch.Tensor:
    """Weights of a step's completions, shape (N,): their norms, or 1 for each with a warning if norms are unusable.

    They are if all norms are 0, which would make every value 0, or their mean is not finite. In Adam's units norms must
    be divided by their mean (``over_mean``).
    """
    mean = norms.mean()
    if mean.isfinite() and mean > 0:
        return norms / mean if over_mean else norms
    warnings.warn(
        f"weights: the mean of {len(norms)} completions' weights is {float(mean)}; each gets 1, as without weights.",
        stacklevel=2,
    )
    return torch.ones_like(norms)
