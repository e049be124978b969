"""A run of 10,000 steps whose rewards come late, in any order, at 100,000 prompts.

At every step 8,192 completions of 1,024 prompts come in, half of each group from the policy of up to eight steps
before, in epochs of 97 steps. The history keeps what a kernel of 300 steps reaches, about three groups of a prompt.
Timed are `AdvantageEstimator.observe`; `step`, which gives values as well, in any order and in strict order, with a
fixed bandwidth and a learned one; and a delta of one step is taken and made to bytes. The worst delta has 8,192 prompts
with one weighted completion each.

In any order a bandwidth is learned from scores of each of the last steps, which late visits change, in place of scores
that are summed from step to step. What that costs in accuracy is the ratio of the mean squared errors of the values in
ten simulated runs, in order.
"""

import time

import numpy as np

from benchmarks.rows import Row
from benchmarks.timing import estimate, interleaved, ratio
from kaestat import AdvantageEstimator
from kaestat.datasets import simulated_run
from kaestat.datasets.simulated import SimulatedRun

CODE = ("kaestat/history", "kaestat/estimator")
CLAIM = "Late rewards of 100,000 prompts × 10,000 steps: memory stays, an update takes less than 20 ms, a delta 1 MB"
# prompts, prompts of a step, completions of a prompt, steps, bandwidth, repetitions of what is timed apart
SIZES = {"full": (100_000, 1024, 8, 10_000, 300, 30), "tiny": (40, 6, 4, 12, 5, 2)}
LATEST = 8  # steps
RUNS = {"full": (10, {"n_prompts": 200, "n_epochs": 20}), "tiny": (2, {"n_prompts": 8, "n_epochs": 4})}


class Arrivals:
    """What comes in at each step of a run: ids, rewards, versions."""

    def __init__(self, n_prompts: int, per_step: int, group_size: int):
        self.rng, self.shape, self.n_blocks = np.random.default_rng(0), (per_step, group_size), n_prompts // per_step
        self.names = np.array([f"train/{k:07d}" for k in range(n_prompts)], dtype=object)
        self.step = -1

    def on_time(self) -> tuple[np.ndarray, np.ndarray]:
        """Completions of a step that are all there."""
        self.step += 1
        per_step, group_size = self.shape
        if self.step % self.n_blocks == 0:
            self.epoch = self.rng.permutation(self.n_blocks)
        prompts = self.epoch[self.step % self.n_blocks] * per_step + self.rng.permutation(per_step)
        return self.names[np.repeat(prompts, group_size)], self.rng.integers(0, 2, per_step * group_size).astype(float)

    def next(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Groups of which the second half is of an earlier version."""
        ids, reward = self.on_time()
        per_step, group_size = self.shape
        second = np.arange(len(ids)) % group_size >= group_size // 2
        due = np.repeat(self.rng.integers(1, LATEST + 1, per_step), group_size)
        return ids, reward, np.maximum(self.step - second * due, 0)


def run(size: str = "full") -> list[Row]:
    """Milliseconds of an update at the beginning, in the middle and at the end of the run; bytes of the history."""
    n_prompts, per_step, group_size, n_steps, bandwidth, repetitions = SIZES[size]
    case = f"{n_prompts:,} prompts × {n_steps:,} steps, {per_step * group_size:,} completions a step"
    arrivals = Arrivals(n_prompts, per_step, group_size)
    estimator = AdvantageEstimator("kae", bandwidth=bandwidth, order="any", keep_deltas=True)
    seconds, held, sent = [], [], []
    for _ in range(n_steps):
        ids, reward, version = arrivals.next()
        begin = time.perf_counter()
        estimator.observe(ids, reward, arrivals.step, version=version)
        seconds.append(time.perf_counter() - begin)
        held.append(estimator.history.nbytes / 1e6)
        delta = estimator.take_delta()
        if arrivals.step % (n_steps // repetitions + 1) == 0:
            sent.append(len(delta.to_bytes()) / 1e6)
    third = n_steps // 3
    rows = [
        Row(case, f"observe, {name} of the run", "ms", estimate(1e3 * np.array(part)), at_most=20.0)
        for name, part in (("first third", seconds[:third]), ("last third", seconds[-third:]))
    ]
    rows += [
        Row(case, "arrays of the history, at the end", "MB", estimate(np.array(held[-1:]))),
        Row(case, "of it, at the end over a third", "ratio", estimate(np.array(held[-1:]) / held[third]), at_most=1.1),
        Row(case, "delta of a step, as bytes", "MB", estimate(np.array(sent)), at_most=1.0),
    ]
    steps = _steps(n_prompts, per_step, group_size, bandwidth, repetitions)
    return [*rows, _worst_delta(n_prompts, per_step * group_size), *steps, *_errors(size)]


def _worst_delta(n_prompts: int, size: int) -> Row:
    rng = np.random.default_rng(1)
    estimator = AdvantageEstimator("kae", order="any", keep_deltas=True)
    ids = [f"train/{k:07d}" for k in rng.permutation(n_prompts)[:size]]
    estimator.observe(ids, rng.random(len(ids)), 3, version=rng.integers(0, 4, len(ids)), weights=rng.random(len(ids)))
    sent = len(estimator.take_delta().to_bytes()) / 1e6
    case = f"{len(ids):,} prompts with one weighted completion"
    return Row(case, "delta, as bytes", "MB", estimate(np.array([sent])), at_most=1.0)


def _steps(n_prompts: int, per_step: int, group_size: int, bandwidth: float, repetitions: int) -> list[Row]:
    made = {
        "strict order": {"bandwidth": bandwidth},
        "any order": {"bandwidth": bandwidth, "order": "any"},
        "learned, strict order": {},
        "learned, any order": {"order": "any"},
    }
    pieces, estimators = {}, {name: AdvantageEstimator("kae", **options) for name, options in made.items()}
    streams = {name: Arrivals(n_prompts, per_step, group_size) for name in made}

    def step(name: str, late: bool) -> None:
        arrivals = streams[name]
        if late:
            ids, reward, version = arrivals.next()
            estimators[name].step(ids, reward, arrivals.step, version=version)
        else:
            ids, reward = arrivals.on_time()
            estimators[name].step(ids, reward, arrivals.step)

    for name, estimator in estimators.items():
        for _ in range(4 * (n_prompts // per_step)):  # four visits of a prompt, in the mean
            step(name, estimator.order == "any")
        pieces[name] = lambda name=name, late=estimator.order == "any": step(name, late)
    seconds = interleaved(pieces, repetitions=repetitions)
    case = f"{n_prompts:,} prompts, {per_step * group_size:,} completions a step"
    rows = [Row(case, f"step of kae, {name}", "ms", estimate(1e3 * times)) for name, times in seconds.items()]
    for start in ("", "learned, "):
        compared = ratio(seconds[f"{start}any order"], seconds[f"{start}strict order"])
        rows.append(Row(case, f"step of kae, {start}any order over strict order", "ratio", compared))
    return rows


def _errors(size: str) -> list[Row]:
    n_runs, of_run = RUNS[size]
    runs = [simulated_run(seed=seed, **of_run) for seed in range(n_runs)]
    case = f"{n_runs} simulated runs of {of_run['n_prompts']} prompts × {of_run['n_epochs']} visits, in order"
    rows = []
    for method in ("kae", "kae_eb"):
        errors = {order: np.array([_error(method, order, run) for run in runs]) for order in ("any", "strict")}
        compared = ratio(errors["any"], errors["strict"])
        rows.append(Row(case, f"value MSE of {method}, learned, any order over strict order", "ratio", compared))
    return rows


def _error(method: str, order: str, run: SimulatedRun) -> float:
    """Mean squared error of the values from the second visit on."""
    estimator, frame = AdvantageEstimator(method, order=order), run.log.frame
    squares = np.zeros(len(frame))
    for step, rows in frame.groupby("step").indices.items():
        part = frame.iloc[rows]
        estimator.step(part["prompt"].tolist(), part["reward"].to_numpy(), int(step))
        squares[rows] = (estimator.values - run.values[rows]) ** 2
    return float(squares[frame["step"] > frame["step"].min()].mean())
