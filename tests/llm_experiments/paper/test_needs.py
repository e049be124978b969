"""What a dry run says of packages, memory and disk is counted, of all runs."""

import re

import pytest

from llm_experiments.paper.needs import needs
from llm_experiments.paper.plan import Machinery, plan, wanted_runs
from llm_experiments.training.disk import disk_use
from llm_experiments.training.shapes import GIB, SHAPES


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
    assert "public hub" in said


def test_sharded_weights_divide_among_all_gpus_and_a_cpu_has_none(tmp_path):
    each = [
        int(re.search(r"(\d+) GiB of each of", "".join(needs(*of("table4", tmp_path, backend="verl", nodes=nodes))))[1])
        for nodes in (1, 2)
    ]
    assert each[0] == pytest.approx(2 * each[1], abs=1)
    assert "GPUs" not in "".join(needs(*of("table3", tmp_path, gpus=0)))


def test_sizes_that_do_not_divide_among_the_gpus_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="micro_batch = 4 times 3 processes"):
        plan("table3", machinery(tmp_path, gpus=3))
    assert plan("table3", machinery(tmp_path, gpus=3, backend="verl"))
