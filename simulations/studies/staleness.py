"""Does staleness hurt a baseline? Late completions, and what is handed on of them.

Design, written down before any run:

- *Drift.* Logits of success walk by .03 (slow), .1 (medium) or .3 (fast) a step with a trend upwards, and all other
  logits by as much: about .0005, .005 or .05 nats lie between the policies of two steps. Values of a real run moved by
  .12 to .15 an epoch, which is slow if an epoch has twenty steps.
- *Stale.* A completion is sampled by the policy of step v, and its reward is known and used at step t = v + delay.
- *Estimands.* Its reward is one of policy v, so the baseline of ``A grad log pi_t`` is to predict V_v. With importance
  weights ``w = pi_t / pi_v`` the gradient is that of V_t, which the weighted mean estimates. Both true values are given
  to the gradients as yardsticks.
- *Recorded* under v (``version=``), which a user has to hand on, or under t (by arrival), as happens without. With all
  completions late by the same, both are one history but for its name, and no difference is expected.
- *Arrival.* All together; spread (groups, each of its own delay); singly (each completion when it is ready, with
  heavy-tailed times); waiting (the same times, a group being used when its last one is ready). Waiting costs the
  lateness of the others.
- *No difference* is a ratio of MSEs within `LIMIT` of 1, its Monte Carlo error included.
- *Endpoints.* Value MSE; MSE of the gradient of the policy that is trained, without and with importance weights; each
  relative to the same method at staleness 0, and to RLOO (GRPO's mean, own reward left out) at the same staleness.

A first look, at seed 0, showed that versions cost more than they gave: a history was kept as long as the bandwidth back
from the newest step, so a late completion saw the less of it the later it was; and by arrival it sees rewards of later
versions, which with a version it does not. So two ways were added before the run that counts (seed 1): a history kept
longer, and all that has arrived, on both sides of a completion's version. The first is what an estimator in any order
does by itself since then (``late=``), so that with versions nothing else is left to measure.

What is not in it: the policy's path is given, so a worse gradient does not make a worse policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kaestat import AdvantageEstimator, make_baseline
from simulations.bandits.stale_policy import ARRIVALS, Sampled, delays, longest, policy_path
from simulations.bandits.two_sided import two_sided_values
from simulations.harness import Cell, Estimate, Samples, Streams, Study, average, ratio_of_means
from simulations.harness.study import grid

SPEEDS = {"slow": (0.03, 20.0), "medium": (0.1, 10.0), "fast": (0.3, 4.0)}  # logits a step, bandwidth in steps
STALENESS = (1, 2, 4, 8)
N_PROMPTS, GROUP_SIZE = 32, 8
SCORED = slice(20, 32)  # steps of sampling
LIMIT = 1.05
REFERENCE, YARDSTICKS = "rloo", ("value then", "value now")
ERRORS = ("value_mse", "gradient_mse", "reweighted_mse")


@dataclass(frozen=True)
class Way:
    """A method, and what its history makes of a late completion.

    Attributes
    ----------
    method : str
    recorded : str
        ``version``: under the version that is handed on. ``arrival``: under the step of its arrival, as without a
        version. ``both``: no way of the library's; all that has arrived counts by the distance of versions
        (`two_sided_values`).
    importance : bool
    """

    method: str
    recorded: str = "version"
    importance: bool = False

    @property
    def name(self) -> str:
        """As in the results."""
        return self.method + ", reweighted" * self.importance + ENDINGS[self.recorded]

    def estimator(self, bandwidth: float) -> AdvantageEstimator:
        """A new one."""
        given: dict[str, object] = {"bandwidth": bandwidth} if self.method.startswith("kae") else {}
        given |= {"rho": RHO} if self.method == "spo" else {}
        order = "strict" if self.recorded == "arrival" else "any"
        return AdvantageEstimator(self.method, order=order, scale="none", **given)


ENDINGS = {"version": "", "arrival": ", by arrival", "both": ", both sides"}
HISTORIES, RHO = ("kae", "kae_eb", "spo"), 0.9
WAYS = (
    *(Way(method, recorded) for method in HISTORIES for recorded in ("version", "arrival")),
    Way("kae", "both"),
    Way("bayes_filter", "arrival"),  # takes steps in order alone
    *(Way("kae_eb", recorded, importance=True) for recorded in ("version", "arrival")),
    *(Way(method, importance=importance) for method in (REFERENCE, "reinforce++") for importance in (False, True)),
    Way("none"),
)
CONTRASTS = {
    "arrival to version, kae": ("kae, by arrival", "kae"),
    "arrival to version, kae_eb": ("kae_eb, by arrival", "kae_eb"),
    "arrival to version, spo": ("spo, by arrival", "spo"),
    "both sides to arrival": ("kae, both sides", "kae, by arrival"),
    "both sides to version": ("kae, both sides", "kae"),
    "importance to none, by arrival": ("kae_eb, reweighted, by arrival", "kae_eb, by arrival"),
    "importance to none, versions": ("kae_eb, reweighted", "kae_eb"),
    "importance to none, rloo": ("rloo, reweighted", "rloo"),
    "now to then": ("value now", "value then"),
}


def simulate(cell: Cell, streams: Streams) -> Samples:
    runs = zip(*(streams.generators(name) for name in ("policy", "answers", "delays")), strict=True)
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
    if way.recorded == "both":
        return two_sided_values(make_baseline(way.method, bandwidth=bandwidth), sampled)
    estimator = way.estimator(bandwidth)
    version, prompt, _ = (index.ravel() for index in np.indices(sampled.answer.shape))
    used, reward, importance = (part.ravel() for part in (sampled.used, sampled.reward, sampled.importance))
    order = np.argsort(used, kind="stable")
    bounds = np.searchsorted(used[order], np.arange(n_steps + 1))
    value = np.full(used.shape, np.nan)
    for step in range(n_steps):
        here = order[bounds[step] : bounds[step + 1]]
        given = {} if way.recorded == "arrival" else {"version": version[here]}
        given |= {"importance": importance[here]} if way.importance else {}
        estimator.step(prompt[here].tolist(), reward[here], step, **given)
        value[here] = estimator.values
    return value.reshape(sampled.answer.shape)


def summarise(cell: Cell, samples: Samples) -> list[Estimate]:
    """Errors of every way, to RLOO's here, and the contrasts of ways."""
    estimates = [average("lateness", samples["lateness"])]
    estimates.append(ratio_of_means("bias_to_gradient", samples["squared_bias"], samples["gradient2"]))
    for column, numbers in _errors(samples):
        way, _, measure = column.partition("|")
        estimates.append(average(column, numbers))
        estimates.append(ratio_of_means(f"{way}|{_kind(measure)}_to_rloo", numbers, samples[f"{REFERENCE}|{measure}"]))
    for name, (way, other) in CONTRASTS.items():
        for measure in ERRORS:
            pair = [samples.get(f"{each}|{measure}") for each in (way, other)]
            if pair[0] is not None and pair[1] is not None and pair[1].any():
                estimates.append(ratio_of_means(f"{name}|{_kind(measure)}_ratio", *pair))
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
            rloo = {name: waiting[f"{REFERENCE}|{name.partition('|')[2]}"] for name, _ in _errors(sample)}
            estimates += _ratios(f"{arrival} {staleness}", "rloo_waiting", sample, rloo)
    return estimates


def _ratios(place: str, reference: str, sample: Samples, other: Samples) -> list[Estimate]:
    return [
        ratio_of_means(f"{way} @ {place}|{_kind(measure)}_to_{reference}", numbers, other[f"{way}|{measure}"])
        for (way, _, measure), numbers in ((name.partition("|"), column) for name, column in _errors(sample))
    ]


def _errors(samples: Samples) -> list[tuple[str, np.ndarray]]:
    """Columns of errors that are not 0 by construction."""
    exact = {f"{way}|value_mse" for way in YARDSTICKS}
    return [(name, column) for name, column in samples.items() if "|" in name and name not in exact]


def _kind(measure: str) -> str:
    return measure.removesuffix("_mse")


STUDY = Study(
    name="staleness",
    aims="Does staleness hurt a baseline, what does it buy to hand on each completion's version, and what does a "
    "history gain from not waiting for whole groups?",
    mechanisms=f"{N_PROMPTS} prompts, {GROUP_SIZE} completions of each a step; logits of a softmax policy walk at "
    "random at one of three speeds; completions are late by 0 to 8 steps on average, in four patterns of arrival.",
    estimands="The value of the policy that sampled a completion (with importance weights: of the one that is "
    "trained), and the gradient of the value of the policy that is trained.",
    methods=(*(way.name for way in WAYS), *YARDSTICKS, *CONTRASTS),
    measures=(
        "lateness",
        "bias_to_gradient",
        *(
            f"{error.removesuffix('_mse')}_{end}"
            for error in ERRORS
            for end in ("mse", "to_rloo", "ratio", "to_fresh", "to_waiting", "to_rloo_waiting")
        ),
    ),
    cells=(
        *grid(speed=tuple(SPEEDS), arrival=("together",), staleness=(0,)),
        *grid(speed=tuple(SPEEDS), arrival=ARRIVALS[:2], staleness=STALENESS),
        *grid(speed=tuple(SPEEDS), arrival=ARRIVALS[2:], staleness=STALENESS[:3]),  # waiting makes ten of four
    ),
    replicates=6,
    shard=3,
    simulate=simulate,
    summarise=summarise,
    compare=compare,
    common=("arrival", "staleness"),
)
