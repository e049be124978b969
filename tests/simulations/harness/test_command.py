"""``python -m simulations``: clear errors before any work, exit codes, and the whole way from run to replay."""

import json

import pytest
from typer.testing import CliRunner

from simulations import __main__ as command
from simulations import studies
from tests.helpers.toy_studies import FRAGILE, TOY

KNOWN = {"fragile": FRAGILE, "toy": TOY}


@pytest.fixture(autouse=True)
def toy_studies(monkeypatch):
    monkeypatch.setattr(studies, "names", lambda: sorted(KNOWN))
    get = studies.get
    monkeypatch.setattr(studies, "get", lambda name: KNOWN[name] if name in KNOWN else get(name))


def invoke(*arguments: object):
    return CliRunner().invoke(command.app, [str(argument) for argument in arguments])


def test_run_prints_the_summary_and_where_it_lies(tmp_path):
    result = invoke("run", "toy", "--out", tmp_path, "--scale", 0.1, "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "trace" in result.output
    assert "6 shards computed" in result.output
    assert (next((tmp_path / "toy").iterdir()) / "summary.csv").exists()
    again = invoke("run", "toy", "--out", tmp_path, "--scale", 0.1, "--jobs", 1)
    assert "0 shards computed" in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nonsense"], "unknown study 'nonsense'; choose one of fragile, toy"),
        (["run", "toy", "--scale", "0"], "scale must be positive"),
        (["run", "toy", "--seed", "-3"], "seed must be a whole number"),
    ],
)
def test_bad_request_is_refused_before_any_work(tmp_path, arguments, message):
    result = invoke(*arguments, "--out", tmp_path)
    assert result.exit_code == 2
    assert message in result.output
    assert not any(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense", "{}", 0], "unknown study 'nonsense'"),
        (["toy", "{mean", 0], "cell must be a JSON object"),
        (["toy", "[1, 2]", 0], "cell must be a JSON object"),
        (["toy", '{"mean": 1}', 0], '2 cells with {"mean": 1}'),
        (["toy", '{"mean": 1, "scale": 1}', "--", -1], "Invalid value"),
        (["toy", '{"mean": 1, "scale": 1}', 0, "--seed", -1], "seed must be a whole number"),
    ],
)
def test_bad_replay_is_refused(arguments, message):
    result = invoke("replay", *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_failure_is_reported_with_its_replay_and_the_exit_code(tmp_path):
    result = invoke("run", "fragile", "--out", tmp_path, "--jobs", 1)
    assert result.exit_code == 1
    assert "2 parts of fragile failed, first: ArithmeticError: replicate [17] went wrong" in result.output
    assert "30 shards computed; everything lies in " in result.output
    line = next(line for line in result.output.splitlines() if "see it fail:" in line)
    assert line.endswith("""python -m simulations replay fragile '{"mean": 1.0, "scale": 1.0}' 17 --seed 0""")
    shown = invoke("replay", "fragile", '{"mean": 1.0, "scale": 1.0}', 17, "--seed", 0)
    assert isinstance(shown.exception, ArithmeticError)
    beside = invoke("replay", "fragile", '{"mean": 1.0, "scale": 1.0}', 16, "--seed", 0)
    assert beside.exit_code == 0
    assert set(json.loads(beside.output)) == {"mean|estimate", "mean|trace"}
