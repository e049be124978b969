"""Runs again, with every completion: the same runs, their own norms, and advice held against what was measured."""

import math
import re
from collections import defaultdict
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer

from kaestat import RewardLog
from llm_experiments.config import checked
from llm_experiments.study.advice import ADVICE_COLUMNS, advice, law_name, log_of, pooled_ratio, was_right
from llm_experiments.study.config import StudyConfig
from llm_experiments.study.controls import required_controls
from llm_experiments.study.curves import CURVE_COLUMNS, Tasks
from llm_experiments.study.rows import ROW_COLUMNS
from llm_experiments.study.run import Study
from llm_experiments.training.stacked.codec import TokenCodec
from llm_experiments.training.stacked.config import Design
from llm_experiments.training.stacked.loop import StackedTraining

RATE = 1e-2
SMALL = {
    "name": "small",
    "world": {
        "task": "habits",
        "n_prompts": 16,
        "n_examples": 500,
        "pretraining": {"steps": 300, "batch_size": 64, "learning_rate": 1e-2, "width": 32, "layers": 1},
        "max_new_tokens": 6,
    },
    "completions": 16,
    "budget": 96,
    "rates": [5e-3, 1e-2, 2e-2],
    "rate_seeds": [6, 7, 8, 9],
    "seeds": [0, 1],
    "tests": {"every": 48, "temperatures": [1.0], "samples": 1, "passes": 2},
    "designs": {
        "kae_eb_1_adam": {"method": "kae_eb", "weights": "adam"},
        "batch_mean_1_adam": {"method": "reinforce++", "scale": "none", "weights": "adam"},
        "none_1": {"method": "none"},
        "grpo_4": {"method": "grpo", "group_size": 4},
    },
    "reference": "grpo_4",
    "recommended": "kae_eb_1_adam",
    "rivals": ["batch_mean_1_adam"],
}
DESIGNS = {name: Design(**each) for name, each in SMALL["designs"].items()}
LEFT_OUT = {
    name: "a test"
    for name, matches in required_controls(DESIGNS[SMALL["recommended"]]).items()
    if not any(map(matches, DESIGNS.values()))
}


@contextmanager
def silent(part, total):
    yield lambda: None


def study_in(place, bases):
    world = SMALL["world"] | {"bases": bases}
    config = checked(StudyConfig, "test", SMALL | {"left_out": LEFT_OUT, "world": world})
    return Study(config, runs=place / "runs", results=place / "results", progress=silent)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two base models, the second without runs yet."""
    place = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Study, "_choose_rate", lambda *_: RATE)
        patch.setattr(Study, "_known_rates", lambda _: None)
        study_in(place, [0]).compare()
    study = study_in(place, [0, 1])
    return study, study.rows()


def rows_of(study, design="kae_eb_1_adam"):
    return pd.read_csv(study.folder / "rows" / f"{design}-0.csv.gz")


def test_every_completion_of_the_first_run_is_kept_with_its_norms(finished):
    study, table = finished
    assert sorted(each.name for each in (study.folder / "rows").iterdir()) == sorted(
        f"{name}-0.{end}" for name in ("kae_eb_1_adam", "grpo_4") for end in ("csv.gz", "facts.csv")
    )
    for design in ("kae_eb_1_adam", "grpo_4"):
        rows = rows_of(study, design)
        assert list(rows.columns) == ROW_COLUMNS and rows["step"].value_counts().sort_index().tolist() == [16] * 6
        first = rows["step"] == 0
        assert rows["adam"].isna().equals(first) and rows[["logits", "plain"]].gt(0).all(axis=None)
        assert rows["reward"].isin([0, 1]).all() and rows["length"].between(1, 6).all()
    groups = rows.groupby(["step", "prompt"]).size()
    assert (groups == 4).all()
    assert list(table.columns) == ADVICE_COLUMNS and set(table["log"]) == {"kae_eb_1_adam", "grpo_4"}
    assert pd.read_csv(study.results / "rows.csv")["completions"].tolist() == [96, 96]


def test_norms_are_those_of_the_policy_that_sampled_and_of_its_optimiser(finished):
    """Against each completion's own gradient, at the third step of the run made again by itself."""
    study, _ = finished
    config, folder, seeds = study.config, study.bases()[0], [0, 1]
    tasks, codec = Tasks.of(config.world, 0, seeds), TokenCodec(AutoTokenizer.from_pretrained(folder))
    training = StackedTraining(config.setting("kae_eb_1_adam"), [folder] * 2, tasks.pools, seeds, codec, [RATE] * 2)
    training.advance()
    training.advance()
    parameters = {name: each[:1].detach().clone().requires_grad_() for name, each in training.parameters.items()}
    squares = {name: each[0] for name, each in training.mean_squares().items()}
    training.advance()
    groups = training.runs[0].latest
    rows = rows_of(study)[lambda each: each["step"] == 2].reset_index(drop=True)
    assert rows["prompt"].tolist() == [training.runs[0].ids[row] for row in groups.rows]
    np.testing.assert_array_equal(rows["reward"], groups.rewards)
    prompts = codec.tokens([training.runs[0].problems[row].prompt for row in groups.rows])
    for place, completion in enumerate(groups.completions):
        length = int(rows["length"][place])
        assert length == len(completion) or completion[length - 1] == codec.end
        said = completion[:length]
        tokens = torch.cat([prompts[place], said[:-1]])[None, None]
        logits = training.model.logits(parameters, tokens, skip=prompts.shape[1] - 1)[0, 0]
        scores = logits.log_softmax(-1)
        whole = scores.gather(-1, said[:, None]).sum()
        onehot = torch.eye(logits.shape[1])[said]
        found = {"logits": (onehot - scores.exp()).square().sum(), "plain": 0.0, "adam": 0.0}
        gradients = torch.autograd.grad(whole, list(parameters.values()), retain_graph=True)
        beside = defaultdict(list)
        for name, gradient in zip(parameters, gradients, strict=True):
            beside[re.sub("[qkv]_proj|(gate|up)_proj", "beside", name)].append((gradient[0], squares[name]))
        for parts in beside.values():
            gradient, square = (torch.cat(each) for each in zip(*parts, strict=True))
            found["plain"] += gradient.square().sum()
            found["adam"] += (gradient.square() * factored(square)).sum()
        for name, value in found.items():
            assert rows[name][place] == pytest.approx(value.item(), rel=1e-3), name


def factored(square):
    """One over mean squares, those of matrices as the outer product of row and column means, with the floor."""
    if square.ndim == 1:
        return 1 / (square + 1e-3 * square.mean())
    row, column = square.mean(1), square.mean(0)
    inverse = [1 / (each + 1e-3 * each.mean()) for each in (row, column)]
    return inverse[0][:, None] * inverse[1] * square.mean()


def test_a_run_that_comes_out_otherwise_is_refused(finished, tmp_path):
    study, _ = finished
    path = study.folder / "curves" / "grpo_4-0.csv"
    kept = path.read_text()
    rows = study.folder / "rows" / "grpo_4-0.csv.gz"
    rows.rename(tmp_path / "rows")
    curves = pd.read_csv(path)
    last = (curves["seed"] == 0) & (curves["generated"] == 96)
    curves.loc[last, "entropy"] += 1e-4
    curves.to_csv(path, index=False)
    try:
        with pytest.raises(ValueError, match=r"grpo_4 on base model 0, seed 0: the repeated run has entropy "):
            study.rows()
        assert not rows.exists()
    finally:
        path.write_text(kept)
        (tmp_path / "rows").rename(rows)


def test_rows_that_are_there_are_not_made_again(finished, monkeypatch):
    study, table = finished
    monkeypatch.setattr("llm_experiments.study.rows.repeated", lambda *_, **__: pytest.fail("made again"))
    pd.testing.assert_frame_equal(study.rows(), table)


def test_without_compared_runs_there_are_no_rows(tmp_path):
    with pytest.raises(ValueError, match="no base model has runs of kae_eb_1_adam and grpo_4 yet; compare them first"):
        study_in(tmp_path, [0]).rows()


def test_designs_in_the_words_of_the_law():
    names = {
        "none": {"method": "none"},
        "none_signed": {"method": "none", "coding": "signed"},
        "batch_mean": {"method": "reinforce++", "scale": "none"},
        "weighted_batch_mean": {"method": "reinforce++", "scale": "none", "weights": "adam"},
        "history": {"method": "kae_eb"},
        "weighted_history": {"method": "kae_eb", "weights": "adam"},
        "weighted_constant": {"method": "kae", "keys": "all", "weights": "adam"},
        "grpo_8": {"method": "grpo", "group_size": 8},
        "rloo_2": {"method": "rloo", "group_size": 2},
    }
    assert {name: law_name(Design(**each)) for name, each in names.items()} == {name: name for name in names}
    unknown = [
        {"method": "grpo", "group_size": 8, "filtered": True},
        {"method": "kae_eb", "sampling": "neyman"},
        {"method": "kae_eb", "coding": "signed"},
        {"method": "kae", "keys": "all"},
        {"method": "kae"},
    ]
    assert [law_name(Design(**each)) for each in unknown] == [None] * len(unknown)


def test_advice_is_right_where_the_gap_says_the_same():
    pays, not_shown = "pays", "is not shown to pay"
    gaps = [(0.01, 0.03), (-0.03, -0.01), (-0.01, 0.02), (math.nan, math.nan)]
    assert [was_right(pays, *gap) for gap in gaps] == ["yes", "no", "open", "open"]
    assert [was_right(not_shown, *gap) for gap in gaps] == ["no", "yes", "yes", "open"]
    assert was_right("", 0.01, 0.03) == "open"


def test_ratio_of_weights_over_all_completions():
    log = RewardLog(list("aabb"), [0, 0, 0, 0], [1, 0, 0, 0], weight=[2.0, 3.0, 4.0, 8.0])
    ratio, low, high = pooled_ratio(log)
    assert ratio == pytest.approx(5 / 2) and low <= ratio <= high
    assert np.isnan(pooled_ratio(RewardLog(list("ab"), [0, 0], [1, 1], weight=[1.0, 2.0]))).all()


def test_adams_units_drift_and_are_taken_over_each_step():
    columns = {"reward": 1.0, "length": 1, "logits": 1.0, "plain": 2.0}
    rows = pd.DataFrame({"step": [0, 1, 1, 2, 2], "prompt": list("aabab"), "adam": [np.nan, 1, 3, 10, 30]} | columns)
    adam, plain = log_of(rows, "adam"), log_of(rows, "plain")
    assert adam.frame["weight"].tolist() == [0.5, 1.5, 0.5, 1.5] and adam.frame["step"].tolist() == [1, 1, 2, 2]
    assert plain.frame["weight"].tolist() == [2.0] * 5


def test_advice_that_a_history_pays_is_held_against_what_it_paid(finished):
    """Values spread from .05 to .95, and all completions weigh alike: the recommended design ahead, behind, level."""
    config, rng = finished[0].config, np.random.default_rng(5)
    value = np.linspace(0.05, 0.95, 40)
    prompts = np.tile(np.arange(40), 30)
    rows = pd.DataFrame(
        {
            "step": np.repeat(np.arange(30), 40),
            "prompt": prompts.astype(str),
            "reward": (rng.random(1200) < value[prompts]).astype(float),
            "length": 7,
            "logits": np.nan,
            "plain": np.nan,
            "adam": 1.0,
        }
    )[ROW_COLUMNS]
    for ahead, right in ((0.1, "yes"), (-0.1, "no"), (0.0, "open")):
        heights = {"kae_eb_1_adam": 0.5 + ahead, "batch_mean_1_adam": 0.5, "none_1": 0.3, "grpo_4": 0.4}
        table, order = advice(config, rows, "kae_eb_1_adam", 0, curves_of(heights))
        assert table["metric"].tolist() == ["adam"]
        row = table.iloc[0]
        assert row["rho"] == pytest.approx(1) and row["saved_low"] > 0.05 and row["predicted_high"] < 1
        assert (row["advice"], row["right"]) == ("pays", right)
        assert row["gap"] == pytest.approx(ahead) and row["gap_low"] < row["gap"] < row["gap_high"]
        noise = order.set_index("design")["noise"]
        assert noise["kae_eb_1_adam"] < noise["batch_mean_1_adam"] < noise["none_1"]
        assert order.set_index("design")["area"].to_dict() == pytest.approx(heights)
    ranks = order[["noise", "area"]].rank()
    assert row["correlation"] == pytest.approx(-np.corrcoef(ranks["noise"], ranks["area"])[0, 1])


def curves_of(heights):
    """Flat curves of two seeds, .01 above and below on average, alike for all designs but for a little."""
    frames = []
    for design, height in heights.items():
        for seed, off in enumerate((0.01, -0.01)):
            own = off + (0.001 * (1 - 2 * seed) if design == "kae_eb_1_adam" else 0.0)
            frame = pd.DataFrame(dict.fromkeys(CURVE_COLUMNS, height + own), index=[0, 1])
            frames.append(frame.assign(design=design, base=0, seed=seed, generated=[0, 96]))
    return pd.concat(frames, ignore_index=True)
