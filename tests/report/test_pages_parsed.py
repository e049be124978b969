"""The HTML reports, parsed: what they show and give away is what the files hold, and nothing is fetched."""

import base64
import re
from html.parser import HTMLParser

from bs4 import BeautifulSoup

from tests.helpers.report_pages import SOURCE, risk_in_thousandths


def soup(page):
    return BeautifulSoup(page.read_text(), "html.parser")


def rows(table):
    return [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]


def embedded(document):
    """Bytes behind each download, by the name it is shown under."""
    links = document.select("a[download]")
    assert len({link["href"] for link in links}) == len(links)
    return {link.contents[0].strip(): base64.b64decode(link["href"].partition(";base64,")[2]) for link in links}


class Nesting(HTMLParser):
    """Open tags, and what is wrong: a browser would mend it silently, each in its own way."""

    VOID = ("meta", "link", "img", "br", "wbr")

    def __init__(self, html):
        super().__init__()
        self.open, self.faults = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        if len(set(names)) != len(names):
            self.faults.append(f"<{tag}> has an attribute twice")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        """SVG's own shapes close themselves."""

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()} closes nothing")


def test_tags_are_closed_in_order_and_ids_are_unique(report_page):
    nesting = Nesting(report_page.read_text())
    assert nesting.faults == [] and nesting.open == []
    ids = [tag["id"] for tag in soup(report_page).select("[id]")]
    assert len(set(ids)) == len(ids)


def test_everything_a_page_loads_lies_in_it(report_page):
    document = soup(report_page)
    loaded = [tag.get("src") or tag.get("href") for tag in document.select("[src], link")]
    assert loaded and all(address.startswith("data:") for address in loaded)
    assert not re.search(r"@import|url\(|https?://", re.sub(r"base64,[^\"]+", "", report_page.read_text()))
    policy = document.select_one("meta[http-equiv=Content-Security-Policy]")["content"]
    assert policy.startswith("default-src 'none'; img-src data:")


def test_downloads_are_the_files_beside_the_page(analyze, reproduce):
    for page in (analyze, reproduce):
        given = embedded(soup(page))
        assert {path.name for path in page.parent.glob("*.csv")} | {"provenance.json"} <= set(given)
        for name, content in given.items():
            assert content == (page.parent / name).read_bytes(), name


def test_numbers_of_the_main_table_are_those_of_the_csv(analyze):
    table = rows(soup(analyze).select_one("table"))
    stored = risk_in_thousandths(analyze.parent)
    assert [(row[0], row[1]) for row in table[1:]] == list(stored.items())


def test_name_of_the_log_stays_text(analyze):
    document = soup(analyze)
    assert document.h1.get_text() == f"Baselines on {SOURCE}" and document.title.get_text() == f"Baselines on {SOURCE}"
    assert document.h1.find("b") is None
