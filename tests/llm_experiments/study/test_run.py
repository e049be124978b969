"""A study at the smallest size, from base models to tables, interrupted and gone on with."""

from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from llm_experiments.config import checked
from llm_experiments.study import run as study_run
from llm_experiments.study.config import StudyConfig, load_study
from llm_experiments.study.curves import CURVE_COLUMNS, Tasks
from llm_experiments.study.noise.measured import NOISE_COLUMNS, TRUTH
from llm_experiments.study.run import Study
from llm_experiments.study.world_check import _halved
from llm_experiments.tasks.habits import cell_of
from paper_figures.policies.__main__ import build

SHIPPED = sorted((Path(study_run.__file__).parents[1] / "configs" / "study").glob("*.yaml"))
SMALL = {
    "name": "small",
    "world": {
        "task": "habits",
        "n_prompts": 32,
        "n_examples": 500,
        "pretraining": {"steps": 5, "batch_size": 16, "width": 16, "layers": 1},
        "bases": [0, 1],
        "max_new_tokens": 6,
    },
    "completions": 8,
    "budget": 32,
    "rates": [1e-3, 1e-2],
    "rate_seeds": [7],
    "seeds": [0, 1],
    "tests": {"every": 16, "temperatures": [1.0], "samples": 1, "passes": 2},
    "designs": {
        "grpo_4": {"method": "grpo", "group_size": 4},
        "kae_eb_1": {"method": "kae_eb", "sampling": "neyman"},
    },
    "reference": "grpo_4",
    "control": "grpo_4",
    "recommended": "kae_eb_1",
    "noise": {"path": "kae_eb_1", "at": [8, 16], "seeds": [0, 1], "draws": 4, "designs": ["kae_eb_1", "grpo_4"]},
}


@contextmanager
def silent(part, total):
    yield lambda: None


def small(**changes):
    return checked(StudyConfig, "test", SMALL | changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("study")
    study = Study(small(), runs=place / "runs", results=place / "results", progress=silent)
    return study, study.compare()


def test_every_run_of_every_design_has_its_tests(finished):
    _, table = finished
    assert list(table.columns) == ["design", "base", *CURVE_COLUMNS]
    counts = table.groupby(["design", "base", "seed"])["generated"].apply(list)
    assert len(counts) == 8 and all(each == [0, 16, 32] for each in counts)
    accuracies = table[["matched", "greedy", "sampled"]]
    assert ((accuracies >= 0) & (accuracies <= 1)).all(axis=None)
    assert table.groupby("generated")["passed"].apply(lambda each: each.notna().all()).tolist() == [True, False, True]


def test_designs_of_one_seed_begin_alike(finished):
    """Same model, same test problems, same random numbers: what differs later is the design's."""
    _, table = finished
    first = table[table["generated"] == 0].drop(columns="rate").set_index("design")
    one, other = (first.loc[name].reset_index(drop=True) for name in ("grpo_4", "kae_eb_1"))
    pd.testing.assert_frame_equal(one, other)


def test_what_is_done_is_not_done_again(finished, monkeypatch):
    study, table = finished
    monkeypatch.setattr(study_run, "learning_curves", lambda *_: pytest.fail("a stored curve was computed again"))
    again = Study(study.config, runs=study.folder.parents[1], results=study.results.parents[1], progress=silent)
    pd.testing.assert_frame_equal(again.compare(), table)


def test_one_design_is_run_without_the_others(tmp_path):
    study = Study(small(), runs=tmp_path / "runs", results=tmp_path / "results", progress=silent)
    table = study.compare(["grpo_4"])
    assert set(table["design"]) == {"grpo_4"}
    assert set(pd.read_csv(study.results / "rates.csv")["design"]) == {"grpo_4"}
    with pytest.raises(ValueError, match="'nothing' is none of the study's"):
        study.compare(["nothing"])


def test_the_world_is_checked_once(finished, monkeypatch):
    study, _ = finished
    table = study.check()
    assert table["accuracy"].between(0, 1).all() and (table["runs"] == 1).all()
    assert table["quantity"].is_unique and len(table) == 5
    monkeypatch.setattr(study_run, "world_check", lambda *_: pytest.fail("the check was made again"))
    pd.testing.assert_frame_equal(study.check(), table, check_dtype=False)


def test_noise_is_measured_once_of_every_design_and_of_the_truth(finished, monkeypatch):
    study, _ = finished
    table = study.noise()
    assert list(table.columns) == NOISE_COLUMNS
    counts = table.groupby(["base", "seed", "generated"])["design"].apply(list)
    assert len(counts) == 8 and all(each == ["kae_eb_1", "grpo_4", TRUTH] for each in counts)
    assert (table[["noise", "adam_noise", "answer_noise"]] >= 0).all(axis=None)
    assert table.loc[table["design"] == TRUTH, "value_error"].abs().max() < 1e-6
    monkeypatch.setattr(study_run, "measure", lambda *_: pytest.fail("noise was measured again"))
    pd.testing.assert_frame_equal(study.noise(), table, check_exact=False, check_dtype=False, rtol=1e-3)


def test_noise_without_places_is_refused(tmp_path):
    places = {"runs": tmp_path / "runs", "results": tmp_path / "results", "progress": silent}
    with pytest.raises(ValueError, match="does not say where"):
        Study(small(noise=None), **places).noise()


def test_halves_of_a_world_share_no_cell(finished):
    study, _ = finished
    halved = _halved(Tasks.of(study.config.world, 0, [0]))
    trained = {cell_of(problem) for problem in halved.pools[0].problems}
    tested = {cell_of(problem) for problem in (*halved.validation.problems, *halved.test.problems)}
    assert trained and len(tested) == 128 and not trained & tested


def test_other_settings_do_not_go_on_with_a_study(finished):
    study, _ = finished
    places = {"runs": study.folder.parents[1], "results": study.results.parents[1], "progress": silent}
    with pytest.raises(ValueError, match=r"other settings \(budget\)"):
        Study(small(budget=64), **places)
    changed = SMALL["designs"] | {"grpo_4": {"method": "rloo", "group_size": 4}}
    with pytest.raises(ValueError, match=r"other settings \(designs.grpo_4\)"):
        Study(small(designs=changed), **places)
    more = SMALL["designs"] | {"none_1": {"method": "none"}}
    Study(small(designs=more), **places)


def test_figure_and_tables_come_from_the_results_alone(finished):
    study, _ = finished
    build(study.results)
    for name in ("speed.csv", "differences.csv", "tables/speed.md", "tables/end.md", "tables/rates.md"):
        assert (study.results / name).stat().st_size > 0
    assert (study.results / "figures" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "KAE-EB, G = 1, Neyman sampling" in (study.results / "tables" / "speed.md").read_text()


def test_what_noise_says_comes_from_the_results_alone(finished):
    study, _ = finished
    study.noise()
    build(study.results)
    for name in (
        "noise_ratios.csv",
        "noise_levels.csv",
        "tables/noise_ranks.md",
        "tables/noise_effects.md",
        "tables/score_norms.md",
    ):
        assert (study.results / name).stat().st_size > 0
    assert (study.results / "figures" / "noise.png").read_bytes().startswith(b"\x89PNG")
    assert "Oracle (true value), G = 1" in (study.results / "tables" / "noise.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "nothing"}, "reference = 'nothing'"),
        ({"rate_seeds": [0]}, "share"),
        ({"rates": [1e-2, 1e-3]}, "increasing"),
        ({"noise": SMALL["noise"] | {"path": "nothing"}}, "noise.path = 'nothing'"),
        ({"noise": SMALL["noise"] | {"designs": ["nothing"]}}, "noise.designs: 'nothing'"),
        ({"noise": SMALL["noise"] | {"at": [64]}}, "within the budget"),
        ({"designs": {"grpo_4": {"method": "nothing"}}, "recommended": "grpo_4", "noise": None}, "nothing"),
        (
            {"designs": {"grpo_4": {"method": "kae", "sampling": "luck"}}, "recommended": "grpo_4", "noise": None},
            "luck",
        ),
    ],
)
def test_studies_that_cannot_be_run_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_can_be_read(path):
    assert load_study(path).name == path.stem
