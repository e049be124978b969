"""The HTML reports, parsed: what they show and give away is what the files hold, and nothing is fetched."""

import base64
import re

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from report_pages import PARTS, SOURCE, risk_in_thousandths

from kaestat.html_page import Download


def soup(page):
    return BeautifulSoup(page.read_text(), "html5lib")


def rows(table):
    return [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]


def embedded(document):
    """Bytes behind each download, by the name it is shown under."""
    links = document.select("a[download]")
    assert len({link["href"] for link in links}) == len(links)
    return {link.contents[0].strip(): base64.b64decode(link["href"].partition(";base64,")[2]) for link in links}


def test_page_is_well_formed(report_page):
    """html5lib reports what a browser would have to guess."""
    import html5lib

    parser = html5lib.HTMLParser(strict=True)
    parser.parse(report_page.read_text())


def test_everything_a_page_loads_lies_in_it(report_page):
    document = soup(report_page)
    loaded = [tag.get("src") or tag.get("href") for tag in document.select("[src], link")]
    assert loaded and all(address.startswith("data:") for address in loaded)
    assert not re.search(
        r"@import|url\(|https?://(?!www\.w3\.org)", re.sub(r"base64,[^\"]+", "", report_page.read_text())
    )
    policy = document.select_one("meta[http-equiv=Content-Security-Policy]")["content"]
    assert policy.startswith("default-src 'none'; img-src data:")


def test_images_are_drawings_with_a_text_for_those_who_cannot_see_them(report_page):
    images = soup(report_page).select("img")
    assert images
    for image in images:
        assert base64.b64decode(image["src"].partition("base64,")[2]).startswith(b"<?xml")
        assert len(image["alt"]) > 20


def test_downloads_are_the_files_beside_the_page(report_page):
    given = embedded(soup(report_page))
    beside = {path.relative_to(report_page.parent).as_posix() for path in report_page.parent.rglob("*.csv")}
    assert {"provenance.json"} | (beside if report_page.name == "report.html" else set()) <= set(given)
    for name, content in given.items():
        if name != "value_mse.tex":
            assert content == (report_page.parent / name).read_bytes(), name
    assert any(name.endswith(".tex") for name in given) and any(name.endswith(".csv") for name in given)


def test_every_csv_and_tex_file_of_every_part_can_be_downloaded(reproduce):
    given, here = embedded(soup(reproduce)), reproduce.parent
    assert {path.name for path in here.glob("*.csv")} <= set(given)
    assert {path.relative_to(here).as_posix() for path in here.glob("tables/*.tex")} <= set(given)
    assert {section["id"] for section in soup(reproduce).select("section h2")} >= set(PARTS)


def test_latex_table_holds_the_rows_of_the_page(analyze):
    document = soup(analyze)
    tex = embedded(document)["value_mse.tex"].decode()
    body = tex.partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    written = [line.removesuffix(r" \\").replace(r"\_", "_").split(" & ") for line in body.splitlines()]
    shown = [[cell.strip() for cell in row[:2] + row[3:]] for row in rows(document.select_one("table"))[1:]]
    assert [[cell.strip() for cell in row] for row in written] == shown and len(shown) > 15


def test_numbers_of_the_main_table_are_those_of_the_csv(analyze):
    table = rows(soup(analyze).select_one("table"))
    stored = risk_in_thousandths(analyze.parent)
    assert [(row[0], row[1]) for row in table[1:]] == list(stored.items())


def test_dots_stand_in_the_order_of_the_numbers_on_the_axis_that_is_named(analyze):
    document, stored = soup(analyze), pd.read_csv(analyze.parent / "risk.csv")
    dots = [float(circle["cx"]) for circle in document.select("td.drawing circle")]
    assert len(dots) == len(stored) and dots == sorted(dots)
    axis = "logarithmic axis" if stored["ci_low"].min() > 0 else "linear axis"
    assert axis in document.get_text()


def test_name_of_the_log_stays_text(analyze):
    document = soup(analyze)
    assert document.h1.get_text() == f"Baselines on {SOURCE}" and document.title.get_text() == f"Baselines on {SOURCE}"
    assert document.h1.find("b") is None


def test_file_that_a_page_cannot_hold_is_refused():
    with pytest.raises(KeyError):
        assert Download("figure.pdf", b"%PDF").href
