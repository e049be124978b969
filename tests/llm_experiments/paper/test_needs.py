"""What a dry run says of packages, memory and disk is counted, of all runs, and says how well it is known."""

from pathlib import Path

import pytest

from llm_experiments.paper.needs import needs
from llm_experiments.paper.plan import Machinery, plan, training_runs
from llm_experiments.training.disk import disk_use
from llm_experiments.training.shapes import GIB, SHAPES
from llm_experiments.training.trl.resources import KNOWN_ERROR, estimate


def machinery(folder, **changes):
    return Machinery(
        **{"backend": "trl", "gpus": 8, "nodes": 1, "runs": folder, "results": folder, "data": None} | changes
    )


def test_all_runs_of_a_table_are_counted(tmp_path):
    said = "\n".join(needs("table3", machinery(tmp_path)))
    ((runs),) = training_runs("table3").values()
    total = sum(disk_use(run, SHAPES[run.model.name], backend="trl").total for run in runs) / GIB
    assert f"{len(runs)} training runs" in said and f"Disk: {total:,.0f} GiB" in said
    memory = max(estimate(run, SHAPES[run.model.name], gpus=8, sharded=True).total_gib for run in runs)
    assert f"by an estimate {memory:.0f} GiB on each of 8 GPUs" in said
    assert KNOWN_ERROR in said and "public hub" in said


def test_a_cpu_gets_no_estimate(tmp_path):
    assert "by an estimate" not in "".join(needs("table3", machinery(tmp_path, gpus=0)))


def test_several_machines_count(tmp_path):
    one, two = ("\n".join(needs("table4", machinery(tmp_path, backend="verl", nodes=nodes))) for nodes in (1, 2))
    assert "of 8 GPUs" in one and "of 16 GPUs" in two and "does not, and should take less" in two


def test_sizes_that_do_not_divide_among_the_gpus_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="1024 completions must be a multiple of micro_batch = 4 times 3 processes"):
        plan("table3", machinery(tmp_path, gpus=3))
    assert plan("table3", machinery(tmp_path, gpus=3, backend="verl"))


def test_a_folder_of_data_is_named(tmp_path):
    assert f"local files in {tmp_path}" in "\n".join(needs("table1", machinery(tmp_path, data=Path(tmp_path))))
