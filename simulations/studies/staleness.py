"""Does staleness hurt a baseline? Late completions, recorded under their own policy's version and under their arrival.

Written down before any run:

- *Drift.* Logits of success walk by .03 (slow), .1 (medium) or .3 (fast) a step, and all other logits by as much, so
  that .0005, .005 or .05 nats lie between the policies of two steps. A real run's values moved by .12 to .15 an epoch.
- *Stale.* A completion is sampled by the policy of step v, and its reward is known and used at step t = v + delay.
- *Estimands.* Its reward is one of policy v, so the baseline of ``A grad log pi_t`` is to predict V_v. With importance
  weights ``w = pi_t / pi_v`` the gradient is that of V_t, and the weighted mean estimates V_t. Both true values are
  given to the gradients as yardsticks.
- *Recorded* under v (``version=``), which a user has to hand on, or under t (by arrival), which is what happens without.
  With all completions late by the same, both are the same history but for its name: there no difference is expected.
- *Arrival.* All together; spread (groups, each of its own delay); singly (each completion when it is ready, with
  heavy-tailed times); waiting (the same times, a group being used when its last one is ready). What waiting costs is the
  lateness of the others.
- *No difference* is a ratio of MSEs within 5 % of 1, the standard error included.
- *Endpoints.* Value MSE; MSE of the gradient of the policy that is trained, without and with importance weights; both
  relative to the same method at staleness 0, and to RLOO (GRPO's mean, own reward left out) at the same staleness.

What is not in it: the policy's path is given, so a worse gradient does not make a worse policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kaestat import AdvantageEstimator
from simulations.bandits.stale_policy import ARRIVALS, Sampled, delays, longest, policy_path
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, ratio_of_means
from simulations.harness.study import grid

SPEEDS = {"slow": (0.03, 20.0), "medium": (0.1, 10.0), "fast": (0.3, 4.0)}  # logits a step, bandwidth in steps
STALENESS = (1, 2, 4, 8)
N_PROMPTS, GROUP_SIZE = 32, 8
SCORED = slice(20, 32)  # steps of sampling
LIMIT = 1.05
REFERENCE, YARDSTICKS = "rloo", ("value then", "value now")
GRADIENTS = ("gradient", "reweighted")


@dataclass(frozen=True)
class Way:
    """A method, and what is handed on to it with a late completion.

    Attributes
    ----------
    method : str
    arrival : bool
        Whether completions are recorded under the step of their arrival, as without a version.
    importance : bool
    """

    method: str
    arrival: bool = False
    importance: bool = False

    @property
    def name(self) -> str:
        """As in the results."""
        return self.method + ", reweighted" * self.importance + ", by arrival" * self.arrival

    def estimator(self, bandwidth: float) -> AdvantageEstimator:
        """A new one."""
        given = {"bandwidth": bandwidth} if self.method.startswith("kae") else {}
        given |= {"rho": 0.9} if self.method == "spo" else {}
        return AdvantageEstimator(self.method, order="strict" if self.arrival else "any", scale="none", **given)


HISTORIES = ("kae", "kae_eb", "spo")
WAYS = (
    *(Way(method, arrival=arrival) for method in HISTORIES for arrival in (False, True)),
    Way("bayes_filter", arrival=True),  # takes steps in order alone
    *(Way("kae_eb", arrival=arrival, importance=True) for arrival in (False, True)),
    *(Way(method, importance=importance) for method in (REFERENCE, "reinforce++") for importance in (False, True)),
    Way("none"),
)


def simulate(cell: Cell, streams: Streams) -> Samples:
    names = ("policy", "answers", f"delays {cell['arrival']}")
    runs = zip(*(streams.generators(name) for name in names), strict=True)
    rows = [_measured(cell, *each) for each in runs]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _measured(
    cell: Cell, path: np.random.Generator, answers: np.random.Generator, late: np.random.Generator
) -> dict[str, float]:
    """One run: the values that every way assigns, and the errors of what follows from them."""
    speed, bandwidth = SPEEDS[cell["speed"]]
    arrival, staleness = cell["arrival"], cell["staleness"]
    n_steps = SCORED.stop + longest(arrival, staleness)
    shape = (n_steps, N_PROMPTS, GROUP_SIZE)
    policy = policy_path(path, n_steps, N_PROMPTS, speed)
    sampled = Sampled.of(policy, answers.random(shape), delays(late, arrival, staleness, shape))
    values = {way.name: assigned(way, bandwidth, sampled, n_steps) for way in WAYS}
    values |= {"value then": sampled.value_then, "value now": sampled.value_now}

    columns = {"lateness": float((sampled.used - np.arange(n_steps)[:, None, None])[SCORED].mean())}
    columns["squared_bias"], columns["gradient2"] = sampled.bias(SCORED)
    reward, importance = sampled.reward, sampled.importance
    for name, value in values.items():
        reweighted = "reweighted" in name
        truth = values["value now" if reweighted else "value then"]
        columns[f"{name}|value_mse"] = float(((value - truth)[SCORED] ** 2).mean())
        columns[f"{name}|reweighted_mse"] = sampled.gradient_error(importance * (reward - value), SCORED)
        if not reweighted:
            columns[f"{name}|gradient_mse"] = sampled.gradient_error(reward - value, SCORED)
    return columns


def assigned(way: Way, bandwidth: float, sampled: Sampled, n_steps: int) -> np.ndarray:
    """What the estimator takes for the value of each completion when it arrives; shape (T, P, G).

    Those that arrive after the run have none.
    """
    estimator = way.estimator(bandwidth)
    version, prompt, _ = (index.ravel() for index in np.indices(sampled.answer.shape))
    used, reward, importance = (part.ravel() for part in (sampled.used, sampled.reward, sampled.importance))
    order = np.argsort(used, kind="stable")
    bounds = np.searchsorted(used[order], np.arange(n_steps + 1))
    value = np.full(used.shape, np.nan)
    for step in range(n_steps):
        here = order[bounds[step] : bounds[step + 1]]
        given = {} if way.arrival else {"version": version[here]}
        given |= {"importance": importance[here]} if way.importance else {}
        estimator.step(prompt[here].tolist(), reward[here], step, **given)
        value[here] = estimator.values
    return value.reshape(sampled.answer.shape)


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Errors of every way; relative to RLOO's here; and what recording by arrival costs."""
    estimates = [average("lateness", samples["lateness"])]
    estimates.append(ratio_of_means("bias_to_gradient", samples["squared_bias"], samples["gradient2"]))
    for column, numbers in samples.items():
        way, bar, measure = column.partition("|")
        if not bar:
            continue
        estimates.append(average(column, numbers))
        if way not in YARDSTICKS or measure != "value_mse":
            estimates.append(ratio_of_means(f"{way}|{_kind(measure)}_to_rloo", numbers, samples[f"{REFERENCE}|{measure}"]))
        named = f"{way}, by arrival|{measure}"
        if named in samples:
            estimates.append(ratio_of_means(f"{way}|{_kind(measure)}_by_arrival", samples[named], numbers))
    return estimates


def compare(cells: Sequence[Cell], samples: Sequence[Samples]) -> list[Estimate]:
    """Every way relative to itself at staleness 0; and not waiting relative to waiting, for itself and for RLOO."""
    found = {(cell["arrival"], cell["staleness"]): sample for cell, sample in zip(cells, samples, strict=True)}
    fresh, estimates = found.get(("together", 0)), []
    for (arrival, staleness), sample in found.items():
        if fresh is not None and staleness:
            estimates += _ratios(f"{arrival} {staleness}", "fresh", sample, fresh)
        waiting = found.get(("waiting", staleness))
        if arrival == "singly" and waiting is not None:
            estimates += _ratios(f"{arrival} {staleness}", "waiting", sample, waiting)
            rloo = {name: waiting[f"{REFERENCE}|{name.partition('|')[2]}"] for name in sample if "|" in name}
            estimates += _ratios(f"{arrival} {staleness}", "rloo_waiting", sample, rloo)
    return estimates


def _ratios(place: str, reference: str, sample: Samples, other: Samples) -> list[Estimate]:
    return [
        ratio_of_means(f"{way} @ {place}|{_kind(measure)}_to_{reference}", numbers, other[f"{way}|{measure}"])
        for (way, bar, measure), numbers in ((name.partition("|"), column) for name, column in sample.items())
        if bar and not (way in YARDSTICKS and measure == "value_mse")
    ]


def _kind(measure: str) -> str:
    return measure.removesuffix("_mse")


STUDY = Study(
    name="staleness",
    aims="Does staleness hurt a baseline, what does it buy to hand on each completion's version, and what does a history "
    "gain from not waiting for whole groups?",
    mechanisms=f"{N_PROMPTS} prompts, {GROUP_SIZE} completions of each a step; logits of a softmax policy walk at random "
    "at one of three speeds; completions are late by 0 to 8 steps on average, in four patterns of arrival.",
    estimands="The value of the policy that sampled a completion (with importance weights: of the one that is trained), "
    "and the gradient of the value of the policy that is trained.",
    methods=(*(way.name for way in WAYS), *YARDSTICKS),
    measures=(
        "lateness",
        "bias_to_gradient",
        *(
            f"{kind}{end}"
            for kind in ("value", *GRADIENTS)
            for end in ("_mse", "_to_rloo", "_by_arrival", "_to_fresh", "_to_waiting", "_to_rloo_waiting")
        ),
    ),
    cells=(
        *grid(speed=tuple(SPEEDS), arrival=("together",), staleness=(0,)),
        *grid(speed=tuple(SPEEDS), arrival=ARRIVALS, staleness=STALENESS),
    ),
    replicates=8,
    shard=2,
    simulate=simulate,
    summarise=summarise,
    compare=compare,
    common=("arrival", "staleness"),
)
