"""The requirements of GPU nodes: pip finds versions that fit together. It asks an index (make check-requirements)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import llm_experiments

FOLDER = Path(llm_experiments.__file__).parent / "requirements"
UNREACHABLE = ("ConnectionError", "Connection broken", "Failed to establish", "(from versions: none)", "Read timed out")


@pytest.mark.slow
@pytest.mark.skipif("KAESTAT_NETWORK" not in os.environ, reason="asks a package index: make check-requirements")
@pytest.mark.skipif(sys.platform != "linux" or not (3, 11) <= sys.version_info < (3, 13), reason="no wheels for this")
@pytest.mark.parametrize("backend", ["trl", "verl"])
def test_the_versions_of_gpu_nodes_fit_together(backend, tmp_path):
    file, report = FOLDER / f"{backend}-gpu.txt", tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary", "torch,vllm"]
    # CI pins a torch for itself.
    environment = {name: value for name, value in os.environ.items() if name != "PIP_CONSTRAINT"}
    found = subprocess.run(
        [*command, "--quiet", "--report", str(report), "-r", str(file)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode and any(sign in found.stderr for sign in UNREACHABLE):
        pytest.skip("no package index answers, or it has no wheel for this platform")
    assert found.returncode == 0, found.stderr[-2000:]
    chosen = {item["metadata"]["name"].lower() for item in json.loads(report.read_text())["install"]}
    assert {"torch", "vllm", backend} <= chosen and "flash-attn" not in chosen
