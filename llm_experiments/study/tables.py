"""Tables of a study on disk: with five digits, and with when and by which code each was made."""

import json
from pathlib import Path

DIGITS = 5


def rounded(rate: float) -> float:
    """A rate as it is read from a table."""
    return float(f"{rate:.{DIGITS}g}")


def origins(path: Path) -> dict[str, dict[str, str]]:
    """When and by which code each table was made; earlier versions kept that once for all tables of a study."""
    if not path.exists():
        return {}
    known = json.loads(path.read_text())
    if "tables" in known:
        return dict(known["tables"])
    own = {key: known[key] for key in ("time", "commit")}
    return {each.name: own for each in sorted(path.parent.glob("*.csv*"))}
