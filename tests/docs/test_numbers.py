"""Numbers of pages: they come from committed tables, which are what the committed scripts measure."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from kaestat import read_log
from tests.helpers.hooks import hook

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "figures"
REAL = Path(os.environ.get("KAESTAT_DATA", "")) / "acc_step_500_dev.json"
WITH_NUMBERS = [page for page in sorted(DOCS.rglob("*.md")) if re.search(r"\{[{%]", page.read_text())]
TABLE = "docs/figures/choice_real_run"


NUMBERS = hook("numbers_in_pages")


def table(name: str) -> pd.DataFrame:
    return pd.read_csv(FIGURES / f"{name}.csv")


def same(found: pd.DataFrame, kept: str) -> None:
    pd.testing.assert_frame_equal(found.reset_index(drop=True), table(kept), rtol=1e-4, check_dtype=False)


def test_every_number_of_a_page_is_found():
    assert len(WITH_NUMBERS) > 10
    for page in WITH_NUMBERS:
        source = SimpleNamespace(file=SimpleNamespace(src_uri=page.name))
        shown = NUMBERS.on_page_markdown(page.read_text(), page=source)
        assert not re.search(r"\{[{%]|\bnan\b", shown), page


def test_a_number_is_that_of_the_one_row_with_its_error_and_ends():
    number = NUMBERS.cell("results/tiny/gradient_mse_debiased", "mse", step=10, method="kae")
    row = pd.read_csv(DOCS.parent / "results/tiny/gradient_mse_debiased.csv").query("step == 10 and method == 'kae'")
    assert (number, number.error) == (row["mse"].item(), row["se"].item())
    where = {"cell": "free", "step": 0, "metric": "adam", "design": "weighted_history"}
    ratio = NUMBERS.cell("results/law/smollm2/predictions", "ratio", **where)
    assert ratio.low < ratio < ratio.high < 1
    assert NUMBERS.interval(ratio) == ".73 [.50, .86]" and NUMBERS.fixed(ratio) == "0.73"
    assert (
        NUMBERS.bare(-0.0123, 3) == "−.012" and NUMBERS.bare(10.25) == "10.25" and NUMBERS.two_digits(3456.0) == "3,500"
    )


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('{{ cell("TABLE", "mse", method="nobody") }}', LookupError, "no row with {'method': 'nobody'}"),
        ('{{ cell("results/none", "mse") }}', FileNotFoundError, "no such table"),
        ("{{ cells }}", Exception, "'cells' is undefined"),
    ],
)
def test_a_number_that_is_not_there_fails_the_build_with_the_page(text, error, message):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="guide/some.md"))
    with pytest.raises(error, match=f"guide/some.md: .*({message})"):
        NUMBERS.on_page_markdown(text.replace("TABLE", TABLE), page=page)


def test_curves_are_what_the_script_measures():
    same(hook("choice_numbers", "figures").curves(), "choice_curves")


@pytest.mark.slow
def test_map_is_what_the_script_measures():
    same(hook("choice_numbers", "figures").choice_map(), "choice_map")


if REAL.is_file():

    @pytest.mark.slow
    def test_real_run_is_what_the_script_measures():
        found = hook("choice_numbers", "figures").real_run(read_log(REAL))
        same(found[found["method"].isin(table("choice_real_run")["method"])], "choice_real_run")


def test_example_on_large_groups_uses_the_measured_numbers():
    """A page's code is run as it stands, so its numbers stand in it."""
    rows = re.search(r"in \[(\(2, .*?)\]:", (DOCS / "choose.md").read_text())[1]
    curves = table("choice_curves").query("axis == 'group_size'").pivot_table("mse", index="at", columns="method")
    for size, kae, grpo in re.findall(r"\((\d+), ([\d.]+), ([\d.]+)\)", rows):
        np.testing.assert_allclose([float(kae), float(grpo)], 1e3 * curves.loc[float(size), ["kae", "rloo"]], atol=5e-3)
