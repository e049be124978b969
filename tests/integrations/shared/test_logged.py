"""The table of what is logged: exactly the names that adapters log, in the code and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.logged import LOGGED, panels
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.sampling import PromptSampler

DOCS = Path(__file__).parents[3] / "docs" / "frameworks"


def logged_names() -> set[str]:
    """All that a step with weights, a history and a sampler logs."""
    watched = TrainerSession(AdvantageEstimator("kae", bandwidth=10), weights="length")
    sampler = TrackedSampler(PromptSampler(["a", "b"], budget=4, group_size=2), ["a", "b"])
    for step in range(2):
        drawn = sampler.draw(step).rows()
        watched.advantages(
            np.tile([1.0, 0.0], len(drawn) // 2), step, prompts=drawn, weights=np.arange(1.0, len(drawn) + 1)
        )
    return {*watched.metrics, *sampler.metrics}


def test_integration_logged_names_are_those_of_the_table():
    assert logged_names() == {figure.name for figure in LOGGED}


def test_integration_logged_names_have_not_changed():
    """Dashboards and alarms of users are made of these: add names, never change one."""
    assert {figure.name for figure in LOGGED} >= {
        "baseline/error",
        "baseline/squared_error",
        "baseline/nonzero_advantages",
        "baseline/dead_groups",
        "baseline/known_prompts",
        "baseline/past_completions",
        "baseline/effective_history",
        "baseline/gradient_noise",
        "sampling/prompts",
        "sampling/effective_completions",
        "sampling/largest_correction",
    }


def test_integration_logged_table_of_the_documentation_is_that_of_the_code():
    page = (DOCS / "index.md").read_text()
    rows = re.findall(r"^\| `((?:baseline|sampling)/\w+)` \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    assert rows == [(figure.name, figure.unit, figure.meaning) for figure in LOGGED]


def test_integration_logged_names_on_the_pages_of_trainers_exist():
    named = {
        name for page in DOCS.glob("*.md") for name in re.findall(r"`((?:baseline|sampling)/\w+)`", page.read_text())
    }
    assert named == {figure.name for figure in LOGGED}


def test_integration_logged_every_figure_has_its_panel():
    assert sorted(name for names in panels().values() for name in names) == sorted(figure.name for figure in LOGGED)
