"""A command that is killed leaves whole files alone: every file goes through `kaestat.core.storage.write_atomically`.

That a killed writer leaves nothing under the file's own name is shown in ``tests/core/test_storage.py``, and
that killed commands go on where they stopped in the tests of training and `paper`.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("kaestat", "simulations", "llm_experiments", "paper_figures")
WRITES = re.compile(
    r"\.write_(?:text|bytes)\(|open\([^)\n]*[\"'][wax]b?[\"']|\.savefig\((?!buffer)|\.to_(?:csv|parquet)\((?!index|text)\w"
    r"|p(?:arquet|q)\.write_table\((?!.*buffer)"
)
# What they write lies in a new folder or file of their own, which takes its place when it is whole.
WITHIN_NEW_ONES = {
    "llm_experiments/training/trl/snapshots.py",
    "llm_experiments/training/verl/kept.py",
}


def test_no_file_is_written_in_its_place():
    for code in ('path.write_text("x")', 'open(path, "w")', "frame.to_csv(path)", "pq.write_table(table, path)"):
        assert WRITES.search(code)
    found = {
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if WRITES.search(re.sub(r">>> .*|self\.store\.write_text", "", path.read_text()))
    }
    assert found <= WITHIN_NEW_ONES | {"kaestat/core/storage.py"}
