"""The README says what is true: its code runs, and its table is the registry's."""

import csv
import hashlib
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from kaestat.baselines.registry import DEFAULT_METHOD, METHODS
from kaestat.datasets import simulated_run
from kaestat.report.cli import run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def on_trl(code):
    """Run where TRL is: tests/integrations/trl/test_docs.py."""
    return "kaestat.integrations.trl" in code


@pytest.mark.parametrize("code", [code for code in blocks("python") if not on_trl(code)])
def test_every_python_block_runs_as_it_stands(code, capsys):
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


def test_the_numbers_are_those_of_the_committed_tables():
    rows = re.findall(r"^\| Table (\d), \w+, against ([\w+]+) \| (.*) \| (.*) \| (.*) \|$", README, re.MULTILINE)
    assert len(rows) == 4
    for number, method, paper, tiny, smollm2 in rows:
        key = f"| Reduction vs. {method} (%) |"
        for folder, text in (("tiny", tiny), ("smollm2", smollm2)):
            table = (ROOT / "results" / folder / "tables" / f"llm_table{number}.md").read_text()
            (line,) = [line for line in table.splitlines() if line.startswith(key)]
            cells = sorted((cell.strip() for cell in line.split("|")[2:-1]), key=lambda cell: float(cell.split()[0]))
            assert text == (cells[0] if len(cells) == 1 else f"{cells[0]} to {cells[-1]}")
        with (ROOT / "paper_figures" / "shared" / "data" / f"table{number}_reductions.csv").open() as file:
            printed = [row["printed"] for row in csv.DictReader(file) if row["versus"] == method.lower()]
        assert paper == "{} to {}".format(*(pick(printed, key=float) for pick in (min, max)))


def test_the_numbers_at_the_top_are_those_of_the_committed_tables():
    risk = pd.read_csv(ROOT / "docs" / "figures" / "choice_real_run.csv").set_index("method")
    error = ["{mse:.2f} ± {se:.2f}".format(**1e3 * risk.loc[name, ["mse", "se"]]) for name in (DEFAULT_METHOD, "grpo")]
    law = pd.read_csv(ROOT / "results" / "law" / "smollm2" / "predictions.csv")
    (design,) = law.query("cell == 'free' and step == 0 and metric == 'adam' and design == 'history'").itertuples()
    noise = short(design.ratio, design.low, design.high)
    rows = re.findall(
        r"^\| [^|]* \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", README[: README.index("## Do your")], re.MULTILINE
    )
    (value, group), single = rows[1:]
    assert (value, group) == (f"{error[0]} (the default, `{DEFAULT_METHOD}`)", error[1])
    assert single == (f"{noise} (`kae_eb`)", "1")
    assert f"the error of the default is {risk.loc[DEFAULT_METHOD, 'ratio_to_grpo']:.0%}".replace("%", " %") in README


def short(*numbers):
    """An estimate with its interval, as the README writes it."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*numbers).replace("0.", ".")


def test_the_table_of_designs_is_that_of_the_study():
    gaps = pd.read_csv(ROOT / "results" / "studies" / "columns" / "differences.csv.gz", dtype={"base": str})
    gaps = gaps.query("base == 'all' and endpoint == 'area' and reference == 'kae_eb_1_adam'")
    columns = ["mean", "difference", "se", "p_holm"]
    gaps["p_holm"] = gaps["p_holm"].clip(lower=0.001)
    known = {tuple(round(each, 3) for each in row) for row in gaps[columns].itertuples(index=False)}
    rows = re.findall(r"^\| [^|]+ \| (\.\d+) \| ([+−]\.\d+) ± (\.\d+) \| (?:< )?(\.\d+) \|$", README, re.MULTILINE)
    assert len(rows) == 8
    assert {tuple(float(each.replace("−", "-")) for each in row) for row in rows} <= known


def test_what_is_said_of_the_world_like_a_real_run_is_that_of_the_study():
    gaps = pd.read_csv(ROOT / "results" / "studies" / "workings" / "differences.csv.gz", dtype={"base": str})
    gaps = gaps.query("base == 'all' and endpoint == 'area' and reference == 'kae_eb_1_adam'").set_index("design")
    mean, none = (
        f"{-gaps.loc[name, 'difference']:.3f} ± {gaps.loc[name, 'se']:.3f}".replace("0.", ".")
        for name in ("batch_mean_1_adam", "none_1")
    )
    ahead = f"{mean} ahead of the weighted batch mean and {none} ahead of training without a baseline"
    said = f"Weighted `kae_eb` is {ahead}"
    assert said in " ".join(README.split())


def test_the_picture_is_that_of_the_table():
    table = (ROOT / "docs" / "figures" / "choice_real_run.csv").read_bytes()
    picture = (ROOT / "docs" / "figures" / "real_run.png").read_bytes()
    assert hashlib.sha256(table).hexdigest().encode() in picture, "run python docs/figures/readme_figure.py"


def test_every_kaestat_command_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = simulated_run(n_prompts=30, n_epochs=8).log.frame
    frame[["prompt", "step", "reward"]].to_csv("rewards.csv", index=False)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("kaestat ")]
    assert len(commands) == 6
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / "report" / "report.html").exists()


def test_table_lists_the_ranked_methods_in_the_registry_s_words():
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", README, re.MULTILINE)
    assert rows == [(name, method.summary) for name, method in METHODS.items() if method.simplicity is not None]
