"""What a dry run says of packages, memory, hours and disk is counted, of all runs, and says how well it is known."""

import re
from pathlib import Path

import pytest

from llm_experiments.paper.needs import needs
from llm_experiments.paper.plan import Machinery, plan, wanted_runs
from llm_experiments.training.disk import disk_use
from llm_experiments.training.shapes import GIB, SHAPES
from llm_experiments.training.trl.resources import KNOWN_ERROR


def machinery(folder, **changes):
    settings = {"backend": "trl", "gpus": 8, "nodes": 1, "data": None} | changes
    return Machinery(runs=folder, results=folder, **settings)


def of(artefact, folder, **changes):
    """What `needs` takes."""
    made = machinery(folder, **changes)
    return wanted_runs(artefact, made), made


def test_all_runs_of_a_table_are_counted(tmp_path):
    said = "\n".join(needs(*of("table3", tmp_path)))
    (runs,) = of("table3", tmp_path)[0].values()
    uses = [disk_use(run, SHAPES[run.model.name], backend="trl") for run in runs]
    total = (sum(use.snapshots + use.model for use in uses) + max(use.checkpoints for use in uses)) / GIB
    assert f"{len(runs)} training runs" in said and f"Disk: {total:,.0f} GiB" in said
    each, all_ = re.search(r"estimate ([\d.]+) hours each, ([\d,]+) in all", said).groups()
    assert float(all_) == pytest.approx(len(runs) * float(each), rel=0.05)
    assert KNOWN_ERROR in said and "public hub" in said


def test_half_of_the_gpus_take_twice_as_long_and_a_cpu_gets_no_hours(tmp_path):
    hours = [
        float(re.search(r"estimate ([\d.]+) hours", "".join(needs(*of("table3", tmp_path, gpus=gpus))))[1])
        for gpus in (4, 8)
    ]
    assert hours[0] == pytest.approx(2 * hours[1], rel=0.02)
    assert "hours each" not in "".join(needs(*of("table3", tmp_path, gpus=0)))


def test_several_machines_count(tmp_path):
    one, two = ("\n".join(needs(*of("table4", tmp_path, backend="verl", nodes=nodes))) for nodes in (1, 2))
    assert "on 8 GPUs" in one and "on 16 GPUs" in two and "to the longest of a micro-batch" in two


def test_sizes_that_do_not_divide_among_the_gpus_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="1024 completions must be a multiple of micro_batch = 4 times 3 processes"):
        plan("table3", machinery(tmp_path, gpus=3))
    assert plan("table3", machinery(tmp_path, gpus=3, backend="verl"))


def test_a_folder_of_data_is_named(tmp_path):
    assert f"local files in {tmp_path}" in "\n".join(needs(*of("table1", tmp_path, data=Path(tmp_path))))
