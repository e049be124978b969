"""The stateful object in a training loop that chooses the prompts of each step, and the completions of each."""

import json
import math
import os
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kaestat.core.arrays import Array
from kaestat.core.checks import check_column, check_ids, check_mask, check_share, check_whole, whole_step
from kaestat.core.samples import Packing, code_ids
from kaestat.core.storage import decode_keys, encode_keys, load_state, pack_arrays, reading, save_state, unpack_arrays
from kaestat.estimator.advantage import AdvantageEstimator
from kaestat.estimator.prediction import Population
from kaestat.sampling.allocation import allocate, check_groups
from kaestat.sampling.draw import CORRECTIONS, Draw, Plan, corrections
from kaestat.sampling.known_before import known_before
from kaestat.sampling.policies import Policy, make_policy
from kaestat.sampling.policies.base import Ask
from kaestat.sampling.pool import Pool
from kaestat.sampling.systematic import systematic

FLOOR = 0.1


class PromptSampler:
    """Draws the prompts whose completions are most informative, without changing the objective.

    Each step's expected numbers of completions nu come from the past alone. A draw matches them in expectation
    and uses exactly the budget. Multiplying advantages by ``B pi / nu`` keeps the gradient of ``sum pi V`` unbiased
    (`Draw.correction_of`). Without the correction the run maximises a different objective; the guide says which.

    Parameters
    ----------
    prompt_ids : sequence of hashables, length P
        The prompts, each once; the same ids as for rewards.
    budget : int
        B, completions per step.
    policy : str or Policy
        A name or specification (`kaestat.sampling.POLICIES`), or a policy.
    predictor : str or AdvantageEstimator
        Source of the predictions. Give the estimator used in training (the same object) to use its knowledge, including
        its prior; no reward is recorded twice. The name of a method with a history creates an estimator that the
        sampler keeps and saves.
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
    seed : int
        Seed of the draws.

    Attributes
    ----------
    last_draw : Draw or None
        Saved with the state: a trainer whose data loader prefetches a batch uses it again after a resume.

    Raises
    ------
    ValueError
        If a parameter is unknown or out of range, a prompt occurs twice, the budget is not a multiple of the group size
        or exceeds what the prompts can take, or ``correction`` is not "none" while the floor is 0 and the policy may
        leave prompts out.

    Examples
    --------
    >>> from kaestat import AdvantageEstimator
    >>> estimator = AdvantageEstimator("kae", bandwidth=10)
    >>> sampler = PromptSampler(["a", "b", "c", "d"], budget=8, predictor=estimator)
    >>> draw = sampler.draw(step=0)
    >>> draw.counts.tolist(), draw.correction.tolist()
    ([2, 2, 2, 2], [1.0, 1.0, 1.0, 1.0])
    >>> rewards = [1.0, 0, 1, 1, 1, 0, 1, 1]
    >>> advantages = estimator.step(draw.rows(), rewards, 0) * draw.correction_of(draw.rows())
    >>> sampler.observe(draw.rows(), rewards, 0)
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
        seed: int = 0,
    ):
        self.policy = make_policy(policy)
        self.budget = check_whole("budget", budget)
        self.group_size = None if group_size is None else check_whole("group_size", group_size)
        self.floor = check_share("floor", floor, allow_zero=True)
        self.most = None if most is None else check_whole("most", most)
        if not isinstance(correction, str) or correction not in CORRECTIONS:
            raise ValueError(f"correction: unknown {correction!r}; choose one of {', '.join(CORRECTIONS)}.")
        self.correction = correction
        self._whole_groups(self.budget)
        if self.group_size is not None and self.most is not None:
            raise ValueError("most: a prompt gets at most one group per step; leave most or group_size out.")
        self._owns_predictor = isinstance(predictor, str)
        self.predictor = AdvantageEstimator(predictor) if isinstance(predictor, str) else predictor
        if not isinstance(self.predictor, AdvantageEstimator):
            raise TypeError(f"predictor must be a method's name or an AdvantageEstimator, got {predictor!r}.")
        if self.predictor.baseline.horizon == 0:
            raise ValueError(
                f"predictor: method {self.predictor.method!r} keeps no history, so it predicts nothing; leave it out "
                "for one that does, which the sampler keeps."
            )
        if self.group_size is not None and not self.policy.takes_groups:
            raise ValueError(
                f"group_size: {type(self.policy).__name__} chooses how many completions each prompt gets; leave "
                "group_size out, or take another policy."
            )
        if self.policy.leaves_out and self.floor == 0 and correction != "none":
            raise ValueError(
                f"floor=0: {type(self.policy).__name__} gives some prompts no chance, which no correction can undo. "
                'Give a floor, or correction="none" to optimise what the policy prefers.'
            )
        self._ids = check_ids("prompt_ids", prompt_ids)
        self._row = _rows(self._ids)
        size = len(self._ids)
        self._share = None if share is None else check_column("share", share, size, least=0)
        self._cost = None if cost is None else check_column("cost", cost, size, least=0)
        if self._cost is not None and not (self._cost > 0).all():
            raise ValueError("cost must be positive for every prompt.")
        self._pool, self._state, population = known_before(self.predictor, self.policy, self._row)
        self._rng = np.random.default_rng(check_whole("seed", seed, least=0))
        self.last_draw: Draw | None = None
        self._remember(population)
        self._plan(0, None, self.budget, np.random.default_rng(0))  # refuse impossible settings now

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self._ids)

    def __contains__(self, prompt_id: Hashable) -> bool:
        """Whether a prompt is one of the sampler's."""
        return prompt_id in self._row

    def draw(self, step: int, *, among: Sequence[Hashable] | None = None, budget: int | None = None) -> Draw:
        """The `Draw` of a step.

        Parameters
        ----------
        step : int
            The step at which they are sampled. Only rewards of earlier steps may have been observed.
        among : sequence of hashables, optional
            The prompts that can be sampled at this step; None for all. The objective is then over these prompts.
        budget : int, optional
            Completions of this step; None for the sampler's.

        Raises
        ------
        ValueError
            If a prompt is not the sampler's, none is left, or the budget exceeds what they can take. Nothing changes
            then.
        """
        step = whole_step(step)
        budget = self._whole_groups(self.budget if budget is None else check_whole("budget", budget))
        rows = None if among is None else self._among(among)
        rng = np.random.default_rng()
        rng.bit_generator.state = self._rng.bit_generator.state
        plan = self._plan(step, rows, budget, rng)
        unit = self.group_size or 1
        counts = systematic(plan.expected if unit == 1 else plan.expected / unit, rng) * unit
        drawn = np.flatnonzero(counts)
        expected, names = plan.expected[drawn], plan.prediction.prompt_ids
        self._rng = rng
        self.last_draw = Draw(
            step=step,
            prompt_ids=[names[row] for row in drawn.tolist()],
            counts=counts[drawn],
            expected=expected,
            inclusion=np.minimum(expected / unit, 1.0),
            correction=corrections(expected, budget * plan.share[drawn], self.correction),
            plan=plan,
        )
        return self.last_draw

    def observe(
        self,
        prompt_ids: Sequence[Hashable],
        rewards: Array | Sequence[float],
        step: int,
        *,
        mask: Array | Sequence[bool] | None = None,
        weights: Array | Sequence[float] | None = None,
    ) -> None:
        """Record scored completions, including those that a trainer's filter drops.

        Prompts that the predictor has already recorded at this step are not recorded again; the others are. A predictor
        with ``order="any"`` must record before this call, since only its own call has the versions.

        Parameters
        ----------
        prompt_ids : sequence of hashables, length N
        rewards : array or sequence of float, shape (N,)
        step : int
        mask : array of bool, shape (N,), optional
            False for padding.
        weights : array of float, shape (N,), optional
            Weights of the completions (`AdvantageEstimator.step`), for those that the predictor has not recorded.

        Raises
        ------
        ValueError
            If a prompt is not the sampler's, and as `AdvantageEstimator.observe` does. Nothing changes then.
        """
        step, reward = whole_step(step), check_column("rewards", rewards)
        weight = None if weights is None else check_column("weights", weights, len(reward))
        keep = None if mask is None else check_mask(mask, len(reward))
        coded = code_ids("prompt_ids", prompt_ids, len(reward), keep)
        if not coded.keys:
            return
        if keep is not None:
            reward, weight = reward[keep], None if weight is None else weight[keep]
        rows = self._known(coded.keys)
        self.policy.warn_of(reward)
        packing = Packing.of(coded)
        packed = packing.pack(reward)
        state = self.policy.observed(
            self._state, rows, packing.counts.astype(float), packed.sum(axis=-1), (packed**2).sum(axis=-1)
        )
        history = self.predictor.history
        newest = np.full(len(rows), -1) if history is None else history.newest_step(coded.keys)
        if self.predictor.order == "strict" and (newest != step).any():
            new = (newest != step)[coded.codes]
            ids = [coded.keys[code] for code in coded.codes[new].tolist()]
            self.predictor.observe(ids, reward[new], step, weights=None if weight is None else weight[new])
        prediction = self.predictor.predict(coded.keys, step + 1)
        self._pool = self._pool if prediction.weighted is None else self._pool.with_weights()
        self._pool.put(rows, prediction, step)
        self._remember(prediction.population)
        self._state = state  # last: it alone counts completions, and an interrupted call may come again

    def add(self, prompt_ids: Sequence[Hashable]) -> None:
        """Add new prompts without any data.

        Raises
        ------
        ValueError
            If a prompt is known already, or if the sampler has shares or costs, which the new prompts would need too.
        """
        if self._share is not None or self._cost is not None:
            raise ValueError(
                "prompts cannot be added where share or cost is given: make a new sampler for all prompts."
            )
        new = check_ids("prompt_ids", prompt_ids)
        row = _rows([*self._ids, *new])
        fresh = self.policy.initial_state(len(new))
        self._state = {n: np.concatenate([a, fresh[n]]) if a.ndim else a for n, a in self._state.items()}
        self._pool = self._pool.extended(len(new))
        self._ids, self._row = [*self._ids, *new], row

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data (arrays as bytes), for a trainer's checkpoint: what is known, the random stream, and
        the predictor's state if the sampler made it."""
        return pack_arrays(self._plain())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state_dict`; later draws are the same to the last bit.

        Raises
        ------
        ValueError
            If the state is of another policy or inconsistent. The sampler is then unchanged.
        """
        self._take(unpack_arrays(state))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, atomically and without pickle."""
        save_state(path, {"sampler": self._plain()})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a file written by `save`; errors as `load_state_dict`."""
        self._take(load_state(path).get("sampler"))

    def _plain(self) -> dict[str, Any]:
        return {
            "policy": type(self.policy).__name__,
            "prompts": encode_keys(self._ids),
            "pool": self._pool.plain(),
            "own": {name: array.copy() for name, array in self._state.items()},
            "random": json.dumps(self._rng.bit_generator.state),
            "draw": None if self.last_draw is None else self.last_draw.plain(),
            "predictor": unpack_arrays(self.predictor.state_dict()) if self._owns_predictor else None,
        }

    @reading()
    def _take(self, state: Any) -> None:
        parts = {"policy", "prompts", "pool", "own", "random", "draw", "predictor"}
        if not isinstance(state, dict) or set(state) != parts:
            raise ValueError("state: not a state_dict of a PromptSampler.")
        if state["policy"] != type(self.policy).__name__:
            raise ValueError(f"state: saved by policy {state['policy']}, this one is {type(self.policy).__name__}.")
        ids = decode_keys(state["prompts"])
        if self._ids != ids[: len(self._ids)]:
            raise ValueError("state: saved with other prompts, or in another order; give those of the run.")
        pool, fresh = Pool.of_plain(state["pool"], len(ids)), self.policy.initial_state(len(ids))
        own = state["own"]
        if {n: (a.shape, a.dtype) for n, a in own.items()} != {n: (a.shape, a.dtype) for n, a in fresh.items()}:
            raise ValueError("state: the numbers that the policy keeps do not fit it; the state was altered.")
        rng = np.random.default_rng()
        rng.bit_generator.state = json.loads(state["random"])
        draw = None if state["draw"] is None else Draw.of_plain(state["draw"])
        if self._owns_predictor:
            if state["predictor"] is None:
                raise ValueError("state: it has no predictor's state; its sampler used a separate estimator.")
            self.predictor.load_state_dict(pack_arrays(state["predictor"]))
        self._ids, self._row, self._pool, self._rng = ids, _rows(ids), pool, rng
        self._state = {name: array.copy() for name, array in own.items()}
        self.last_draw = draw

    def _whole_groups(self, budget: int) -> int:
        if budget % (self.group_size or 1):
            raise ValueError(f"budget={budget} is not a multiple of group_size={self.group_size}: groups are whole.")
        return budget

    def _among(self, among: Sequence[Hashable]) -> np.ndarray:
        rows = self._known(check_ids("among", among))
        if len(rows) > len(set(rows.tolist())):
            raise ValueError("among: name each prompt once.")
        return rows

    def _plan(self, step: int, rows: np.ndarray | None, budget: int, rng: np.random.Generator) -> Plan:
        """What each prompt gets in expectation; of those at some positions, or of all."""
        names = self._ids if rows is None else [self._ids[row] for row in rows]
        if not names:
            raise ValueError("prompt_ids: there is no prompt to sample.")
        place = slice(None) if rows is None else rows
        size, unit = len(names), self.group_size or 1
        share = np.broadcast_to(1 / size, size) if self._share is None else self._share[place]
        if not share.sum() > 0:
            raise ValueError("share: it is 0 for all prompts that can be sampled.")
        share = share if self._share is None else share / share.sum()
        if self.group_size is not None:
            check_groups(budget // unit, unit, self.floor, share)
        population = self._population_now()
        ask = Ask(
            prediction=self._pool.take(place).at(step, names, population, self.predictor.baseline.shrinks),
            state={name: array[place] if array.ndim else array for name, array in self._state.items()},
            share=share,
            cost=np.broadcast_to(1.0, size) if self._cost is None else self._cost[place],
            budget=budget / unit,
            most=1.0 if self.group_size is not None else math.inf if self.most is None else float(self.most),
            group_size=unit,
            rng=rng,
        )
        score = self.policy.score(ask)
        expected = allocate(score, ask.budget, share=share, floor=self.floor, most=ask.most)
        return Plan(ask.prediction, share, expected * unit)

    def _population_now(self) -> Population:
        """The predictor's prompts as a population, estimated once for each state of its history."""
        history = self.predictor.history
        if history is not self._summarised or (history is not None and history.records != self._records):
            self._remember(Population.of(history))
        return self._population

    def _remember(self, population: Population) -> None:
        self._summarised, self._population = self.predictor.history, population
        self._records = 0 if self._summarised is None else self._summarised.records

    def _known(self, keys: Sequence[Hashable]) -> np.ndarray:
        try:
            return np.fromiter((self._row[key] for key in keys), dtype=np.intp, count=len(keys))
        except KeyError as error:
            raise ValueError(f"prompt {error.args[0]!r} is not one of the sampler's; add it first.") from None


def _rows(ids: list[Hashable]) -> dict[Hashable, int]:
    row = {key: place for place, key in enumerate(ids)}
    if len(row) < len(ids):
        twice = next(key for place, key in enumerate(ids) if row[key] != place)
        raise ValueError(f"prompt_ids: {twice!r} comes twice; name each prompt once.")
    return row
