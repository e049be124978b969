"""The site builds without a warning (dead links and anchors are some) and without the network, and is whole."""

import re
import socket
from pathlib import Path

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from tests.helpers.chromium import MISSING

ROOT = Path(__file__).parents[2]
LOADED = re.compile(r'<(?:script|img|iframe|source)[^>]* src="([^"]+)|<link[^>]* href="([^"]+)')
UNTRANSLATED = re.compile(r"arithmatex|\\[(\[][^<]*\\[)\]]")


def refuse(self: socket.socket, address: object) -> None:
    raise OSError(f"the documentation must build without the network; it wanted {address}")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the site, built with warnings as errors and every connection refused."""
    folder = tmp_path_factory.mktemp("site").resolve()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(socket.socket, "connect", refuse)
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


@pytest.mark.slow
def test_pages_load_nothing_from_elsewhere_and_show_formulas_not_their_source(site):
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    assert len(pages) > 60
    for path, text in pages.items():
        loaded = ["".join(found) for found in LOADED.findall(text)]
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], path.name
        assert not UNTRANSLATED.search(re.sub(r"<(pre|code|script).*?</\1>", "", text, flags=re.DOTALL)), path.name


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason="needs Chromium and playwright")
def test_search_finds_pages_in_a_site_opened_from_a_folder(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.goto((site / "methods" / "kae.html").as_uri())
    page.set_default_timeout(60_000)
    page.click("input[name=query]")  # hidden where the page's script has ended with an error
    page.type("input[name=query]", "late rewards")
    first = page.wait_for_selector(".md-search-result__item a")
    assert "guide/late-rewards.html" in first.get_attribute("href")
    page.close()
