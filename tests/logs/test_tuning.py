"""Bandwidths chosen on a log, and the risk of the choice on prompts that had no part in it."""

from functools import partial

import numpy as np
import pandas as pd

from kaestat import RewardLog
from kaestat.logs import tuning
from kaestat.logs.jackknife import REPLAYS, jackknife_groups
from kaestat.logs.prompt_risks import PromptRisks
from kaestat.logs.risk import prompt_risks
from kaestat.logs.tuning import MARK, Sample, candidates, halves, return_gaps, sample, tune, wide_grid, with_tuned
from tests.helpers.made_logs import epochs, small_run


def everyone(log):
    """No sample: every prompt chooses."""
    return Sample(np.ones(len(log.prompts), dtype=bool), log)


def test_gaps_are_those_between_consecutive_visits_of_a_prompt():
    log = RewardLog(list("abaab"), [0, 2, 3, 10, 4], [0, 1, 0, 1, 1])
    assert sorted(return_gaps(log)) == [2, 3, 7]


def test_grid_goes_from_a_short_gap_to_twenty_times_the_span():
    log = epochs(n_prompts=60, n_epochs=5, steps=60, group_size=2)
    grid = wide_grid(log)  # 90 to 2 (299 + 60) in ratios of at most 1.35, and then 6 and 20 times the span
    assert grid[0] == 90 and grid[-3:] == (720, 2200, 7200)
    assert len(grid) == 10 and (np.diff(np.log(grid)[:-2]) < np.log(1.45)).all()
    assert len(wide_grid(log, 4)) == 6
    assert all(float(f"{bandwidth:.1e}") == bandwidth for bandwidth in grid)


def test_each_half_is_scored_at_what_is_best_on_the_other():
    rng = np.random.default_rng(0)
    scored = PromptRisks(("a", "b", "c"), rng.normal(size=(9, 3)), 99, True, (False,) * 3)
    tuned, risk = tune(scored.take([0, 2]), halves(9, 3))
    first = np.random.default_rng(3).permutation(9) < 4
    for half, chosen in zip((first, ~first), tuned.by_halves, strict=True):
        other = scored.per_prompt[~half]
        best = 0 if other[:, 0].mean() <= other[:, 2].mean() else 2
        assert chosen == scored.methods[best]
        np.testing.assert_array_equal(risk[half], scored.per_prompt[half, best])
    assert tuned.name == tuned.specification + MARK


def test_the_choice_is_that_among_all_candidates_though_half_of_them_are_not_scored():
    """Risks with one minimum along the bandwidths of each kernel, which differs between prompts."""
    group, rng = candidates("kae", np.geomspace(1, 900, 16).round(1)), np.random.default_rng(0)
    for _ in range(40):
        where, level = rng.uniform(-2, 18, (2, 1, 1)), rng.normal(size=(2, 1, 1))
        position = np.arange(16) - where - rng.normal(size=(2, 30, 1))
        risks = np.concatenate(list(position**2 + level), axis=1)
        seen = []

        def scorer(log, names, seen=seen, risks=risks):
            seen += names
            return PromptRisks(
                tuple(names), risks[:, [group.index(name) for name in names]], 1, True, (False,) * len(names)
            )

        log = small_run(n_prompts=30)
        added, (found,) = with_tuned(scorer(log, group[:2]), [group], scorer, log, everyone(log))
        expected, risk = tune(scorer(log, group), halves(30, 0))
        assert found == expected
        np.testing.assert_array_equal(added.per_prompt[:, -1], risk)
        assert len(set(seen[2:-32])) <= 22


def test_a_tuned_method_that_pools_prompts_is_replayed_without_each_group():
    log = small_run(n_prompts=20)
    scorer = partial(prompt_risks, seed=3)
    scored = scorer(log, ["none", "kae_eb:bandwidth=7"], again=True)
    tried = [["kae_eb:bandwidth=7"] * 2, ["kae:bandwidth=7"] * 2]
    added, (tuned, plain) = with_tuned(scored, tried, scorer, log, everyone(log), seed=3)
    assert added.pooled == (False, True, True, False)
    # Both halves took the same candidate, so its row is that of the method itself, replays included.
    np.testing.assert_allclose(added.left_out[:, 2], scored.left_out[:, 1], rtol=1e-12)
    group = jackknife_groups(20, seed=3, n_groups=REPLAYS)
    means = [added.per_prompt[group != k, 3].mean() for k in range(len(added.left_out))]
    np.testing.assert_allclose(added.left_out[:, 3], means, rtol=1e-12)
    np.testing.assert_allclose(added.apart[:, 3], means, rtol=1e-12)
    np.testing.assert_allclose(added.apart[:, 2], scored.apart[:, 1], rtol=1e-12)
    assert (tuned.specification, plain.specification) == ("kae_eb:bandwidth=7", "kae:bandwidth=7")


def test_a_sample_chooses_and_every_prompt_is_scored(monkeypatch):
    frame = small_run(n_prompts=39).frame
    once = frame[:4].assign(prompt=-1)  # a prompt without a second visit is not scored, and takes no part
    log = RewardLog.from_frame(pd.concat([once, frame]))
    for name, least in (("PROMPTS", 12), ("VISITS", 1), ("AT_STEP", 1)):
        monkeypatch.setattr(tuning, f"SAMPLE_{name}", least)
    on = sample(log, min_visits=1, absolute=True, seed=3)
    tried = [candidates(method, (4.0, 8.0, 16.0)) for method in ("kae", "kae_eb")]
    scored = prompt_risks(log, ["none", "kae_eb"], again=True, seed=3)
    added, found = with_tuned(scored, tried, prompt_risks, log, on, seed=3)
    first = halves(39, 3)
    for k, (group, tuned) in enumerate(zip(tried, found, strict=True)):
        chosen, _ = tune(prompt_risks(on.log, group), first[on.prompts])
        assert tuned == chosen and tuned.n_prompts == 12 and len(set(tuned.by_halves)) == 2
        whole = prompt_risks(log, tuned.by_halves).per_prompt
        expected = np.where(first, whole[:, 0], whole[:, 1])
        np.testing.assert_allclose(added.per_prompt[:, 2 + k], expected, rtol=1e-9, atol=1e-12)
