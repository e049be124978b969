"""The HTML reports as Chromium shows them: sorting, downloads, no requests, nothing wider than a phone."""

import pytest

from tests.helpers.report_pages import risk_in_thousandths

WIDTHS = {"phone": 400, "desktop": 1280}
FAINT = """
elements => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const luminance = color => channels(color).slice(0, 3)
    .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const ground = element => {
    const color = getComputedStyle(element).backgroundColor;
    return channels(color)[3] === 0 ? ground(element.parentElement) : color;
  };
  const contrast = element => {
    const pair = [luminance(getComputedStyle(element).color), luminance(ground(element))];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  };
  return [elements.length, elements.filter(e => contrast(e) < 4.5).map(e => e.outerHTML)];
}
"""
KINDS = "h1, h2, p, a, li, .headline, .caption, .downloads span, .verdict, .evidence, th button, td:not(.zero), dt, dd"


class Visit:
    """A page in a browser window, with every request and every error."""

    def __init__(self, browser, page, *, width=1280, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.requests, self.errors = [], []
        self.context.route("**/*", self._answer)
        self.window = self.context.new_page()
        self.window.on("pageerror", lambda error: self.errors.append(str(error)))
        self.window.on("console", lambda message: self.errors.append(message.text))
        self.address = page.as_uri()
        self.window.goto(self.address)

    def _answer(self, route):
        self.requests.append(route.request.url)
        route.continue_() if route.request.url == self.address else route.abort()

    def fetched(self):
        """What was asked for besides the page itself."""
        return [url for url in self.requests if url != self.address]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def column(table, k):
    return table.evaluate("(table, k) => [...table.tBodies[0].rows].map(row => row.cells[k].textContent)", k)


def sorted_heads(table):
    return table.evaluate("t => [...t.querySelectorAll('[aria-sort]')].map(h => h.getAttribute('aria-sort'))")


@pytest.mark.parametrize("device", WIDTHS)
def test_nothing_overflows_is_fetched_or_fails(browser, report_page, device):
    with Visit(browser, report_page, width=WIDTHS[device]) as visit:
        for details in visit.window.locator("details").all():
            details.evaluate("element => { element.open = true }")
        for button in visit.window.locator("th button").all():
            button.evaluate("element => element.click()")
        root = "document.documentElement"
        assert visit.window.evaluate(f"{root}.scrollWidth") == WIDTHS[device]
        assert visit.fetched() == [] and visit.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_the_contrast_that_readers_need(browser, report_page, scheme):
    """4.5 to 1, as WCAG 2 asks of text."""
    with Visit(browser, report_page, scheme=scheme) as visit:
        looked_at, faint = visit.window.locator(KINDS).evaluate_all(FAINT)
        assert looked_at > 50 and faint == []


def test_main_table_sorts_by_its_numbers_and_goes_back(browser, analyze):
    stored = risk_in_thousandths(analyze.parent)
    with Visit(browser, analyze) as visit:
        table = visit.window.locator("table.sortable").first
        names = list(stored.index)
        assert column(table, 0) == names and sorted_heads(table) == []
        mse = table.locator("th").nth(1).locator("button")
        mse.click()
        assert sorted_heads(table) == ["ascending"] and list(map(float, column(table, 1))) == sorted(map(float, stored))
        mse.click()
        assert sorted_heads(table) == ["descending"]
        assert list(map(float, column(table, 1))) == sorted(map(float, stored), reverse=True)
        assert column(table, 0)[0] == names[-1]
        mse.click()
        assert sorted_heads(table) == [] and column(table, 0) == names
