"""The documentation's table of what is logged: exactly the names that adapters log."""

import re

import numpy as np

from kaestat import AdvantageEstimator
from kaestat.integrations.shared.session import TrainerSession
from kaestat.integrations.shared.tracked_sampler import TrackedSampler
from kaestat.sampling import PromptSampler
from tests.helpers.logged import FRAMEWORKS, LOGGED


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
    assert logged_names() == LOGGED


def test_integration_logged_names_on_the_pages_of_trainers_exist():
    named = {
        name
        for page in FRAMEWORKS.glob("*.md")
        for name in re.findall(r"`((?:baseline|sampling)/\w+)`", page.read_text())
    }
    assert named == LOGGED
