"""What the harness asks of every study in ``simulations/studies``; a new study is tested by being there."""

import inspect

import pytest

from simulations import studies
from simulations.harness import Estimate, Streams, Study

REPLICATES = (0, 1)
pytestmark = pytest.mark.filterwarnings("ignore:.*few of the .* prompts carry the estimate")  # small logs of a study


@pytest.fixture(scope="module", params=studies.names())
def study(request) -> Study:
    return studies.get(request.param)


@pytest.fixture(scope="module")
def first(study):
    """The first cell's samples, as a run computes them."""
    cell = study.cells[0]
    return cell, study.simulate(cell, Streams(0, study.seed_key(cell), REPLICATES))


def test_simulation_is_a_function_that_workers_can_import(study):
    assert study.simulate.__qualname__ == study.simulate.__name__, "simulate must stand at the top level of its module"
    assert len(inspect.signature(study.simulate).parameters) == 2


def test_replicate_alone_has_the_numbers_that_it_has_among_others(study, first):
    cell, together = first
    for position, replicate in enumerate(REPLICATES):
        alone = study.simulate(cell, Streams(0, study.seed_key(cell), [replicate]))
        assert alone.keys() == together.keys()
        for name, column in together.items():
            # NumPy may sum over another number of replicates in another order; the learned filter's messages are of
            # single precision.
            rounding = 1e-5 if name.startswith("bayes_filter") else 1e-9
            assert alone[name][0] == pytest.approx(column[position], rel=rounding, abs=1e-12), name


def test_summary_has_named_estimates_for_every_cell_measured(study, first):
    estimates = study.summarise(*first)
    assert estimates and all(isinstance(estimate, Estimate) for estimate in estimates)
    names = [(estimate.method, estimate.measure) for estimate in estimates]
    assert len(set(names)) == len(names), "two estimates of one name"
