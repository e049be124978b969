"""`import kaestat` is light: heavy and optional libraries come only when they are used."""

import json
import subprocess
import sys

import pytest

HEAVY = ["torch", "transformers", "matplotlib", "typer", "rich", "jinja2", "scipy.stats"]


def modules_after(statement):
    """Modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def after_import():
    return modules_after("import kaestat")


@pytest.mark.parametrize("module", HEAVY)
def test_import_does_not_load(after_import, module):
    assert module not in after_import
    assert "kaestat.logs.risk" in after_import


def test_a_loaded_module_would_be_seen():
    assert "scipy.stats" in modules_after("import scipy.stats")


def test_analysis_needs_no_optional_library():
    loaded = modules_after(
        "from kaestat.report.analysis import analyze\n"
        "from kaestat.datasets import simulated_run\n"
        "analyze(simulated_run(n_prompts=20, n_epochs=5).log, bandwidth_paths=True, n_boot=40)"
    )
    assert not loaded & {"torch", "transformers", "matplotlib", "typer", "rich", "jinja2"}


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_command_line_without_its_extra_names_the_pip_command(package):
    code = f"import sys\nsys.modules[{package!r}] = None\nfrom kaestat.report.cli import main\nmain(['methods'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "pip install 'kaestat[cli]'" in ran.stderr and len(ran.stderr.splitlines()) == 1
