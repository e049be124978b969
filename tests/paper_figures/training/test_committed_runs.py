"""What the committed training runs of a small model show."""

from pathlib import Path

import numpy as np
import pytest

from paper_figures.training.results import read_results, variants_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("experiment", ["tiny_single_stream", "tiny_multi_stream_g4", "tiny_multi_stream_g8"])
def test_in_the_committed_runs_every_method_raises_test_accuracy_beyond_noise(experiment):
    final = read_results(ROOT / "results" / "training" / experiment, ["final"])["final"]
    gains = final[final["outcome"] == "gain"]
    assert len(gains) == len(variants_of(final))
    assert (gains["n_seeds"] >= 5).all()
    assert (gains["mean"] > 4 * gains["se"]).all()


def test_in_the_committed_one_shot_runs_one_problem_teaches_others():
    found = read_results(ROOT / "results" / "training" / "tiny_one_shot", ["tests", "curves"])
    greedy = found["tests"].pivot_table(index=["method", "seed"], columns="step", values="greedy")
    for _, rise in (greedy[100] - greedy[0]).groupby("method"):
        assert len(rise) >= 5 and rise.mean() > 4 * rise.std(ddof=1) / np.sqrt(len(rise))
    last = found["curves"].sort_values("step").groupby(["method", "seed"])["mean_reward"].last()
    assert (last > 0.9).all()
