"""Fetching parts of wheels: from a server of this test, which counts what it gives."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fetch_sources  # noqa: E402
from pins import Engine, Release  # noqa: E402
from source_seams import Source  # noqa: E402

RECORD = "engine-1.0.dist-info/RECORD"


def wheel(path: Path, modules: dict[str, str], lie: str = "") -> str:
    """Writes a wheel with much that is not wanted; the SHA-256 of its RECORD."""
    content = {name: text.encode() for name, text in modules.items()}
    content["engine/library.so"] = hashlib.shake_128(b"code").digest(6 << 20)
    rows = []
    for name, data in content.items():
        digest = (
            base64.urlsafe_b64encode(hashlib.sha256(b"other" if name == lie else data).digest()).decode().rstrip("=")
        )
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    record = "".join(rows) + f"{RECORD},,\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in content.items():
            made.writestr(name, data)
        made.writestr(RECORD, record)
    return hashlib.sha256(record.encode()).hexdigest()


class Server:
    """One file over HTTP."""

    def __init__(self) -> None:
        self.data = b""
        self.ranges = True
        self.given = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data, size = outer.data, len(outer.data)
                asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
                if asked and outer.ranges:
                    first = int(asked[1]) if asked[1] else max(size - int(asked[2]), 0)
                    last = min(int(asked[2]), size - 1) if asked[1] else size - 1
                    data = data[first : last + 1]
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                outer.given += len(data)
                self.wfile.write(data)

            def log_message(self, *arguments: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/engine.whl"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("FOUNDRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FOUNDRY_VENDOR", raising=False)
    made = Server()
    yield made
    made.close()


MODULES = {"engine/start.py": "def start(size): ...\n", "engine/deep/x.py": "X = 1\n", "engine/other/y.py": "Y = 1\n"}


class Setup:
    """One release that the server has."""

    def __init__(self, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str = "") -> None:
        record = wheel(tmp_path / "engine.whl", MODULES, lie)
        server.data = (tmp_path / "engine.whl").read_bytes()
        self.engine = Engine("engine", "py3-none-any", ("engine/start.py", "engine/deep/"), (Release("1.0", record),))
        self.folder = tmp_path / "out"
        self.asked = 0
        self.known = {self.engine.wheel(self.engine.releases[0]): server.url}
        monkeypatch.setattr(fetch_sources, "links", self._links)
        self._monkeypatch = monkeypatch

    def _links(self, package: str) -> dict[str, str]:
        assert package == "engine"
        self.asked += 1
        return self.known

    def run(self) -> str:
        """What could not be had."""
        self._monkeypatch.setattr(fetch_sources, "ENGINES", {"engine": self.engine})
        self._monkeypatch.setattr(sys, "argv", ["fetch_sources.py", str(self.folder)])
        fetch_sources.main()
        return (self.folder / "unavailable.txt").read_text()

    @property
    def archive(self) -> Path:
        return self.folder / self.engine.archive(self.engine.releases[0])


def test_a_small_part_is_fetched_and_kept(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    assert setup.run() == ""
    with zipfile.ZipFile(setup.archive) as kept:
        assert sorted(kept.namelist()) == sorted([RECORD, "engine/deep/x.py", "engine/start.py"])
        assert kept.read("engine/start.py").decode() == MODULES["engine/start.py"]
    assert server.given < 1 << 21 < len(server.data)
    assert Source.of(setup.archive).tree("engine.start") is not None


def test_what_is_kept_is_not_fetched_again(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    setup.run()
    first = setup.archive.read_bytes()
    setup.archive.unlink()
    server.given, setup.asked = 0, 0
    assert setup.run() == ""
    assert (server.given, setup.asked) == (0, 0)
    assert setup.archive.read_bytes() == first
    # Another part is another archive.
    setup.engine = replace(setup.engine, folders=("engine/",))
    assert setup.run() == "" and server.given > 0


def test_a_wheel_that_is_not_the_pinned_one(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    setup.engine = replace(setup.engine, releases=(Release("1.0", "0" * 64),))
    assert "not the pinned one" in setup.run()
    assert not setup.archive.exists()


def test_a_file_that_is_not_what_its_record_says(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(server, tmp_path, monkeypatch, lie="engine/deep/x.py")
    assert "engine/deep/x.py is not what its RECORD says" in setup.run()
    assert not setup.archive.exists()


def test_a_flipped_byte(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    at = server.data.index(b"engine/start.py") + len("engine/start.py") + 3
    server.data = server.data[:at] + bytes([server.data[at] ^ 1]) + server.data[at + 1 :]
    assert setup.run().startswith("engine 1.0: ")
    assert not setup.archive.exists()


def test_a_server_without_ranges(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    server.ranges = False
    assert "does not answer for parts of a file" in setup.run()


def test_no_server(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    setup.known = dict.fromkeys(setup.known, "http://127.0.0.1:9/engine.whl")
    assert "refused" in setup.run().lower()


def test_a_release_that_the_index_lacks(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    setup.known = {}
    assert "has no engine-1.0-py3-none-any.whl" in setup.run()


def test_what_is_kept_and_damaged_is_fetched_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    setup.run()
    kept = fetch_sources.cache() / setup.archive.name
    good = kept.read_bytes()
    for bad in (b"no archive", good[:-40]):
        kept.write_bytes(bad)
        assert setup.run() == ""
        assert kept.read_bytes() == setup.archive.read_bytes() == good


def test_nothing_is_fetched_with_vendored_files(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    monkeypatch.setenv("FOUNDRY_VENDOR", str(tmp_path / "vendor"))
    assert "FOUNDRY_VENDOR is set" in setup.run()
    assert (server.given, setup.asked) == (0, 0)
    assert not setup.archive.exists()


def rewrite(path: Path, change: dict[str, bytes | None]) -> None:
    """An archive with other content under these names, or without them."""
    with zipfile.ZipFile(path) as archive:
        content: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    fetch_sources.write(path, {name: data for name, data in {**content, **change}.items() if data is not None})


def test_vendored_sources_are_used_if_they_are_whole(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup(server, tmp_path, monkeypatch)
    setup.folder = tmp_path / "vendor/engine-sources"
    assert setup.run() == ""
    vendored = setup.archive
    good = vendored.read_bytes()
    setup.folder = tmp_path / "out"
    monkeypatch.setenv("FOUNDRY_VENDOR", str(tmp_path / "vendor"))
    server.given, setup.asked = 0, 0
    assert setup.run() == "" and setup.archive.read_bytes() == good
    setup.archive.unlink()
    for change in (
        {"engine/start.py": b"def start(other): ...\n"},
        {"engine/deep/x.py": None},
        {"engine/more.py": b""},
        {RECORD: b"engine/start.py,,\n"},
        {RECORD: None},
    ):
        rewrite(vendored, change)
        assert "does not have it whole" in setup.run(), change
        assert not setup.archive.exists()
        vendored.write_bytes(good)
    assert (server.given, setup.asked) == (0, 0)
