"""The command line gets any words: an answer on stdout, or status 2 with one line that says what was wrong."""

import io
import tempfile
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kaestat import methods
from kaestat.logs.prompt_risks import FewPromptsWarning
from kaestat.logs.readers import FORMATS
from kaestat.report.cli import run
from kaestat.smoothing.kernels import KERNELS
from kaestat.smoothing.selectors import SELECTORS
from tests.hardening.test_fuzz_arguments import SPECIFICATIONS
from tests.hardening.test_fuzz_readers import NAMES, WHOLE_ACCURACIES, WHOLE_CSV, edited
from tests.helpers.contract import mostly

FOLDER = tempfile.TemporaryDirectory(prefix="kaestat-fuzz-")
WORDS = st.sampled_from(["", "-", "--", "-h", "--nope", "nope", "-1", "1e9", "nan", "--json=1", "\N{SNOWMAN}", "../.."])


def option(name: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return values.map(lambda value: [name, value])


HINTS = st.builds(
    "{}={}".format, st.sampled_from(["prompt", "step", "group_size", "format", "path", ""]), NAMES | WORDS
)
COMMON = [
    option("--format", mostly(st.sampled_from(["auto", *FORMATS]), WORDS)),
    option("--hint", mostly(HINTS, WORDS)),
    option("--seed", mostly(st.sampled_from(["0", "7"]), WORDS)),
    st.just(["--json"]),
]
ANALYZE = [
    *COMMON,
    option("--method", mostly(st.sampled_from(methods()), SPECIFICATIONS | WORDS)),
    option("--min-visits", mostly(st.sampled_from(["0", "2"]), WORDS)),
    st.just(["--bandwidth-grid"]),
]
BANDWIDTH = [
    *COMMON,
    option("--selector", mostly(st.sampled_from(sorted(SELECTORS)), WORDS)),
    option("--kernel", mostly(st.sampled_from(sorted(KERNELS)), WORDS)),
]


@st.composite
def command_lines(draw) -> list[str]:
    command = draw(mostly(st.sampled_from(["analyze", "bandwidth", "analyze", "bandwidth", "methods"]), WORDS))
    options = draw(st.lists(st.one_of(BANDWIDTH if command == "bandwidth" else ANALYZE), max_size=3))
    words = [word for part in options for word in part]
    if command in ("analyze", "bandwidth"):
        words += ["--n-boot", draw(st.sampled_from(["0", "40"])), "LOG"]
    if command == "analyze" and not any(word == "--method" for word in words):
        words += ["--method", "kae"]
    return [command, *words, *draw(mostly(st.just([]), st.lists(WORDS, max_size=2)))]


@given(
    words=command_lines(),
    content=mostly(st.sampled_from([WHOLE_CSV, WHOLE_ACCURACIES]), edited(WHOLE_CSV)),
    name=st.sampled_from(["log.csv", "log.json", "log.jsonl", "log.parquet", "log"]),
)
def test_any_command_line_is_answered_or_refused_in_one_line(words, content, name):
    path = Path(FOLDER.name) / name
    path.write_bytes(content)
    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FewPromptsWarning)
        status = run([str(path) if word == "LOG" else word for word in words])
    if status == 0:
        assert out.getvalue().strip() and err.getvalue() == ""
    else:
        assert status == 2 and out.getvalue() == ""
        assert err.getvalue().startswith("kaestat: ") and len(err.getvalue().splitlines()) == 1
