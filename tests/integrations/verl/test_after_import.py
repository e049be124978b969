"""Actions that wait for a module: at once if it is there, right behind its execution if not, and once only."""

import importlib
import subprocess
import sys

import pytest

from kaestat.integrations.verl.after_import import after_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that may be imported, gone again after the test."""
    monkeypatch.syspath_prepend(tmp_path)
    watchers = list(sys.meta_path)

    def write(name, text="VALUE = 1\n"):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        return name

    yield write
    sys.meta_path[:] = watchers
    for name in [name for name in sys.modules if name.startswith("waited_for")]:
        del sys.modules[name]


def test_the_action_comes_after_the_whole_module(module):
    name, seen = module("waited_for_whole"), []
    after_import(name, lambda: seen.append(sys.modules[name].VALUE))
    assert seen == []
    importlib.import_module(name)
    assert seen == [1]


def test_the_action_comes_once_though_the_module_is_reloaded_and_at_once_where_it_is_there(module):
    name, seen = module("waited_for_reload"), []
    after_import(name, lambda: seen.append("acted"))
    importlib.reload(importlib.import_module(name))
    assert seen == ["acted"]
    after_import(name, lambda: seen.append("at once"))
    assert seen == ["acted", "at once"]


def test_verls_plugin_imports_neither_verl_nor_torch():
    """It is loaded in every process that imports verl, before verl has finished importing itself."""
    program = (
        "import sys, kaestat.integrations.verl\n"
        "assert not {'verl', 'torch', 'ray', 'omegaconf'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
