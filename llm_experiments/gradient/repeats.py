"""Errors of sampled gradients from the Gram matrix of a pool's scores: no gradient is ever made."""

import numpy as np


def gradient_errors(gram: np.ndarray, reference: np.ndarray, indices: np.ndarray, advantages: np.ndarray) -> np.ndarray:
    """``||ghat - gref||^2`` of policy gradients sampled from a pool, as in the paper's gradient diagnostic.

    With the scores ``s_h`` of the N pooled completions, the gradient of the loss ``-(1/G) sum_g A_g log pi(y_g)`` is
    ``ghat = -(1/G) sum_g A_g s_{h_g}``, and ``gref = -sum_h cref_h s_h``. So for ``K = S S'`` the error is ::

        sum_{g, k} A_g A_k K[h_g, h_k] / G^2  -  2 sum_g A_g (K cref)[h_g] / G  +  cref' K cref

    gram (ndarray, shape (N, N)): K, inner products of the pool's scores.
    reference (ndarray, shape (N,)): Coefficients ``cref`` of the reference gradient; ``(z_h - mean z) / N`` in the
        paper.
    indices (integer ndarray, shape (R, G)): Which pooled completions each of R repeats drew; a completion may be drawn
        more than once.
    advantages (ndarray, shape (..., R, G)): Of the drawn completions; leading axes (methods) share the draws.
    Returns ndarray, shape (..., R): Not negative; what rounding leaves below 0 is 0.
    """
    coefficients = advantages / indices.shape[1]
    drawn = gram[indices[:, :, None], indices[:, None, :]]
    towards = gram @ reference
    squared = np.einsum("...rg,...rg->...r", np.squeeze(drawn @ coefficients[..., None], axis=-1), coefficients)
    cross = np.einsum("...rg,rg->...r", coefficients, towards[indices])
    return np.maximum(squared - 2 * cross + reference @ towards, 0.0)
