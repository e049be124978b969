"""A study at the smallest size, from base models to tables, interrupted and gone on with."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.torch import load_file

from llm_experiments.config import checked, load
from llm_experiments.study import run as study_run
from llm_experiments.study.config import StudyConfig
from llm_experiments.study.curves import CURVE_COLUMNS
from llm_experiments.study.run import Study
from paper_figures.policies.build import build
from tests.helpers.silence import silent

SHIPPED = sorted((Path(study_run.__file__).parents[1] / "configs" / "study").glob("*.yaml"))
SMALL = {
    "name": "small",
    "world": {
        "task": "columns",
        "n_prompts": 32,
        "n_examples": 500,
        "pretraining": {"steps": 5, "batch_size": 16, "width": 16, "layers": 1},
        "bases": [0, 1],
        "max_new_tokens": 6,
    },
    "completions": 8,
    "budget": 32,
    "rates": [5e-3, 1e-2, 2e-2],
    "rate_seeds": [6, 7, 8, 9],
    "seeds": [0, 1],
    "tests": {"every": 16, "temperatures": [1.0], "samples": 1, "passes": 2},
    "designs": {"grpo_4": {"method": "grpo", "group_size": 4}, "kae_eb_1": {"method": "kae_eb"}},
    "reference": "grpo_4",
    "recommended": "kae_eb_1",
    "rivals": ["grpo_4"],
}


def small(**changes):
    return checked(StudyConfig, "test", SMALL | changes)


def rising_to(best):
    """In place of `study_run._heights`: areas that are largest at one rate; in a few updates all are alike."""

    def heights(curves, budget):
        rates = sorted(set(curves["rate"]))
        return pd.DataFrame({"mean": [-abs(np.log(rate / best)) for rate in rates], "se": 0.1}, index=rates)

    return heights


def study_in(folder, *, stack=None, **changes):
    return Study(small(**changes), runs=folder / "runs", results=folder / "results", progress=silent, stack=stack)


@pytest.fixture(scope="module", autouse=True)
def rates_inside_the_grid():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_run, "_heights", rising_to(1e-2))
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("study")
    study = study_in(place)
    return study, study.compare()


def test_every_run_of_every_design_has_its_tests(finished):
    _, table = finished
    assert list(table.columns) == ["design", "base", *CURVE_COLUMNS]
    counts = table.groupby(["design", "base", "seed"])["generated"].apply(list)
    assert len(counts) == 8 and all(each == [0, 16, 32] for each in counts)
    accuracies = table[["matched", "greedy", "sampled"]]
    assert ((accuracies >= 0) & (accuracies <= 1)).all(axis=None)
    assert table.groupby("generated")["passed"].apply(lambda each: each.notna().all()).tolist() == [True, False, True]


@pytest.mark.slow
def test_base_models_may_begin_with_a_language_model(finished, tmp_path):
    """Each is taught its own world's examples, and then goes through the study as one from scratch does."""
    start = finished[0]._base(0)
    world = SMALL["world"] | {"start": str(start)}
    study = study_in(tmp_path, world=world)
    folders = [study._base(base) for base in (0, 1)]
    assert len({*folders}) == 2 and all(each.name.startswith("taught-") for each in folders)
    before, after = (load_file(each / "model.safetensors") for each in (start, folders[0]))
    assert before.keys() == after.keys() and any(not before[name].equal(after[name]) for name in before)
    table = study.compare(["kae_eb_1"])
    assert set(table["base"]) == {0, 1} and table["generated"].max() == 32


def test_what_is_done_is_not_done_again(finished, monkeypatch):
    study, table = finished
    monkeypatch.setattr(study_run, "learning_curves", lambda *_: pytest.fail("a stored curve was computed again"))
    again = Study(study.config, runs=study.folder.parents[1], results=study.results.parents[1], progress=silent)
    pd.testing.assert_frame_equal(again.compare(), table)


@pytest.mark.slow
def test_runs_in_small_stacks_are_those_of_one_and_go_on_in_any_other(finished, tmp_path, monkeypatch):
    _, table = finished
    train, begun = study_run.learning_curves, []

    def counted(*arguments):
        begun.append(arguments[3])
        if len(begun) == 14:  # the second run of what is compared, after twelve that choose the rate
            raise KeyboardInterrupt
        return train(*arguments)

    monkeypatch.setattr(study_run, "learning_curves", counted)
    with pytest.raises(KeyboardInterrupt):
        study_in(tmp_path, stack=1).compare(["kae_eb_1"])
    apart = study_in(tmp_path).compare(["kae_eb_1"]).sort_values(["base", "updates", "seed"], ignore_index=True)
    choosing = [6, 7, 8, 9] * 3
    assert begun == [*((seed,) for seed in choosing), (0,), (1,), (1,), tuple(choosing), (0, 1)]
    together = table[table["design"] == "kae_eb_1"].sort_values(["base", "updates", "seed"], ignore_index=True)
    pd.testing.assert_frame_equal(apart, together, rtol=1e-4)
    assert {each.name for each in (tmp_path / "runs" / "studies" / "small" / "curves").iterdir()} == {
        f"kae_eb_1-{base}.csv" for base in (0, 1)
    }


def test_other_settings_do_not_go_on_with_a_study(finished):
    place = finished[0].results.parents[1].parent
    with pytest.raises(ValueError, match=r"other settings \(budget\)"):
        study_in(place, budget=64)
    changed = SMALL["designs"] | {"grpo_4": {"method": "grpo", "group_size": 4, "scale": "none"}}
    with pytest.raises(ValueError, match=r"other settings \(designs.grpo_4\)"):
        study_in(place, designs=changed)
    study_in(place, designs=SMALL["designs"] | {"none_1": {"method": "none"}})


def test_figure_and_tables_come_from_the_results_alone(finished):
    study, _ = finished
    build(study.results)
    tables = ("speed", "area", "end", "rates")
    for name in ("speed.csv", "differences.csv.gz", *(f"tables/{each}.md" for each in tables)):
        assert (study.results / name).stat().st_size > 0
    assert (study.results / "figures" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "KAE-EB, G = 1 " in (study.results / "tables" / "speed.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": "nothing"}, "reference: 'nothing'"),
        ({"rivals": ["nothing"]}, "rivals: 'nothing'"),
        ({"rate_seeds": [0, 7, 8, 9]}, "share"),
        ({"rate_seeds": [7]}, "rate_seeds"),
        ({"rates": [2e-2, 1e-2, 5e-3]}, "rates must increase"),
        ({"rates": [1e-3, 1e-2, 2e-2]}, "the same multiple"),
        ({"designs": SMALL["designs"] | {"other": {"method": "nothing"}}}, "nothing"),
    ],
)
def test_studies_that_cannot_be_run_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_the_grid_of_rates_grows_until_the_best_lies_inside_and_is_refused_where_it_never_does(tmp_path, monkeypatch):
    study = study_in(tmp_path)
    stand_in = lambda path, design, base, runs, tests: pd.DataFrame(runs, columns=["seed", "rate"])  # noqa: E731
    monkeypatch.setattr(study, "_completed", stand_in)
    for best in (1e-2, 4e-2, 2.5e-3, 0.08):
        monkeypatch.setattr(study_run, "_heights", rising_to(best))
        assert study._choose_rate("grpo_4", 0) == pytest.approx(best)
    monkeypatch.setattr(study_run, "_heights", rising_to(1e3))
    with pytest.raises(ValueError, match=r"best learning rate of grpo_4 on base model 1, 0\.32, lies at the edge"):
        study._choose_rate("grpo_4", 1)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_can_be_read(path):
    assert load(StudyConfig, path).name == path.stem
