"""`import kaestat` is light: heavy and optional libraries come only when they are used."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kaestat

HEAVY = ["torch", "transformers", "matplotlib", "typer", "rich", "jinja2", "scipy.stats"]
BEFORE_USE = ["numpy", "pandas", "scipy", *HEAVY]


def modules_after(statement):
    """Modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("import kaestat", BEFORE_USE),
        ("import kaestat.report.cli", BEFORE_USE),
        ("from kaestat import *", HEAVY),
        ("import kaestat; kaestat.AdvantageEstimator()", [*HEAVY, "pandas"]),
    ],
)
def test_import_does_not_load(statement, left_out):
    loaded = modules_after(statement)
    assert not loaded & set(left_out)
    assert ("kaestat.logs.risk" in loaded) == ("*" in statement)


def test_names_are_where_type_checkers_look_for_them():
    source = Path(kaestat.__file__).read_text()
    checked = re.findall(r"^    from kaestat\.([\w.]+) import (.*)$", source, re.MULTILINE)
    assert {module: tuple(names.split(", ")) for module, names in checked} == kaestat._PLACES
    assert sorted(kaestat._MODULES) == kaestat.__all__ and set(kaestat.__all__) <= set(dir(kaestat))
    assert all(getattr(kaestat, name).__name__ == name for name in kaestat.__all__)
    with pytest.raises(AttributeError, match="'kaestat' has no attribute 'advantage'"):
        getattr(kaestat, "advantage")  # noqa: B009


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
