"""The HTML reports in a real browser where there is one, and parsed in any case.

pytest reads the conftest.py of folders called ``test*`` before it collects, so that the header tells what is checked.
What the fixtures need is imported by them, as this file is read in every run.
"""

import pytest

from tests.helpers.chromium import CHROMIUM, MISSING

collect_ignore = ["test_pages_in_browser.py"] if MISSING else []


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


def _page(command):
    """The page of ``make reproduce``, of some of its parts, or of a command of ``kaestat`` with ``--out``."""

    @pytest.fixture(scope="session", name=command)
    def page(tmp_path_factory):
        from tests.helpers import report_pages

        return getattr(report_pages, f"{command}_page")(tmp_path_factory.mktemp(command) / "report")

    return page


analyze, reproduce, compare = map(_page, ("analyze", "reproduce", "compare"))


@pytest.fixture(params=["analyze", "reproduce"])
def report_page(request):
    """Each page in turn."""
    return request.getfixturevalue(request.param)
