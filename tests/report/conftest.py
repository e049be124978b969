"""The HTML reports in a real browser where there is one, and parsed in any case."""

import pytest

from tests.helpers.chromium import MISSING

collect_ignore = ["test_pages_in_browser.py"] if MISSING else []


def pytest_terminal_summary(terminalreporter):
    if MISSING:
        terminalreporter.write_line(
            f"report pages: parsed only, since there is no {' and no '.join(MISSING)}", yellow=True
        )


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


@pytest.fixture(params=["analyze", "compare", "reproduce"])
def report_page(request):
    """Each page in turn."""
    return request.getfixturevalue(request.param)
