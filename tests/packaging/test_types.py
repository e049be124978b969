"""The annotations hold: mypy, as strict as pyproject.toml asks, finds nothing in the library, and wrong uses of it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
import numpy as np
import kaestat
from kaestat.baselines import Kae
from kaestat.datasets import simulated_run
from kaestat.smoothing.kernels import as_kernel

log = kaestat.RewardLog(["a", "a"], np.array([0, 1]), [1.0, 0.0])
kaestat.read_log("acc_step_500.json")
mse: float = kaestat.value_risk(simulated_run().log, ["kae"])["mse"].min()
chosen: float = kaestat.select_bandwidth(log, "loo_cv", lambda u: np.exp(-u)).bandwidth
weight: float = as_kernel("triangular").at_zero
baseline: kaestat.baselines.base.Baseline = Kae(kernel="exponential", bandwidth="forward_cv")
advantages = kaestat.AdvantageEstimator("kae", bandwidth=10).step(["a", "a"], np.array([1.0, 0.0]), 0)
"""
WRONG = {
    'kaestat.select_bandwidth("rewards.csv")': "arg-type",
    'kaestat.RewardLog(["a"], ["first"], [1.0])': "list-item",
    'kaestat.AdvantageEstimator("kae").step(["a"], [1.0], "0")': "arg-type",
    'name: int = kaestat.AdvantageEstimator("kae").method': "assignment",
    "kaestat.value_risks": "attr-defined",
}


def mypy(*arguments):
    """Exit status and output, from the folder of the checkout."""
    ran = subprocess.run([sys.executable, "-m", "mypy", *arguments], cwd=ROOT, capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.slow
def test_users_right_and_wrong_calls_are_told_apart(tmp_path):
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(RIGHT)
    wrong.write_text("import kaestat\n" + "\n".join(WRONG))
    status, said = mypy(str(right), str(wrong))
    errors = [line for line in said.splitlines() if ": error:" in line]
    found = {int(line.split(":")[1]): line.rsplit("[", 1)[1].rstrip("]") for line in errors if "wrong.py" in line}
    assert status == 1 and len(errors) == len(WRONG), said
    assert found == dict(enumerate(WRONG.values(), start=2)), said
