"""The stateful object in a training loop that chooses the prompts of each step, and the completions of each."""

import json
import math
import warnings
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.core.arrays import Array
from kaestat.core.checks import check_column, check_ids, check_number, check_seed, check_share, check_whole, whole_step
from kaestat.core.samples import Packing
from kaestat.core.storage import decode_keys, encode_keys, pack_arrays, reading, unpack_arrays
from kaestat.core.weighted_noise import PARTS, of_population
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.prediction import Population, Prediction
from kaestat.sampling.allocation import allocate, systematic
from kaestat.sampling.draw import CORRECTIONS, Draw, Plan, corrections
from kaestat.sampling.policies import Ask, Policy, make_policy

FLOOR = 0.1  # bounds corrections by 10, and spends a tenth of the budget where the policy would not
PREDICTED = ("value", "effective_completions", "reward_variance")  # fields of a `Prediction`
ROUNDING = 1e-6  # of a range: rewards in single precision may lie so far outside


class PromptSampler:
    """Draws the prompts whose completions are most informative, without changing the objective.

    Each step's expected numbers of completions nu come from the past alone. A draw matches them in expectation and uses
    exactly the budget. Multiply advantages by ``B pi / nu`` (`Draw.correction_of`): this keeps the gradient of
    ``sum pi V`` unbiased.

    Parameters
    ----------
    prompt_ids : sequence of hashables, length P
        The prompts, each once; the same ids as for rewards.
    budget : int
        B, completions per step.
    policy : str or Policy
        A name from `kaestat.sampling.POLICIES`, or a policy of your own.
    predictor : str or AdvantageEstimator
        Source of the predictions: the estimator used in training (the same object, no reward is recorded twice), or the
        name of a method with a history, whose estimator the sampler then keeps and saves.
    group_size : int, optional
        G: prompts get whole groups of G completions, at most one per step. None leaves the numbers free.
    floor : float
        Smallest part of its share that every prompt keeps, in [0, 1): corrections are at most ``1 / floor``.
    most : int, optional
        Largest number of completions of a prompt per step if ``group_size`` is None; None for no limit.
    correction : {"full", "clipped", "none"}
        See `kaestat.sampling.draw.corrections`.
    share : array-like of float, shape (P,), optional
        Weights pi of the prompts in the objective, summing to 1; None for equal weights.
    cost : array-like of float, shape (P,), optional
        Expected cost of a completion of each prompt, for example in tokens; None for equal costs.
    low, high : float, optional
        Range of the rewards; policies see them mapped to [0, 1]. None for the range of the predictor's method, or 0 and
        1 if it has none. A reward outside counts as the nearer end, with one warning.
    seed : int
        Seed of the draws.

    Attributes
    ----------
    last_draw : Draw or None
        Saved with the state: a trainer whose data loader prefetches a batch uses it again after a resume.

    Raises
    ------
    ValueError
        If a parameter is unknown or out of range, a prompt occurs twice, or parameters do not go together.
    """

    def __init__(
        self,
        prompt_ids: Sequence[Hashable],
        budget: int,
        *,
        policy: str | Policy = "neyman",
        predictor: str | AdvantageEstimator = "kae_eb",
        group_size: int | None = None,
        floor: float = FLOOR,
        most: int | None = None,
        correction: str = "full",
        share: Any = None,
        cost: Any = None,
        low: float | None = None,
        high: float | None = None,
        seed: int = 0,
    ):
        self.policy = make_policy(policy)
        self.budget = check_whole("budget", budget)
        self.group_size = None if group_size is None else check_whole("group_size", group_size)
        self.floor = check_share("floor", floor, allow_zero=True)
        if self.floor == 1:
            raise ValueError("floor must be below 1, which is uniform sampling.")
        self.most = None if most is None else check_whole("most", most)
        if not isinstance(correction, str) or correction not in CORRECTIONS:
            raise ValueError(f"correction: unknown {correction!r}; choose one of {', '.join(CORRECTIONS)}.")
        self.correction = correction
        if self.group_size is not None and self.most is not None:
            raise ValueError("most: a prompt gets at most one group per step; leave most or group_size out.")
        if self.group_size is not None and not self.policy.takes_groups:
            raise ValueError(f"group_size: policy {self.policy.name!r} chooses the numbers itself; leave it out.")
        if self.policy.leaves_out and self.floor == 0 and correction != "none":
            raise ValueError(
                f"floor=0: policy {self.policy.name!r} gives some prompts no chance, which no correction can undo. "
                'Give a floor, or correction="none".'
            )
        self._owns_predictor = isinstance(predictor, str)
        self.predictor = AdvantageEstimator(predictor) if isinstance(predictor, str) else predictor
        if not isinstance(self.predictor, AdvantageEstimator):
            raise TypeError(f"predictor must be a method's name or an AdvantageEstimator, got {predictor!r}.")
        baseline = self.predictor.baseline
        if baseline.horizon == 0:
            raise ValueError(f"predictor: method {self.predictor.method!r} keeps no history; take one that does.")
        self.low = check_number("low", getattr(baseline, "low", 0.0) if low is None else low)
        self.high = check_number("high", getattr(baseline, "high", 1.0) if high is None else high)
        if not self.low < self.high:
            raise ValueError(f"low must be less than high, got {self.low!r} and {self.high!r}.")
        self._ids = check_ids("prompt_ids", prompt_ids)
        self._row = {key: place for place, key in enumerate(self._ids)}
        if len(self._row) < len(self._ids):
            twice = next(key for place, key in enumerate(self._ids) if self._row[key] != place)
            raise ValueError(f"prompt_ids: {twice!r} comes twice; name each prompt once.")
        size = len(self._ids)
        self._share = None if share is None else check_column("share", share, size, least=0)
        self._cost = np.ones(size) if cost is None else check_column("cost", cost, size, least=0)
        if not (self._cost > 0).all():
            raise ValueError("cost must be positive for every prompt.")
        self._columns = self._known_before(size)
        self._rng = check_seed(seed)
        self._warned = False
        self.last_draw: Draw | None = None
        self._plan(0, None, self.budget, np.random.default_rng(0))  # refuse impossible settings now

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self._ids)

    def __contains__(self, prompt_id: Hashable) -> bool:
        """Whether a prompt is one of the sampler's."""
        return prompt_id in self._row

    def draw(self, step: int, *, among: Sequence[Hashable] | None = None, budget: int | None = None) -> Draw:
        """The `Draw` of a step, from the rewards of earlier steps.

        Parameters
        ----------
        step : int
        among : sequence of hashables, optional
            The prompts that can be sampled at this step; None for all. The objective is then over these prompts.
        budget : int, optional
            Completions of this step; None for the sampler's. If it is refused, or a prompt is, nothing changes.
        """
        step, budget = whole_step(step), self.budget if budget is None else check_whole("budget", budget)
        rows = None if among is None else self._rows_of(check_ids("among", among))
        if rows is not None and len(np.unique(rows)) < len(rows):
            raise ValueError("among: name each prompt once.")
        rng = np.random.default_rng()
        rng.bit_generator.state = self._rng.bit_generator.state
        plan, unit = self._plan(step, rows, budget, rng), self.group_size or 1
        counts = systematic(plan.expected / unit, rng) * unit
        drawn = np.flatnonzero(counts)
        expected, names = plan.expected[drawn], plan.prediction.prompt_ids
        correction = corrections(expected, budget * plan.share[drawn], self.correction)
        draw = Draw(step, [names[row] for row in drawn.tolist()], counts[drawn], expected, correction, plan)
        self._rng, self.last_draw = rng, draw
        return draw

    def observe(self, prompt_ids: Sequence[Hashable], rewards: Array | Sequence[float], step: int) -> None:
        """Record scored completions, including those that a trainer's filter drops.

        Prompts that the predictor has already recorded at this step are not recorded again; the others are. A predictor
        that is a `kaestat.AsynchronousEstimator` or has weights must record before this call, which has neither
        versions nor weights.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
        rewards : array or sequence of float, shape (N,)
        step : int

        Raises
        ------
        ValueError
            If a prompt is not the sampler's, and as `AdvantageEstimator.observe` does. Nothing changes then.

        Warns
        -----
        UserWarning
            Once, if a reward lies outside ``low`` and ``high``.
        """
        step, reward = whole_step(step), check_column("rewards", rewards, least=-np.inf)
        packing = Packing.of(ids := check_ids("prompt_ids", prompt_ids, len(reward)))
        if not ids:
            return
        rows = self._rows_of(packing.keys)
        reward, history = self._within(ids, reward), self.predictor.history
        newest = np.full(len(rows), -1) if history is None else history.newest_step(packing.keys)
        if self.predictor.order == "strict" and (newest != step).any():
            new = (newest != step)[packing.codes]
            self.predictor.observe([key for key, is_new in zip(ids, new, strict=True) if is_new], reward[new], step)
        columns = {name: column.copy() for name, column in self._columns.items()}
        self._store(columns, rows, self.predictor.predict(packing.keys, step + 1), step + 1)
        if self.policy.seen is not None:
            count = packing.counts.astype(float)
            mean = packing.pack((reward - self.low) / (self.high - self.low)).sum(axis=-1) / count
            self.policy.seen(columns, rows, count, mean)
        self._columns = columns  # at once, at the end: an interrupted call may come again

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (arrays as bytes), for a trainer's checkpoint: what is known, the random stream, and
        the predictor's state if the sampler made it."""
        return pack_arrays(
            {
                "made": [self.policy.name, self.low, self.high],
                "prompts": encode_keys(self._ids),
                "columns": self._columns,
                "random": json.dumps(self._rng.bit_generator.state),
                "draw": None if self.last_draw is None else self.last_draw.plain(),
                "predictor": self.predictor.state_dict() if self._owns_predictor else None,
            }
        )

    @reading()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; later draws are the same to the last bit.

        Raises a ValueError if the state is of another policy, range or set of prompts, or inconsistent. The sampler is
        then unchanged.
        """
        rng, predictor, state = np.random.default_rng(), state["predictor"], unpack_arrays(state)
        columns, made, prompts = state["columns"], state["made"], decode_keys(state["prompts"])
        forms = [{name: (c.shape, c.dtype) for name, c in each.items()} for each in (columns, self._columns)]
        draw = None if state["draw"] is None else Draw.of_plain(state["draw"])
        rng.bit_generator.state = json.loads(state["random"])
        own = [self.policy.name, self.low, self.high]
        for what, saved, mine in (("policy, low, high", made, own), ("prompt_ids", prompts, self._ids)):
            if saved != mine:
                raise ValueError(f"state: saved with other {what}; make the sampler as in the run that saved it.")
        if forms[0] != forms[1] or (predictor is None) == self._owns_predictor:
            raise ValueError("state: it does not fit the sampler's prompts or predictor; give those of its run.")
        if self._owns_predictor:
            self.predictor.load_state_dict(predictor)
        self._columns, self._rng, self.last_draw = columns, rng, draw

    def _known_before(self, size: int) -> dict[str, np.ndarray]:
        """What is kept of each prompt, by column, before the first draw: what the predictor's prior or history says.

        A prediction is kept as of the step after a prompt's visit, so no step queries the whole history; only the lag
        grows.
        """
        columns = {name: np.zeros(size) for name in PREDICTED}
        columns |= {"newest": np.full(size, -np.inf), "weighted": np.zeros((size, PARTS))}
        for name, start in self.policy.memory.items():
            if name in columns:
                raise ValueError(f"memory: {name!r} is taken; give the policy's memory another name.")
            columns[name] = np.full(size, start)
        predictor = self.predictor
        if predictor.priors or predictor.history is not None:
            step = max(predictor.last_step + 1, *(prior.step + 1 for prior in predictor.priors), 0)
            self._store(columns, np.arange(size), predictor.predict(self._ids, step), step)
        return columns

    def _store(self, columns: dict[str, np.ndarray], rows: np.ndarray, prediction: Prediction, step: int) -> None:
        """Keep the predictions for a step of the prompts at some positions."""
        prediction = prediction.in_unit(self.low, self.high)
        for name in PREDICTED:
            columns[name][rows] = getattr(prediction, name)
        columns["newest"][rows] = step - prediction.lag
        if prediction.weighted is not None:
            columns["weighted"][rows] = prediction.weighted

    def _prediction(self, columns: dict[str, np.ndarray], names: list[Hashable], step: int) -> Prediction:
        """The predictions for a step: what is kept of each prompt, and the population for those never seen."""
        history = self.predictor.history  # None before the first step, when predictions begin with the priors
        population = self.predictor.predict([], step).population if history is None else Population.of(history)
        population = population.in_unit(self.low, self.high)
        seen = np.isfinite(columns["newest"])
        weighted = None
        if population.means:
            weighted = np.where(seen[:, None], columns["weighted"], of_population(population.means))
        return Prediction(
            prompt_ids=names,
            value=np.where(seen, columns["value"], population.mean),
            effective_completions=columns["effective_completions"],
            reward_variance=np.where(seen, columns["reward_variance"], population.noise),
            lag=np.maximum(step - columns["newest"], 0.0),
            shrunk=self.predictor.baseline.shrinks,
            population=population,
            weighted=weighted,
        )

    def _plan(self, step: int, rows: np.ndarray | None, budget: int, rng: np.random.Generator) -> Plan:
        """What each prompt gets in expectation; of those at some positions, or of all."""
        names, unit = self._ids if rows is None else [self._ids[row] for row in rows], self.group_size or 1
        if budget % unit:
            raise ValueError(f"budget={budget} is not a multiple of group_size={self.group_size}: groups are whole.")
        place = slice(None) if rows is None else rows
        share = np.ones(len(names)) if self._share is None else self._share[place]
        if not share.sum() > 0:
            raise ValueError("prompt_ids, share: there is no prompt to sample, or the share of all is 0.")
        share = share / share.sum()
        columns = {name: column[place] for name, column in self._columns.items()}
        ask = Ask(
            prediction=self._prediction(columns, names, step),
            memory={name: columns[name] for name in self.policy.memory},
            share=share,
            cost=self._cost[place],
            budget=budget / unit,
            most=1.0 if self.group_size is not None else math.inf if self.most is None else float(self.most),
            group_size=unit,
            rng=rng,
        )
        amount = "completions" if self.group_size is None else f"groups of {unit}"
        score = self.policy.score(ask)
        expected = allocate(score, ask.budget, share=share, floor=self.floor, most=ask.most, amount=amount)
        return Plan(ask.prediction, share, expected * unit)

    def _within(self, ids: Sequence[Hashable], reward: np.ndarray) -> np.ndarray:
        """Rewards moved into the range; one warning if any lay outside."""
        clipped = np.clip(reward, self.low, self.high)
        outside = np.abs(reward - clipped) > ROUNDING * (self.high - self.low)
        if outside.any() and not self._warned:
            self._warned = True
            first = int(np.argmax(outside))
            warnings.warn(
                f"rewards: prompt {ids[first]!r} has {reward[first]:g}, outside [{self.low:g}, {self.high:g}]; the "
                f"sampler counts it as {clipped[first]:g}, and clips all others without a word. Give PromptSampler the "
                "range of your rewards as low= and high=.",
                stacklevel=3,
            )
        return clipped

    def _rows_of(self, keys: Sequence[Hashable]) -> np.ndarray:
        try:
            return np.fromiter((self._row[key] for key in keys), dtype=np.intp, count=len(keys))
        except KeyError as error:
            raise ValueError(f"prompt {error.args[0]!r} is not one of the sampler's prompt_ids.") from None
