"""Steps that wait are taken together: figures and state are those of the steps one by one, whatever the method."""

import itertools

import numpy as np
import pytest

from kaestat import RewardLog
from kaestat.core.storage import load_state, save_state
from kaestat.watch import RunMonitor, run_monitor
from kaestat.watch.monitor_state import monitor_state, restore_monitor

METHODS = [
    "kae", "kae_eb", "kae_stream", "bayes_filter", "kalman", "spo", "sieve", "local_linear", "ebpo", "krpo", "rloo",
    "kae:bandwidth=3", "kae_eb:bandwidth=5,kernel=exponential", "kae:bandwidth=loo_cv", "kae:normalization=algorithm1",
]  # fmt: skip


def rows_of(seed, *, soft=False):
    """Rows of steps of unequal size, with gaps between them; a prompt may come twice, and in some steps all are new."""
    rng, rows = np.random.default_rng(seed), []
    for step in np.cumsum(rng.integers(1, 4, 24)).tolist():
        for prompt in rng.integers(0, 12, rng.integers(1, 9)).tolist():
            reward = 8 * rng.random(rng.integers(1, 6)) if soft else rng.random(rng.integers(1, 6)) < prompt / 12
            name = f"p{prompt}" if step % 4 else f"p{prompt} of {step}"
            rows += [(step, name, float(z), int(rng.integers(2)), rng.exponential()) for z in reward]
    return rows


def followed(rows, pieces, methods, *, groups=False, file=None):
    """A monitor of the rows in pieces, which end within steps; late rows come with the last.

    With a file, every piece is taken by a new monitor, from the state that is saved there.
    """
    monitor, cuts = RunMonitor(methods), np.linspace(0, len(rows), pieces + 1).astype(int).tolist()
    for start, stop in itertools.pairwise(cuts):
        late = rows[:5] if stop == len(rows) and start else []
        step, prompt, reward, group, weight = zip(*late, *rows[start:stop], strict=True)
        monitor.add(RewardLog(prompt, step, reward, group if groups else None, weight=weight))
        if file is not None:
            save_state(file, monitor_state(monitor))
            monitor = RunMonitor(methods)
            restore_monitor(monitor, load_state(file))
    return monitor


def assert_alike(found, expected, at="state"):
    """The same but for rounding; of histories, visits that no later step can reach may differ."""
    if isinstance(expected, dict):
        assert set(found) == set(expected), at
        if "horizon" in expected:
            reached = expected["fields"]["step"] > expected["last_step"] - expected["horizon"]
            found, expected = (
                {**state, "fields": {name: field * reached for name, field in state["fields"].items()}}
                for state in (found, expected)
            )
        for name, part in expected.items():
            assert_alike(found[name], part, f"{at}/{name}")
    elif at.endswith(("/told", "/recorded")):
        assert sorted(map(str, found)) == sorted(map(str, expected)), at
    elif isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, at
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=at)
    else:
        assert found == expected, at


@pytest.mark.parametrize("pieces", [1, 5])
@pytest.mark.parametrize(("groups", "soft", "methods"), [(False, False, METHODS), (True, True, METHODS[::-1])])
def test_figures_and_state_are_those_of_the_steps_one_by_one(groups, soft, methods, pieces, monkeypatch, tmp_path):
    rows = rows_of(pieces, soft=soft)
    together = followed(rows, pieces, methods, groups=groups, file=tmp_path / "state")
    monkeypatch.setattr(run_monitor, "log_of", lambda steps: None)
    one_by_one = followed(rows, pieces, methods, groups=groups, file=tmp_path / "state")
    assert_alike(monitor_state(together), monitor_state(one_by_one))


def test_no_method_that_needs_prompts_and_rewards_alone_takes_steps_one_by_one(monkeypatch):
    monkeypatch.setattr(run_monitor, "_served", None)
    monitor, rows = RunMonitor(METHODS), rows_of(0)
    for part in ([row for row in rows if row[0] < 20], [row for row in rows if row[0] >= 20]):
        step, prompt, reward, *_ = zip(*part, strict=True)
        monitor.add(RewardLog(prompt, step, reward), whole_steps=True)
    assert len(monitor.steps["step"]) == len({row[0] for row in rows})


@pytest.mark.parametrize(("gap", "far", "words"), [(10, 0.0, "bandwidth 2 reaches hardly any"), (1, 1e7, "lose the")])
def test_warnings_are_those_of_the_steps_one_by_one(gap, far, words):
    rows = [(gap * step, f"p{k}", far + (k + step) % 2, 0, 1.0) for step in range(40) for k in range(3)]
    rows += [(1000, f"p{k}", k % 2, 0, 1.0) for k in range(3)]  # stays open, and no digits are lost there
    told = followed(rows, 1, ["kae:bandwidth=2"]).summary().told
    assert told == followed(rows, len(rows), ["kae:bandwidth=2"]).summary().told
    assert words in told[0]


def test_a_method_that_refuses_a_reward_is_left_out_from_its_step_on(tmp_path):
    rows = [(step, name, float(step == 3 or name == "q"), 0, 1.0) for step in range(6) for name in "ppqq"]
    rows[14] = (3, "q", 2.0, 0, 1.0)
    refusing, methods = "spo:low=0,high=1.5", ["kae:bandwidth=3", "spo"]
    for pieces, file in ((1, None), (6, None), (6, tmp_path / "state")):
        monitor, others = (followed(rows, pieces, m, file=file) for m in ([refusing, *methods], methods))
        monitor.finish()
        others.finish()
        summary, known = monitor.summary(), others.summary()
        assert summary.n_completions == len(rows)
        assert [row for row in summary.methods if row.method != refusing] == list(known.methods)
        assert np.isfinite(monitor.steps[f"error:{refusing}"]).tolist() == [False, True, True] + [False] * 3
        assert summary.told[0].startswith(f"{refusing} is left out from step 3 on: rewards: spo tracks success")
