"""Hypothesis is deterministic everywhere; helpers that need a framework are imported where it is installed.

Properties are tried on few examples in the quick suite, and under ``--hypothesis-profile=thorough`` on more; there they
count as slow, so that ``-m slow`` runs them, but for those that are tried for every method or kernel: the quick suite
gives these hundreds of examples.
"""

import gc
from importlib.util import find_spec

import pytest
from hypothesis import is_hypothesis_test, settings

PROFILES = {"quick": 10, "thorough": 40, "campaign": 100_000}
for name, examples in PROFILES.items():
    settings.register_profile(name, derandomize=name != "campaign", deadline=None, max_examples=examples)
settings.load_profile("quick")

needs = {
    "trl": ["helpers/tiny_trl.py", "helpers/two_ranks.py"],
    "vllm": ["llm_experiments/policies/test_vllm.py", "integrations/trl/test_vllm.py"],
    "verl": [
        *("helpers/tiny_verl.py", "integrations/verl/on_cpu"),
        *(f"llm_experiments/training/verl/{name}.py" for name in ("test_launch", "rehearse")),
    ],
}
collect_ignore = [file for framework, files in needs.items() if not find_spec(framework) for file in files]


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config, items):
    if config.getoption("--hypothesis-profile") == "thorough":
        for item in items:
            if is_hypothesis_test(getattr(item, "obj", None)) and not hasattr(item, "callspec"):
                item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is there after the collection stays, and is not looked through for garbage again and again.

    Thousands of tests and the libraries that they import are millions of objects, and trainers collect garbage after
    every training.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def browser():
    """One for all tests of a process, since playwright refuses to start twice in one."""
    from playwright.sync_api import sync_playwright

    from tests.helpers.chromium import CHROMIUM

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM)
        yield running
        running.close()
