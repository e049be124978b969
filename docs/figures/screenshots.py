"""``python docs/figures/screenshots.py results/reproduce/index.html``: the gallery's pictures, made with Chromium.

One of the sample report, one of what ``make reproduce`` left, each in a wide window and on a phone. Needs the extra
``test``; run it again when the pages' look has changed.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from hook import sample_report
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from kaestat.core.storage import write_atomically

FOLDER = Path(__file__).parent
WINDOWS = {"desktop": (1280, 860), "phone": (400, 860)}
COLORS = 128


def picture(browser: Browser, page: Path, width: int, height: int) -> bytes:
    """The top of a page as a PNG of few colours."""
    with browser.new_context(viewport={"width": width, "height": height}) as context:
        window = context.new_page()
        window.goto(page.resolve().as_uri())
        image = Image.open(io.BytesIO(window.screenshot()))
    buffer = io.BytesIO()
    image.convert("RGB").quantize(COLORS).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def main(reproduced: Path) -> None:
    """Write all pictures beside this file."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        sample = Path(folder) / "report.html"
        sample.write_bytes(sample_report())
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"))
        for name, page in (("analyze", sample), ("reproduce", reproduced)):
            for window, size in WINDOWS.items():
                write_atomically(FOLDER / f"{name}_{window}.png", picture(browser, page, *size))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
