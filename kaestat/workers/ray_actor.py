"""One estimator in an actor of Ray, which many workers call."""

from __future__ import annotations

from typing import Any

from kaestat.advantage import AdvantageEstimator
from kaestat.baselines.base import Baseline


def estimator_actor(method: str | Baseline = "kae", *, name: str | None = None, **options: Any) -> Any:
    """An actor that holds an `AdvantageEstimator` with ``order="any"``, on Ray as it is set up.

    Calls of all workers are served one at a time, in the order in which they arrive, which does not matter.

    Parameters
    ----------
    method : str or Baseline
        As `AdvantageEstimator`.
    name : str, optional
        Workers that ask for an actor of this name get the one that is there; the first makes it. It lives as long as
        one of them holds it. None makes an actor without a name.
    **options
        Further arguments of `AdvantageEstimator`.

    Returns
    -------
    ray.actor.ActorHandle
        With the estimator's methods: ``step``, ``observe``, ``advantages``, ``predict``, ``merge``, ``state_dict``,
        ``load_state_dict``. ``ray.get(actor.step.remote(...))`` gives what `AdvantageEstimator.step` gives.

    Raises
    ------
    ImportError
        If Ray is not installed.
    ValueError
        As `AdvantageEstimator`.

    Examples
    --------
    On any worker::

        actor = estimator_actor("kae", name="baseline")
        advantages = ray.get(actor.step.remote(prompt_ids, rewards, step, version=versions))
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("an estimator in an actor needs Ray: pip install ray.") from error
    AdvantageEstimator(method, order="any", **options)  # an actor that fails as it starts says so late
    kept = {} if name is None else {"name": name, "get_if_exists": True}
    return ray.remote(num_cpus=0)(AdvantageEstimator).options(**kept).remote(method, order="any", **options)
