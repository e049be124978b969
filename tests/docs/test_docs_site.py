"""The site builds without a warning and without the network, and what is built holds together."""

from __future__ import annotations

import re
import socket
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

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


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built with warnings as errors and every connection refused."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(socket.socket, "connect", _refuse)
        config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        build(config)
    return folder


def _refuse(self: socket.socket, address: object) -> None:
    raise OSError(f"the documentation must build without the network; it wanted {address}")


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    found = {path: Page(path) for path in site.rglob("*.html")}
    assert len(found) > 20
    return found


def test_nothing_is_loaded_from_elsewhere(pages):
    foreign = {address for page in pages.values() for address in page.loaded if re.match(r"(https?:)?//", address)}
    assert not foreign


def test_every_link_and_anchor_leads_somewhere(site, pages):
    dead = []
    for path, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if re.match(r"[a-z]+:", address) or path.name == "404.html":
                continue
            target = (path.parent / unquote(address)).resolve() if address else path
            if not target.is_file() or (anchor and target in pages and unquote(anchor) not in pages[target].anchors):
                dead.append(f"{path.relative_to(site)} -> {link}")
    assert not dead


def test_every_formula_became_mathml(pages):
    for path in pages:
        text = path.read_text()
        assert 'class="arithmatex"' not in text, path
        assert not re.search(
            r"\\[(\[][^<]*\\[)\]]", re.sub(r"<(pre|code|script).*?</\1>", "", text, flags=re.DOTALL)
        ), path
