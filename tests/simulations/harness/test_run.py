"""A run gives the same bits however it is split, ordered, distributed or resumed; a failure costs its cell alone."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from pandas.testing import assert_frame_equal

from simulations.harness import Store, WorkerDied, replay, runner
from simulations.harness.study import averages
from tests.helpers.toy_studies import BIG_PRODUCT, DEADLY, FRAGILE, NOT_FINITE, TOY, run_quietly, shard_bytes, summarise


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run in this process."""
    return run_quietly(TOY, tmp_path_factory.mktemp("whole"))


def test_summary_has_a_row_per_cell_method_and_measure(whole):
    assert list(whole.summary.columns) == ["mean", "scale", "method", "measure", "estimate", "mcse", "n"]
    assert len(whole.summary) == 12
    assert set(whole.summary["n"]) == {40}
    row = whole.summary.query("mean == 1 and scale == 2 and measure == 'trace'").iloc[0]
    column = Store(whole.folder).read(TOY.cell({"mean": 1.0, "scale": 2.0}), 40, 8)["mean|trace"]
    assert row["method"] == "mean"
    assert row["estimate"] == pytest.approx(column.mean())
    assert row["mcse"] == pytest.approx(column.std(ddof=1) / np.sqrt(40))


def test_workers_give_the_same_bits_as_this_process(whole, tmp_path):
    result = run_quietly(TOY, tmp_path, jobs=2)
    assert_frame_equal(result.summary, whole.summary, check_exact=True)
    assert shard_bytes(result.folder) == shard_bytes(whole.folder)
    assert (result.folder / "summary.csv").read_bytes() == (whole.folder / "summary.csv").read_bytes()


@pytest.mark.parametrize("shard", [1, 7])
def test_results_do_not_depend_on_the_size_of_a_shard(whole, tmp_path, shard):
    assert_frame_equal(run_quietly(replace(TOY, shard=shard), tmp_path).summary, whole.summary, check_exact=True)


def test_results_do_not_depend_on_the_order_of_the_cells_or_on_which_others_there_are(whole, tmp_path):
    cells = list(TOY.cells)
    random.Random(0).shuffle(cells)
    result = run_quietly(replace(TOY, cells=cells[:4]), tmp_path)
    keys = ["mean", "scale", "measure"]
    merged = result.summary.merge(whole.summary, on=[*keys, "method", "n"], suffixes=("", "_whole"))
    assert len(merged) == len(result.summary) == 8
    assert (merged["estimate"] == merged["estimate_whole"]).all() and (merged["mcse"] == merged["mcse_whole"]).all()


def test_larger_scale_uses_whole_shards_again_and_gives_the_bits_of_a_fresh_run(whole, tmp_path):
    results = [run_quietly(TOY, tmp_path, scale=scale) for scale in (0.6, 1.0, 0.6)]
    # 24 replicates are three shards of 8, and 40 are two more; nothing was computed twice.
    assert [result.computed for result in results] == [18, 12, 0]
    assert_frame_equal(results[1].summary, whole.summary, check_exact=True)
    assert_frame_equal(results[2].summary, results[0].summary, check_exact=True)


def rounding(cell, streams):
    """A column whose last bit depends on the number of replicates that are computed together."""
    return {"x": streams.normal("x") * (1 + len(streams) * 2.0**-52)}


def test_results_do_not_depend_on_what_was_computed_before_to_the_last_bit(tmp_path):
    study = replace(TOY, simulate=rounding, summarise=averages)
    fresh = run_quietly(study, tmp_path / "fresh", scale=0.5)  # 20 replicates, the last shard of 4
    for scale in (0.3, 1.0):
        run_quietly(study, tmp_path / "other", scale=scale)
    after_others = run_quietly(study, tmp_path / "other", scale=0.5)
    assert_frame_equal(after_others.summary, fresh.summary, check_exact=True)
    assert not run_quietly(replace(study, shard=5), tmp_path / "other", scale=0.5).summary.equals(fresh.summary)


@pytest.mark.parametrize("replicate", [0, 13, 39, 10**6])
def test_replay_gives_the_numbers_of_the_run(whole, replicate):
    cell = TOY.cells[3]
    alone = replay(TOY, cell, replicate, 0)
    assert all(column.shape == (1,) for column in alone.values())
    if replicate < 40:
        run_columns = Store(whole.folder).read(cell, 40, 8)
        assert {name: column[0] for name, column in alone.items()} == {
            name: column[replicate] for name, column in run_columns.items()
        }


def test_matrix_products_do_not_depend_on_the_number_of_threads(tmp_path):
    from threadpoolctl import threadpool_limits

    bits = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            bits.append(shard_bytes(run_quietly(BIG_PRODUCT, tmp_path / str(threads)).folder))
    bits.append(shard_bytes(run_quietly(BIG_PRODUCT, tmp_path / "workers", jobs=2).folder))
    assert bits[0] == bits[1] == bits[2] != {}


@pytest.mark.parametrize("jobs", [1, 2])
def test_failure_costs_its_cell_and_is_recorded_and_tried_again(whole, tmp_path, monkeypatch, jobs):
    study = replace(FRAGILE, name="toy")  # the same random numbers
    result = run_quietly(study, tmp_path, jobs=jobs)
    rest = whole.summary.query("mean != 1").reset_index(drop=True)
    assert_frame_equal(result.summary, rest, check_exact=True)
    assert result.conclusion is None and result.computed == 30 and len(shard_bytes(result.folder)) == 28
    record = json.loads((result.folder / "provenance.json").read_text())
    assert (record["seed"], record["scale"], len(record["code"])) == (0, 1.0, 64) and str(tmp_path) not in str(record)
    recorded = record["failures"]
    assert recorded == result.failures and len(recorded) == 2
    first = min(recorded, key=lambda each: each["factors"]["scale"])
    assert (first["factors"], first["seed"], first["first"], first["last"]) == ({"mean": 1.0, "scale": 1.0}, 0, 16, 24)
    assert first["error"] == "ArithmeticError: replicate [17] went wrong" and "in fragile" in first["trace"]
    assert first["replay"] == """python -m simulations replay toy '{"mean": 1.0, "scale": 1.0}' 17 --seed 0"""
    monkeypatch.setenv("KAESTAT_TOY_REPAIRED", "1")
    repaired = run_quietly(study, tmp_path)
    assert (repaired.computed, repaired.failures) == (2, []), "only what failed is tried again"
    assert_frame_equal(repaired.summary, whole.summary, check_exact=True)


def test_columns_must_have_a_finite_number_for_each_replicate(tmp_path):
    (failure,) = run_quietly(NOT_FINITE, tmp_path / "nan").failures
    assert failure["error"] == "ValueError: column 'estimate' is not finite in replicate 13."
    assert " 13 --seed" in failure["replay"]
    for returned, message in (({}, "no columns"), ({"x": np.ones((8, 2))}, "expected (8,)")):
        study = replace(TOY, cells=TOY.cells[:1], simulate=lambda cell, streams, returned=returned: returned)
        assert message in run_quietly(study, tmp_path / "other").failures[0]["error"]


def test_summary_or_conclusion_that_fails_loses_no_samples(tmp_path):
    def only_small(cell, samples):
        return [1 / 0] if cell["mean"] == 1.0 else summarise(cell, samples)

    result = run_quietly(replace(TOY, summarise=only_small), tmp_path)
    assert [failure["error"] for failure in result.failures] == ["ZeroDivisionError: division by zero"] * 2
    assert len(result.summary) == 8
    assert len(shard_bytes(result.folder)) == 30
    result = run_quietly(replace(TOY, conclude=lambda summary: summary["no such column"]), tmp_path)
    assert (result.computed, result.conclusion, len(result.summary)) == (0, None, 12)
    assert "no such column" in result.failures[0]["error"]


def test_worker_that_dies_is_named_and_what_was_finished_is_kept(tmp_path):
    with pytest.raises(WorkerDied, match="a worker of study 'deadly' was killed"):
        run_quietly(DEADLY, tmp_path, jobs=2)
    good = replace(DEADLY, simulate=TOY.simulate)
    again = run_quietly(good, tmp_path, jobs=2)
    assert again.failures == [] and len(again.summary) == 12


@pytest.mark.parametrize("jobs", [1, 2])
def test_disk_that_takes_nothing_stops_the_run_and_the_next_one_is_whole(whole, tmp_path, jobs):
    place = runner.RunSettings(out=tmp_path).folder(TOY) / "shards"
    place.parent.mkdir(parents=True)
    place.write_text("")
    with pytest.raises(OSError, match="cannot write results"):
        run_quietly(TOY, tmp_path, jobs=jobs)
    place.unlink()
    assert_frame_equal(run_quietly(TOY, tmp_path).summary, whole.summary, check_exact=True)


def test_torn_shard_is_computed_again(whole, tmp_path):
    result = run_quietly(TOY, tmp_path)
    torn = sorted(result.folder.rglob("*.shard"))[4]
    torn.write_bytes(torn.read_bytes()[:-40])
    again = run_quietly(TOY, tmp_path)
    assert again.computed == 1 and shard_bytes(again.folder) == shard_bytes(whole.folder)
    assert_frame_equal(again.summary, whole.summary, check_exact=True)
