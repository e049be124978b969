"""A study's declaration: what it refuses, and what its identity depends on."""

import pickle
from dataclasses import replace

import pytest

from simulations.harness import Cell, RunSettings, grid, study
from tests.helpers.toy_studies import TOY


def test_grid_is_the_full_factorial_with_the_last_factor_fastest():
    cells = grid(a=(1, 2), b=("x", None))
    assert [(cell["a"], cell["b"]) for cell in cells] == [(1, "x"), (1, None), (2, "x"), (2, None)]


def test_key_of_a_cell_is_its_content_in_any_order():
    assert Cell({"a": 1, "b": 2}).key == Cell({"b": 2, "a": 1}).key
    assert len({Cell({"a": value}).key for value in (1, 1.0, 2, "1", None)}) == 5
    assert pickle.loads(pickle.dumps(Cell({"a": 1}))) == Cell({"a": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cells": ()}, "has no cells"),
        ({"cells": [*TOY.cells, TOY.cells[0]]}, "two cells are the same"),
        ({"replicates": 0}, "replicates must be a whole number of at least 1"),
        ({"shard": 1.5}, "shard must be a whole number"),
    ],
)
def test_declaration_that_contradicts_itself_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(TOY, **change)


@pytest.mark.parametrize("change", [{"cells": TOY.cells[:2]}, {"replicates": 7}, {"shard": 3}])
def test_run_can_be_extended_and_cut_otherwise(change):
    assert replace(TOY, **change).run_id(0) == TOY.run_id(0)


@pytest.mark.parametrize("change", [{"name": "other"}, {"mechanisms": "Cauchy samples."}])
def test_results_of_another_declaration_lie_elsewhere(change):
    assert replace(TOY, **change).run_id(0) != TOY.run_id(0)


def test_results_of_another_seed_code_or_library_lie_elsewhere(monkeypatch):
    here = TOY.run_id(0)
    assert TOY.run_id(1) != here
    with monkeypatch.context() as patch:
        patch.setattr(study, "code_digest", lambda: "other code")
        assert TOY.run_id(0) != here
    with monkeypatch.context() as patch:
        patch.setattr(study, "version", lambda package: "0.0")
        assert TOY.run_id(0) != here
    assert TOY.run_id(0) == here


def test_study_outside_the_project_is_identified_by_its_own_source(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = "def simulate(cell, streams):\n    return {'x': streams.normal('x')}\n"
    (tmp_path / "first_variant.py").write_text(source)
    (tmp_path / "second_variant.py").write_text(source.replace("'x')", "'y')"))
    import first_variant
    import second_variant

    first, second = (replace(TOY, simulate=one.simulate) for one in (first_variant, second_variant))
    assert first.run_id(0) != second.run_id(0)
    assert first.run_id(0) == replace(first, replicates=9).run_id(0)


def test_cell_is_found_by_as_many_factors_as_tell_it_from_the_others():
    assert TOY.cell({"mean": 1.0, "scale": 2.0}) is TOY.cells[3]
    assert replace(TOY, cells=TOY.cells[::2]).cell({"mean": 2.0}) is TOY.cells[4]
    for factors, count in (({"mean": 9}, 0), ({"mean": 1.0}, 2), ({"mean": 1.0, "scale": 1.0, "colour": None}, 0)):
        with pytest.raises(ValueError, match=f'{count} cells with .*; one of its cells is {{"mean": 0.0, "scale": 1.0'):
            TOY.cell(factors)


@pytest.mark.parametrize(
    "setting",
    [{"scale": 0.0}, {"scale": float("nan")}, {"scale": float("inf")}, {"seed": -1}, {"seed": 1.5}, {"jobs": 0}],
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must be"):
        RunSettings(out="x", **setting)
