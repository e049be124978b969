"""Figures to read values from, and lines to copy, as Chromium has them: by pointer, by keys, on paper."""

import json

import pytest

from tests.report.test_pages_in_browser import FAINT, WIDTHS, Visit

KINDS = "h1, h2, h3, p, a, li, th button, td:not(.zero), dt, dd, .u-legend td, .u-legend th, .copy"
PAGES = ["compare"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_pages_with_figures_fit_are_read_and_fetch_nothing(browser, request, name, device, scheme):
    with Visit(browser, request.getfixturevalue(name), width=WIDTHS[device], scheme=scheme) as visit:
        assert visit.window.evaluate("document.documentElement.scrollWidth") == WIDTHS[device]
        assert visit.window.locator("canvas").count() == visit.window.locator(".chart").count() > 0
        looked_at, faint = visit.window.locator(KINDS).evaluate_all(FAINT)
        assert looked_at > 40 and faint == []
        assert visit.fetched() == [] and visit.errors == []


def legend(figure) -> list[str]:
    return [text.replace("\xa0", " ") for text in figure.locator(".u-legend tr:not(.edge) .u-value").all_inner_texts()]


def test_arrow_keys_and_pointer_read_the_numbers_of_the_figure(browser, analyze):
    with Visit(browser, analyze) as visit:
        figure = visit.window.locator(".chart").first
        told = json.loads(figure.get_attribute("data-chart"))
        kae = told["lines"][0]

        def shown(at):
            return f"{kae['y'][at]:.3g} ({kae['low'][at]:.3g} to {kae['high'][at]:.3g})"

        last = len(told["x"]) - 1
        assert legend(figure)[1] == shown(last)
        figure.focus()
        for _ in range(3):
            visit.window.keyboard.press("ArrowLeft")
        assert legend(figure)[:2] == [f"{told['x'][last - 3]:.3g}", shown(last - 3)]
        over = figure.locator(".u-over")
        box = over.bounding_box()
        visit.window.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
        assert legend(figure)[1] == shown(0)


def test_paper_has_the_still_figure_and_the_screen_the_other(browser, analyze):
    with Visit(browser, analyze) as visit:
        still, drawn = visit.window.locator(".chart img").first, visit.window.locator(".chart .uplot").first
        assert drawn.is_visible() and not still.is_visible()
        visit.window.emulate_media(media="print")
        assert still.is_visible() and not drawn.is_visible()
        assert not visit.window.locator(".copy").first.is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_paper_is_light_though_the_screen_is_dark(browser, request, name):
    """Figures too, which are drawn anew: a canvas keeps its colours."""
    with Visit(browser, request.getfixturevalue(name), scheme="dark") as visit:
        picture = "document.querySelector('canvas').toDataURL()"
        on_screen = visit.window.evaluate(picture)
        visit.window.evaluate("dispatchEvent(new Event('beforeprint'))")
        visit.window.emulate_media(media="print")
        assert (
            visit.window.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink')") == "#1d2126"
        )
        assert visit.window.evaluate("style('--line-0')") == "#0072B2"
        assert visit.window.locator(".uplot").first.bounding_box()["width"] <= 640
        on_paper = visit.window.evaluate(picture)
        assert on_paper != on_screen and visit.window.locator(".copy:visible, .pointing:visible").count() == 0
        visit.window.emulate_media(media="screen")
        visit.window.evaluate("dispatchEvent(new Event('afterprint'))")
        assert visit.window.evaluate(picture) == on_screen


@pytest.mark.parametrize("name", ["analyze", "compare"])
def test_nothing_is_wider_than_a_sheet(browser, request, name):
    with Visit(browser, request.getfixturevalue(name), width=703) as visit:  # A4 less margins of 12 mm
        visit.window.evaluate("dispatchEvent(new Event('beforeprint'))")
        visit.window.emulate_media(media="print")
        assert visit.window.evaluate("document.documentElement.scrollWidth") == 703


def test_numbers_of_a_logarithmic_axis_stand_apart_on_a_phone(browser, analyze):
    ticks = [1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000]
    shown = """ticks => [300, 900].map(width => {
      const figure = { scales: { x: { min: 1, max: 1100 } }, bbox: { width: width * devicePixelRatio } };
      return axis("x", 40, true).filter(figure, ticks, 0).filter(tick => tick !== null);
    })"""
    with Visit(browser, analyze) as visit:
        assert visit.window.evaluate(shown, ticks) == [[1, 10, 100, 1000], [tick for tick in ticks if tick != 3]]


def test_without_scripts_the_still_figure_is_there(browser, analyze):
    with Visit(browser, analyze, java_script_enabled=False) as visit:
        assert visit.window.locator(".chart img").first.is_visible() and visit.window.locator(".copy").count() == 0


def test_a_line_is_copied_by_the_keyboard_alone(browser, analyze):
    with Visit(browser, analyze, permissions=["clipboard-read", "clipboard-write"]) as visit:
        line = visit.window.locator("pre.paste").first.inner_text()
        visit.window.keyboard.press("Tab")
        visit.window.keyboard.press("Enter")
        button = visit.window.locator(".copy").first
        button.get_by_text("Copied").wait_for()
        visit.window.evaluate("document.body.append(Object.assign(document.createElement('textarea'), {id: 'pasted'}))")
        visit.window.locator("#pasted").focus()
        visit.window.keyboard.press("ControlOrMeta+v")
        assert visit.window.locator("#pasted").input_value() == line


def test_a_method_in_a_table_leads_to_what_it_is(browser, analyze):
    with Visit(browser, analyze) as visit:
        visit.window.locator("td a", has_text="kalman").first.click()
        entry = visit.window.locator("#method-kalman")
        assert 0 <= entry.bounding_box()["y"] < 900 and entry.inner_text() == "kalman"


@pytest.mark.parametrize("device", WIDTHS)
def test_heads_of_long_names_stay_in_their_columns(browser, compare, device):
    beyond = """heads => heads.filter(head => {
        const [own, cell] = [head.getBoundingClientRect(), head.closest('th').getBoundingClientRect()];
        return own.left < cell.left - 1 || own.right > cell.right + 1;
    }).map(head => head.textContent)"""
    with Visit(browser, compare, width=WIDTHS[device]) as visit:
        assert visit.window.locator("th button").count() > 8
        assert visit.window.locator("th button").evaluate_all(beyond) == []
