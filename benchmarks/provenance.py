"""What a table of results must say about where it comes from."""

import datetime
import os
import platform
from pathlib import Path

from kaestat.core.provenance import checked_out_commit, installed_version

PACKAGES = ("kaestat", "numpy", "scipy", "pandas", "torch", "verl")


def provenance() -> dict[str, str]:
    """Machine (by its processor, no names or paths) and what else kept it busy, versions, date and git commit."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": checked_out_commit(Path(__file__).parent) or "no git checkout",
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
    } | {package: installed_version(package) or "not installed" for package in PACKAGES}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    fields = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
    family = f" (family {fields['cpu family']}, model {fields['model']})" if "cpu family" in fields else ""
    return fields.get("model name", platform.processor() or "unknown") + family
