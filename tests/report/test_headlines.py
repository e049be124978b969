"""What `analyze` recommends on logs as people have them, and that what it says is so."""

import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from kaestat import AdvantageEstimator, RewardLog, read_log, risk_differences, value_risk
from kaestat.integrations.verl.options import Options
from kaestat.report.analysis import analyze
from kaestat.report.headline import headline, paste_lines, paste_notes
from kaestat.report.tables import comparison
from tests.helpers.made_logs import epochs, relabelled, several_rewards, small_run

pytestmark = pytest.mark.filterwarnings("ignore::kaestat.logs.prompt_risks.FewPromptsWarning")

MADE = {
    "sparse epochs": lambda: epochs(n_prompts=300, group_size=8),
    "one epoch": lambda: epochs(n_prompts=1280, n_epochs=1, steps=20, group_size=2),
    "plus and minus one": lambda: relabelled(small_run(), scale=2, shift=-1),
    "several rewards": lambda: several_rewards(small_run()),
    "one completion": lambda: small_run(n_prompts=200, group_size=1),
}


@cache
def analysed(name):
    """A made log and its analysis, computed once for all tests that look at it."""
    log = MADE[name]()
    return log, analyze(log, n_boot=200)


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) if name == "sparse epochs" else name for name in MADE],
)
def made(request):
    return analysed(request.param)


def estimator_of(line, **names):
    """The estimator that the pasted line makes."""
    return eval(line, {"AdvantageEstimator": AdvantageEstimator, **names})


def test_the_lines_make_the_method_that_was_scored(made):
    log, analysis = made
    found = analysis.recommendation
    (_, python), (_, verl) = paste_lines(analysis)
    estimator = estimator_of(python)
    assert estimator.method == found.method
    words = dict(word.removeprefix("+").split("=", 1) for word in verl.split())
    prefix = "algorithm.kaestat.params."
    params = {key.removeprefix(prefix): value for key, value in words.items() if key.startswith(prefix)}
    algorithm = {"kaestat": {"params": params}} if params else {}
    assert Options.read(words["algorithm.adv_estimator"], algorithm).estimator().baseline == estimator.baseline
    assert ("trainer.v1.trainer_mode" in words) == (estimator.baseline.horizon > 0)
    gap = risk_differences(log, [estimator.baseline], found.rival, n_boot=0, min_visits=analysis.min_visits)
    assert gap["difference"].item() == pytest.approx(found.difference[0], rel=0.1)  # a tuned row is scored by halves


def test_it_is_better_than_the_rival_and_nothing_is_clearly_better_than_it(made):
    _, analysis = made
    found = analysis.recommendation
    assert found.better and found.difference[2] < 0
    text = headline(analysis)
    if analysis.risk is None:
        assert (
            f"lower by {-1e3 * found.difference[0]:.2f} × 0.001" in text
            and "only differences of errors are known" in text
        )
    else:
        table = analysis.risk.set_index("method")["mse"]
        assert found.reduction[0] == pytest.approx(1 - table[found.row] / table["grpo"], rel=1e-12)
        assert f"is {100 * found.reduction[0]:.0f} % (95 % interval {100 * found.reduction[1]:.0f} to " in text
        assert found.reduction[1] < found.reduction[0] < found.reduction[2]
        fair = table.drop(["ebpo", "dr_grpo", "gpg", "maxrl", "bnpo", "krpo"])
        if analysis.facts.return_gap is None:  # what keeps a history is no answer there, however its prior helps
            fair = fair[["grpo", "rloo", "james_stein", "reinforce++"]]
        assert table[found.row] <= 1.2 * fair.min()
    assert not re.search(r"nan|inf\b|(?<!=)-\d|None|- times|(?:is|least|and) 100 %", text)


def test_the_noise_of_the_gradient_is_that_of_the_rewards_about_the_value(made):
    """E (Z - V)^2 = Var(Z) + MSE for the recommended row and the rival, from the replayed values themselves."""
    from kaestat.logs.replay import replay
    from kaestat.logs.risk import risk_baseline

    log, analysis = made
    found = analysis.recommendation
    if found.row.endswith("(tuned)"):
        pytest.skip("scored by halves of the prompts")
    frame, noise = log.frame, []
    first = frame.groupby("prompt")["step"].transform("min")
    scored = (frame["step"] > first) | (analysis.min_visits == 0)
    (_, line), *_ = paste_lines(analysis)
    for baseline in (estimator_of(line).baseline, risk_baseline(found.rival)):
        squared = (frame["reward"] - replay(log, baseline)[0]) ** 2
        visits = squared[scored].groupby([frame["prompt"], frame["step"]]).mean()
        noise.append(visits.groupby("prompt").mean().mean())
    assert found.noise_reduction == pytest.approx(1 - noise[0] / noise[1], rel=1e-9)


@pytest.mark.slow
def test_sparse_epochs_are_told_a_bandwidth_that_reaches_over_an_epoch():
    log, analysis = analysed("sparse epochs")
    assert analysis.recommendation.reduction[0] > 0.6  # KAE at 10 steps has GRPO's error
    assert all(float(re.search(r"bandwidth=(\d+)", row.specification)[1]) > 200 for row in analysis.tuned)
    (blind,) = [note for note in analysis.notes if note.startswith("The history of ")]
    assert all(f"kae:bandwidth={steps}" in blind for steps in (5, 10, 20)) and "about 300 would reach" in blind
    assert not {"kae", "kae_eb", "kalman", "spo", "rloo"} & set(re.split(r"[, ]+", blind))
    tuned = {row.specification: row.name for row in analysis.tuned}
    fixed = value_risk(log, list(tuned), n_boot=0)["mse"].to_numpy()
    by_halves = analysis.risk.set_index("method").loc[list(tuned.values()), "mse"].to_numpy()
    np.testing.assert_allclose(by_halves, fixed, rtol=0.1)  # a choice of one number from 300 prompts


def test_one_epoch_is_told_what_can_help_without_a_history():
    _, analysis = analysed("one epoch")
    assert headline(analysis).startswith("Every prompt occurs once: a history cannot help. Use james_stein: ")
    assert analysis.min_visits == 0 and analysis.notes[0].startswith("Every prompt occurs once")
    ratio = analysis.risk.set_index("method")["vs_grpo"]
    assert ratio["kae_eb"] < ratio["james_stein"] < 0.75 and ratio["kae"] == ratio["rloo"] == 1
    assert "kae:bandwidth=20" not in ratio.index and not analysis.tuned
    assert paste_lines(analysis)[0][1] == 'AdvantageEstimator("james_stein")'


def test_rewards_of_another_range_are_named_and_lead_to_the_same_recommendation():
    log = small_run()
    plain, (_, labelled) = analyze(log, n_boot=200), analysed("plus and minus one")
    assert labelled.recommendation.row == plain.recommendation.row
    assert labelled.recommendation.reduction == pytest.approx(plain.recommendation.reduction, rel=1e-6)
    assert labelled.recommendation.noise_reduction == pytest.approx(plain.recommendation.noise_reduction, rel=1e-6)
    assert any(note.startswith("Rewards lie between -1 and 1.") for note in labelled.notes)
    assert not any("Rewards lie" in note for note in plain.notes)
    for method in ("kalman", "kalman:high=1,low=0"):  # the defaults count as not given
        kalman = analyze(relabelled(log, scale=2, shift=-1), [method, "grpo"], n_boot=50)
        assert paste_lines(kalman)[0][1] == 'AdvantageEstimator("kalman", low=-1, high=1)'


def test_where_all_are_shown_to_be_level_the_group_mean_is_kept_and_there_is_nothing_to_paste():
    rng = np.random.default_rng(0)
    prompt, step = np.repeat(np.arange(12), 8), np.tile(np.repeat(np.arange(2), 4), 12)
    log = RewardLog(prompt, step, rng.integers(0, 2, 96) * 1.0)
    analysis = analyze(log, ["grpo", "krpo", "rloo"], n_boot=100)
    assert analysis.recommendation.level and paste_lines(analysis) == []
    assert headline(analysis).startswith("Keep GRPO's group mean: its value error (MSE) and that of rloo differ by")


def test_only_prompts_that_come_back_count_as_evidence():
    rng = np.random.default_rng(0)
    prompt = np.concatenate([np.arange(50), np.arange(5)])
    step = np.arange(55) // 5
    log = RewardLog(prompt, step, rng.integers(0, 2, 55).astype(float), length=rng.integers(5, 30, 55))
    analysis = analyze(log, n_boot=100)
    assert analysis.recommendation.n_prompts == 5
    text = headline(analysis)
    assert "this log (5 prompts of 50 can be scored) is too small" in text
    assert all(abs(int(share)) <= 100 for share in re.findall(r"(-?\d+) to -?\d+\)", text))


def test_a_log_that_is_too_small_to_tell_leads_to_the_default_and_says_so():
    log = small_run(n_prompts=4, n_epochs=3, group_size=2)
    analysis = analyze(log, ["rloo", "none", "bayes_filter", "kae"], n_boot=200)
    assert not analysis.recommendation.better and not analysis.recommendation.level
    said = headline(analysis)
    assert said.startswith("Use bayes_filter") and "this log (4 prompts) is too small to show" in said
    assert paste_lines(analysis)[0][1].startswith('AdvantageEstimator("bayes_filter"')


def test_rewards_that_are_all_alike_lead_to_the_next_action():
    constant = analyze(RewardLog(["a", "a", "b", "b"] * 3, np.repeat(range(3), 4), [1.0] * 12), n_boot=40)
    assert headline(constant).startswith("All rewards that can be compared are 1: no baseline matters")
    assert "Retire them" in headline(constant) and paste_lines(constant) == []
    assert not re.search(r"nan", headline(constant) + str(comparison(constant)))


def test_a_log_of_visits_says_how_bandwidths_become_steps():
    frame = small_run().frame
    log = RewardLog(frame["prompt"], frame["step"], frame["reward"], time_axis="visit")
    analysis = analyze(log, ["kae:bandwidth=8", "grpo"], n_boot=50)
    assert "with bandwidth 8 visits" in headline(analysis)
    (_, python), (_, verl) = paste_lines(analysis)
    assert estimator_of(python, BANDWIDTH_IN_STEPS=72).baseline.horizon == 72
    assert "bandwidth=BANDWIDTH_IN_STEPS" in verl and "8 times the number of steps" in paste_notes(analysis)[0]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (lambda step: step, None),
        (lambda step: 1_700_000_000 + step, "begin at 1,700,000,000, as timestamps"),
        (lambda step: 10 * step, "are 10 or more apart"),
        (lambda step: step + 5000 * (step > 2), "jump from 2 to 5,003"),
    ],
)
def test_steps_that_are_no_training_steps_have_a_note(steps, words):
    log = relabelled(small_run(n_prompts=20, n_epochs=6), steps=steps)
    odd = [note for note in analyze(log, ["kae", "grpo"], n_boot=0).notes if note.startswith("Steps ")]
    assert words in odd[0] if words else not odd


def test_the_real_run_is_told_to_borrow_strength_at_about_twenty_visits():
    path = Path(os.environ.get("KAESTAT_DATA", "")) / "acc_step_500_dev.json"
    if not path.is_file():
        pytest.skip("KAESTAT_DATA points to no folder with acc_step_500_dev.json")
    analysis = analyze(
        read_log(path), ["kae:bandwidth=10", "kae:bandwidth=20", "kae_eb:bandwidth=20", "kalman", "rloo"], n_boot=200
    )
    found = analysis.recommendation
    assert (found.method, found.params["bandwidth"], found.tied) == ("kae_eb", 20.0, ())
    assert found.reduction[0] == pytest.approx(0.88, abs=0.01) and found.noise_reduction == pytest.approx(
        0.11, abs=0.01
    )
