"""The site builds without a warning and without the network, and what is built holds together."""

import re
import socket
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.helpers.chromium import MISSING

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Links, anchors and loaded files of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(given[name] for name in ("id", "name") if given.get(name))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in LOADED and given.get(LOADED[tag]):
            self.loaded.append(given[LOADED[tag]])


def build_site(folder: Path) -> dict[Path, Page]:
    """The pages of the site, built with warnings as errors and every connection refused."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(socket.socket, "connect", _refuse)
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return {path: Page(path) for path in folder.rglob("*.html")}


def _refuse(self: socket.socket, address: object) -> None:
    raise OSError(f"the documentation must build without the network; it wanted {address}")


def loaded_from_elsewhere(pages: dict[Path, Page]) -> set[str]:
    return {address for page in pages.values() for address in page.loaded if re.match(r"(https?:)?//", address)}


def dead_links(pages: dict[Path, Page]) -> list[str]:
    """Links to no page or file of the site, or to no anchor."""
    dead = []
    for path, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", address) or path.name == "404.html":
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            if not target.is_file() or (anchor and target in pages and unquote(anchor) not in pages[target].anchors):
                dead.append(f"{path.name} -> {link}")
    return dead


def untranslated_formulas(pages: dict[Path, Page]) -> list[str]:
    left = re.compile(r"arithmatex|\\[(\[][^<]*\\[)\]]")
    texts = {path: re.sub(r"<(pre|code|script).*?</\1>", "", path.read_text(), flags=re.DOTALL) for path in pages}
    return [path.name for path, text in texts.items() if left.search(text)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the built site, and its pages."""
    folder = tmp_path_factory.mktemp("site").resolve()
    return folder, build_site(folder)


@pytest.mark.slow
def test_site_builds_without_warning_or_network_and_its_links_files_and_formulas_are_whole(site):
    _, pages = site
    assert len(pages) > 60
    assert loaded_from_elsewhere(pages) == set()
    assert dead_links(pages) == []
    assert untranslated_formulas(pages) == []


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason="needs Chromium and playwright")
def test_search_finds_pages_in_a_site_opened_from_a_folder(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.goto((site[0] / "methods" / "kae.html").as_uri())
    page.set_default_timeout(60_000)
    page.click("input[name=query]")  # hidden where the page's script has ended with an error
    page.type("input[name=query]", "late rewards")
    first = page.wait_for_selector(".md-search-result__item a")
    assert "guide/late-rewards.html" in first.get_attribute("href")
    page.close()
