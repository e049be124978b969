"""The table of what adapters log, as the documentation has it."""

import re
from pathlib import Path

FRAMEWORKS = Path(__file__).parents[2] / "docs" / "frameworks"
LOGGED = frozenset(re.findall(r"^\| `((?:baseline|sampling)/\w+)` \|", (FRAMEWORKS / "index.md").read_text(), re.M))
