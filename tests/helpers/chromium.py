"""The browser that tests of pages use, where there is one."""

import shutil
from importlib.util import find_spec

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [name for name, there in (("Chromium", CHROMIUM), ("playwright", find_spec("playwright"))) if not there]
