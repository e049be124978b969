"""Which policy sampled a completion: slime's numbers of weights as training steps.

slime numbers the weights that it pushes to its engines 1, 2, ... anew in every process: 1 before the first rollout, the
next ones after training (``train_async.py``: after each rollout r with (r + 1) % ``--update-weights-interval`` == 0).
SGLang tells the number with every response, and slime appends it to ``Sample.weight_versions``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kaestat.integrations.shared.upstream import Upstream

SLIME = Upstream("slime", "slime", "its main branch at commit 624b824")


def policy_steps(
    args: Any,
    samples: list[Any],
    completion: np.ndarray,
    mask: np.ndarray,
    step: int | None,
    first_rollout: int | None,
) -> np.ndarray:
    """Step of the policy that sampled each completion: the number of rollouts that it had been trained on.

    Parameters
    ----------
    args : namespace
        slime's arguments.
    samples : list of slime.utils.types.Sample, length N
    completion : ndarray of int, shape (N,)
        Completion of each sample. One that several policies sampled, in turns, in segments or after an abort, is of the
        last of them.
    mask : ndarray of bool, shape (C,)
        Completions that count; others may be without weights, and get 0.
    step : int or None
        Rollout that is trained on.
    first_rollout : int or None
        That this process began with.

    Returns
    -------
    ndarray of int, shape (C,)

    Raises
    ------
    ValueError
        If a completion has no number of weights, or one of a policy that is not there yet.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> samples = [SimpleNamespace(weight_versions=versions) for versions in (["1"], ["1", "2"], ["4"])]
    >>> args = SimpleNamespace(update_weights_interval=1, release_train=False)
    >>> policy_steps(args, samples, np.arange(3), np.ones(3, dtype=bool), step=6, first_rollout=2).tolist()
    [2, 3, 5]
    """
    if step is None or first_rollout is None:
        raise ValueError(
            'order="any": the policies are counted from the first rollout; pass --rollout-function-path '
            "kaestat.integrations.slime.generate_rollout, or wrap yours with_step."
        )
    interval = 1 if getattr(args, "release_train", False) else args.update_weights_interval
    newest = np.zeros(len(mask), dtype=np.int64)
    for sample, number in zip(samples, completion, strict=True):
        newest[number] = max([newest[number], *map(_number, sample.weight_versions)])
    if not newest[mask].all():
        raise ValueError(
            f'order="any": {np.count_nonzero(newest[mask] == 0)} completions have no weight_versions, so that the '
            "policy that sampled them is not known; let your generate function hand SGLang's meta_info to "
            "Sample.append_response_tokens, or leave the order strict."
        )
    trained = (first_rollout // interval + newest - 1) * interval
    found = np.where(newest > 1, trained, np.where(newest == 1, first_rollout, 0))
    if found.max(initial=0) > step:
        raise ValueError(
            f"weights {newest.max()} are those after {found.max()} rollouts, by --update-weights-interval {interval} "
            f"and a process that began with rollout {first_rollout}, but rollout {step} is processed; train.py updates "
            "its weights after every rollout, so leave --update-weights-interval at 1 there."
        )
    return found


def _number(version: Any) -> int:
    if not str(version).isdigit():
        raise ValueError(
            f"weight_versions: {version!r} is not a number of weights that slime pushed to its engines; "
            "leave the order strict where they serve other weights."
        )
    return int(version)
