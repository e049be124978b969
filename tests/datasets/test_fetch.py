"""`fetch`: what is returned has the published checksum, and every way in which it cannot be had says what to do."""

import hashlib
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pooch
import pytest

from kaestat import read_log
from kaestat.datasets import fetch, public

CONTENT = b'{"1": [0.25, 0.5, 0.875], "2": [1.0, 0.125]}'


class Server(ThreadingHTTPServer):
    """A loopback server of one answer, which counts the requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.body, self.announced, self.requests = 200, CONTENT, len(CONTENT), 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(self.server.announced))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("KAESTAT_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    point_to(monkeypatch, server.server_port)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def point_to(monkeypatch, port):
    source = public.Source(f"http://127.0.0.1:{port}/data/run.json", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(public.SOURCES, "run", source)


def test_file_is_downloaded_once_and_can_be_read(server, tmp_path):
    path = fetch("run", cache=tmp_path / "new" / "cache")
    assert path == tmp_path / "new" / "cache" / "run.json" and path.read_bytes() == CONTENT
    assert len(read_log(path).prompts) == 2
    assert fetch("run", cache=str(tmp_path / "new" / "cache")) == path
    assert server.requests == 1


def test_cache_is_the_user_s_by_default(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert fetch("run").parent == pooch.os_cache("kaestat")
    assert server.requests == 1


def test_damaged_copy_in_the_cache_is_replaced(server, tmp_path):
    (tmp_path / "run.json").write_bytes(CONTENT[:-1])
    assert fetch("run", cache=tmp_path).read_bytes() == CONTENT
    assert server.requests == 1


def test_cached_file_needs_no_connection(server, tmp_path, monkeypatch):
    fetch("run", cache=tmp_path)
    point_to(monkeypatch, unused_port())
    assert fetch("run", cache=tmp_path).read_bytes() == CONTENT


def test_file_that_is_not_the_published_one_is_not_kept(server, tmp_path):
    server.body = CONTENT.replace(b"0.5", b"0.6")
    with pytest.raises(
        ValueError, match=r"'run' did not come as published, and was not kept: .* Try again, or download"
    ):
        fetch("run", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [404, 500])
def test_server_s_refusal_is_named(server, tmp_path, status):
    server.status = status
    with pytest.raises(
        ConnectionError, match=f"'run' could not be downloaded: {status} .* or download http.*KAESTAT_DATA"
    ):
        fetch("run", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_connection_lost_midway_leaves_nothing(server, tmp_path):
    server.announced = 2 * len(CONTENT)
    with pytest.raises(ConnectionError, match="'run' could not be downloaded"):
        fetch("run", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_connection_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("KAESTAT_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    point_to(monkeypatch, unused_port())
    with pytest.raises(
        ConnectionError, match=r"Connect and try again, or download http.*/data/run\.json by hand and let"
    ):
        fetch("run", cache=tmp_path)


def test_local_copy_is_taken_without_a_connection(server, tmp_path, monkeypatch):
    local, cache = tmp_path / "local", tmp_path / "cache"
    local.mkdir()
    (local / "run.json").write_bytes(CONTENT)
    monkeypatch.setenv("KAESTAT_DATA", str(local))
    assert fetch("run", cache=cache) == local / "run.json"
    assert server.requests == 0 and not cache.exists()


def test_local_copy_that_differs_is_refused_and_not_passed_over(server, tmp_path, monkeypatch):
    (tmp_path / "run.json").write_bytes(CONTENT + b" ")
    monkeypatch.setenv("KAESTAT_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"run\.json: is not the file published at http.*unset KAESTAT_DATA"):
        fetch("run", cache=tmp_path / "cache")
    assert server.requests == 0


def test_local_folder_without_the_file_leads_to_the_download(server, tmp_path, monkeypatch):
    monkeypatch.setenv("KAESTAT_DATA", str(tmp_path))
    assert fetch("run", cache=tmp_path / "cache").parent == tmp_path / "cache"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"name: unknown 'acc_step_50'; choose one of acc_step_500\."):
        fetch("acc_step_50")


@pytest.mark.parametrize("missing", ["pooch", "requests"])
def test_without_pooch_the_message_names_the_extra(missing):
    code = f"import sys\nsys.modules[{missing!r}] = None\nfrom kaestat.datasets import fetch\nfetch('acc_step_500')"
    environment = {name: value for name, value in os.environ.items() if name != "KAESTAT_DATA"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 1
    assert "ModuleNotFoundError: downloading 'acc_step_500' needs pooch: pip install 'kaestat[data]', or" in ran.stderr


def test_published_sources_are_checked_by_sha256_over_https():
    for source in public.SOURCES.values():
        assert source.url.startswith("https://") and len(bytes.fromhex(source.sha256)) == 32


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
