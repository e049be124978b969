"""The HTML reports in a real browser where there is one, and parsed in any case.

pytest reads the conftest.py of folders called ``test*`` before it collects, so that the header tells what is checked.
What the fixtures need is imported by them, as this file is read in every run.
"""

import shutil
from importlib.util import find_spec

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [name for name, there in (("Chromium", CHROMIUM), ("playwright", find_spec("playwright"))) if not there]
collect_ignore = ["test_charts_in_browser.py", "test_pages_in_browser.py"] if MISSING else []


def pytest_report_header():
    return f"report pages: {_told()}"


def pytest_terminal_summary(terminalreporter):
    """The header is not shown with -q; a browser that is missing must be."""
    if MISSING:
        terminalreporter.write_line(f"report pages: {_told()}", yellow=True)


def _told() -> str:
    if MISSING:
        return f"no {' and no '.join(MISSING)} here, so checked on the parsed HTML only, in no browser"
    return f"parsed, and in {CHROMIUM}"


@pytest.fixture
def command(capsys):
    """Run the command line in this process; returns status, stdout and stderr."""
    from kaestat.report.cli import run

    def call(*arguments):
        status = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def analyze(tmp_path_factory):
    """The page of ``kaestat analyze --out``."""
    from tests.helpers.report_pages import analyze_page

    return analyze_page(tmp_path_factory.mktemp("analyze") / "report")


@pytest.fixture(scope="session")
def reproduce(tmp_path_factory):
    """The page of ``make reproduce``, of some of its parts."""
    from tests.helpers.report_pages import reproduce_page

    return reproduce_page(tmp_path_factory.mktemp("reproduce") / "report")


@pytest.fixture(scope="session")
def watch(tmp_path_factory):
    """The page of ``kaestat watch --out``."""
    from tests.helpers.report_pages import watch_page

    return watch_page(tmp_path_factory.mktemp("watch") / "report")


@pytest.fixture(scope="session")
def compare(tmp_path_factory):
    """The page of ``kaestat compare --out``."""
    from tests.helpers.report_pages import compare_page

    return compare_page(tmp_path_factory.mktemp("compare") / "report")


@pytest.fixture(params=["analyze", "reproduce"])
def report_page(request):
    """Each page in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM)
        yield running
        running.close()
