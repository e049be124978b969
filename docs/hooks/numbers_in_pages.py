"""Numbers in pages come from committed tables while the site is built.

Pages hold Jinja expressions. ``{{ cell("results/tiny/value_mse", "mse", method="kae", step=10) | fixed(2) }}`` is
one number of a table, and fails the build where there is no such row, or more than one.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

ROOT = Path(__file__).parents[2]
ERRORS = ("mcse", "se")


class Number(float):
    """A number of a table with its standard error, or the ends of its interval."""

    error: float
    low: float
    high: float


@cache
def table(path: str) -> pd.DataFrame:
    """The table in ``PATH.csv`` or ``PATH.csv.gz`` below the root; "none" is a method, not a missing number."""
    file = next((ROOT / f"{path}{end}" for end in (".csv", ".csv.gz") if (ROOT / f"{path}{end}").is_file()), None)
    if file is None:
        raise FileNotFoundError(f"{path}: there is no such table, neither .csv nor .csv.gz.")
    return pd.read_csv(file, keep_default_na=False, na_values=[""])


def rows(path: str, /, **where: Any) -> pd.DataFrame:
    """Rows of a table, each column equal to a value, to one of a list, or empty (None)."""
    found = table(path)
    for column, wanted in where.items():
        own = found[column]
        found = found[own.isna() if wanted is None else own.isin(wanted if isinstance(wanted, list) else [wanted])]
    if found.empty:
        raise LookupError(f"{path}: no row with {where}.")
    return found


def cell(path: str, column: str, /, **where: Any) -> Number:
    """The number of the one row that is described."""
    found = rows(path, **where)
    if len(found) > 1:
        raise LookupError(f"{path}: {len(found)} rows with {where}; describe one.")
    row = found.iloc[0]
    number = Number(row[column])
    beside = {"error": [f"{column}_{kind}" for kind in ERRORS] + list(ERRORS)}
    beside |= {end: [f"{column}_{end}", end] for end in ("low", "high")}
    for name, columns in beside.items():
        setattr(number, name, next((float(row[each]) for each in columns if each in row), float("nan")))
    return number


def by(path: str, column: str, key: str, /, **where: Any) -> pd.Series:
    """A column of the rows that are described, by another column."""
    return rows(path, **where).set_index(key)[column]


def mean(numbers: pd.Series) -> Number:
    """The mean with its standard error over what the numbers are of, such as base models."""
    number = Number(numbers.mean())
    number.error = float(numbers.sem())
    return number


def benchmark(quantity: str, case: str | None = None) -> Number:
    """The median of a row of ``benchmarks/results.json``, with the ends of its interval."""
    kept = json.loads((ROOT / "benchmarks" / "results.json").read_text())["benchmarks"].values()
    found = [
        row["value"]
        for each in kept
        for row in each["rows"]
        if row["quantity"] == quantity and case in (None, row["case"])
    ]
    if len(found) != 1:
        raise LookupError(f"benchmarks: {len(found)} rows of {quantity!r}, case {case!r}; describe one.")
    number = Number(found[0]["median"])
    number.low, number.high = found[0]["low"], found[0]["high"]
    return number


def fixed(number: float, places: int = 2) -> str:
    """``1.08``."""
    return f"{number:.{places}f}"


def bare(number: float, places: int = 2) -> str:
    """``.08``, and ``−.08`` with a minus sign."""
    return re.sub(r"^(-?)0\.", r"\1.", fixed(number, places)).replace("-", "−")


def brief(number: float, places: int = 2) -> str:
    """``bare``, with a place more below a tenth."""
    return bare(number, places + (abs(number) < 0.1))


def plus_minus(number: Number, places: int = 2, scale: float = 1.0, form: Callable[..., str] = fixed) -> str:
    """``1.08 ± 0.05``."""
    return f"{form(scale * number, places)} ± {form(abs(scale) * number.error, places)}"


def bracketed(number: Number, places: int = 3) -> str:
    """``1.080 (0.052)``."""
    return f"{fixed(number, places)} ({fixed(number.error, places)})"


def ranged(number: Number, form: str = ".1f") -> str:
    """``1.1 (1.0 – 1.2)``."""
    return f"{number:{form}} ({number.low:{form}} – {number.high:{form}})"


def interval(number: Number) -> str:
    """``.59 [.48, .72]``."""
    return f"{bare(number)} [{bare(number.low)}, {bare(number.high)}]"


def span(numbers: pd.Series, places: int = 2, form: Callable[..., str] = fixed) -> str:
    """``0.16 to 0.23``: the least and the most."""
    return f"{form(numbers.min(), places)} to {form(numbers.max(), places)}"


def two_digits(number: float) -> str:
    """``3,500``, ``68``, ``5.2``."""
    return f"{float(f'{number:.2g}'):,g}"


PAGES = jinja2.Environment(
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    keep_trailing_newline=True,
    comment_start_string="{##",
    comment_end_string="##}",
)
PAGES.filters |= {
    each.__name__: each
    for each in (fixed, bare, brief, mean, plus_minus, bracketed, ranged, interval, span, two_digits)
}
PAGES.globals |= {each.__name__: each for each in (rows, cell, by, mean, benchmark, bare, brief)}


def rendered(markdown: str) -> str:
    """A page with its numbers."""
    return PAGES.from_string(markdown).render()


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put the numbers into a page; mkdocs calls it for each."""
    try:
        return rendered(markdown)
    except Exception as error:
        raise type(error)(f"{page.file.src_uri}: {error}") from error
