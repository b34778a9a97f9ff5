"""Recordings of a start, and the picture that `foundry trace` draws of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from session_world import World
from test_cli import invoke

from foundry import trace_page, tracing
from foundry.tracing import Event

EVENTS = [
    Event("restore", "decode.fdry", "MainThread", 1_000_000, 9_000_000),
    Event("load image", "libtorch.so", "images 0", 1_500_000, 2_500_000, bytes=446_720),
    Event("instantiate", "decode/8", "graphs 0", 3_000_000, 7_000_000, count=368),
]


@pytest.fixture(autouse=True)
def nothing_recorded() -> Iterator[None]:
    yield
    tracing.enable(False)
    tracing._file = None
    tracing._kept.clear()


class Page(HTMLParser):
    """What a browser makes of a page: elements, attributes, scripts, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.text: dict[str, str] = {}
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.text[self._inside[-1]] = self.text.get(self._inside[-1], "") + data
        if self._inside[-1:] == ["script"]:
            self.scripts.append(data)

    def data(self) -> tuple[list[list[Any]], list[str]]:
        """Events and threads as the script reads them."""
        found = re.search(r"^const events = (.*), threads = (\[.*?\]), NAME = 0,", self.scripts[0], re.MULTILINE)
        assert found is not None
        return json.loads(found[1]), json.loads(found[2])


def test_the_page_holds_every_event_and_nothing_from_elsewhere() -> None:
    text = trace_page.page("decode.fdry", EVENTS)
    page = Page(text)
    events, threads = page.data()
    assert threads == ["MainThread", "images 0", "graphs 0"]
    assert events == [
        ["restore", "decode.fdry", 0, 0, 8_000_000, 0, 0],
        ["load image", "libtorch.so", 1, 500_000, 1_500_000, 446_720, 0],
        ["instantiate", "decode/8", 2, 2_000_000, 6_000_000, 0, 368],
    ]
    assert page.tags.count("script") == 1 and not {"link", "img", "iframe"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name in ("src", "href")]
    assert "http" not in text and "@import" not in text
    assert page.text["title"] == "decode.fdry"
    # What the script fills exists.
    ids = {value for name, value in page.attributes if name == "id"}
    assert set(re.findall(r'getElementById\("(\w+)"\)', page.scripts[0])) == ids


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"];alert(1);//',
    "\\",
    "\u2028alert(1)",
    "@EVENTS@",
    "@THREADS@",
    "@TITLE@",
    "`${alert(1)}`",
    "&lt;b&gt;",
    "\x00\x1b[2J",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_leaves_its_place(name: str) -> None:
    plain = Page(trace_page.page("x", [Event("a", "b", "c", 0, 1)]))
    page = Page(trace_page.page(name, [Event(name, name, name, 0, 1), Event("other", name, name + "2", 0, 1)]))
    assert page.tags == plain.tags and len(page.scripts) == 1
    assert "\u2028" not in page.scripts[0]
    events, threads = page.data()
    assert threads == [name, name + "2"]
    assert events == [[name, name, 0, 0, 1, 0, 0], ["other", name, 1, 0, 1, 0, 0]]
    # All of the script but the data is the same.
    without = [
        re.sub(r"(?m)^const events = .*$", "", script.replace("\u2028", "")) for script in page.scripts + plain.scripts
    ]
    assert without[0] == without[1]


def test_a_recording_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "start.json"
    tracing.write(path, EVENTS, dropped=3)
    assert [
        (e.name, e.detail, e.thread, e.begin + 1_000_000, e.end + 1_000_000, e.bytes, e.count)
        for e in tracing.read(path)
    ] == [(e.name, e.detail, e.thread, e.begin, e.end, e.bytes, e.count) for e in EVENTS]
    document = json.loads(path.read_text())
    assert document["otherData"] == {"begin_ns": 1_000_000, "dropped": 3}
    assert {entry["ph"] for entry in document["traceEvents"]} == {"M", "X"}
    tracing.write(path, [])
    assert tracing.read(path) == []


NO_RECORDINGS = [
    "",
    "[]",
    "{}",
    '{"traceEvents": 7}',
    '{"traceEvents": [7]}',
    '{"traceEvents": ["X"]}',
    '{"traceEvents": [{"ph": "X", "name": "a", "tid": 0, "ts": 0, "dur": 1, "args": {}}]}',
    '{"traceEvents": [{"ph": "M", "tid": 0, "args": {"name": "t"}}, '
    '{"ph": "X", "name": "a", "tid": 0, "ts": 1e999, "dur": 1, "args": {}}]}',
    '{"traceEvents": [{"ph": "M", "tid": 0, "args": {"name": "t"}}, '
    '{"ph": "X", "name": "a", "tid": 0, "ts": NaN, "dur": 1, "args": {}}]}',
    '{"traceEvents": [{"ph": "M", "tid": [], "args": {"name": "t"}}]}',
    "[" * 100_000,
]


@pytest.mark.parametrize("text", NO_RECORDINGS, ids=lambda text: text[:40])
def test_what_is_no_recording_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "start.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"start\.json is no trace of Foundry"):
        tracing.read(path)
    result = invoke("trace", str(path), "-o", str(tmp_path / "start.html"))
    assert result.exit_code == 1 and not (tmp_path / "start.html").exists()
    assert "FOUNDRY_TRACE=FILE" in result.stderr


def test_files_that_are_not_there_are_one_sentence(tmp_path: Path) -> None:
    result = invoke("trace", str(tmp_path / "none.json"), "-o", str(tmp_path / "start.html"))
    assert (result.exit_code, result.stderr) == (1, f"foundry: {tmp_path}/none.json: No such file or directory\n")
    tracing.write(tmp_path / "start.json", [])
    result = invoke("trace", str(tmp_path / "start.json"), "-o", str(tmp_path / "none" / "start.html"))
    assert (result.exit_code, result.stderr) == (1, f"foundry: {tmp_path}/none/start.html: No such file or directory\n")


def test_nothing_is_recorded_unasked(world: World) -> None:
    world.save()
    world.load()
    assert not tracing.enabled()
    with tracing.span("x"):
        pass
    tracing.enable(True)
    with tracing.span("y", "of it"):
        pass
    assert [(e.name, e.detail) for e in tracing.take()[0]] == [("y", "of it")]


def test_a_session_is_recorded_with_its_steps_and_what_restoring_threads_did(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.save()
    path = tmp_path / "start.json"
    monkeypatch.setenv(tracing.VARIABLE, str(path))
    engine = world.load()
    engine.session.wait()
    events = tracing.read(path)
    names = {(event.name, event.detail) for event in events}
    assert {("phase", "weights"), ("phase", "inputs")} <= names
    assert ("wait", "") in names
    assert {event.detail for event in events if event.name == "instantiate"} == {f"decode/{n}" for n in engine.graphs}
    assert {event.thread for event in events if event.name == "instantiate"} == {"graphs 0"}
    assert events == sorted(events, key=lambda event: (event.begin, -event.end))
    assert all(0 <= event.begin <= event.end for event in events)


def test_a_recording_that_cannot_be_written_stops_nothing(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.save()
    monkeypatch.setenv(tracing.VARIABLE, str(tmp_path / "absent" / "start.json"))
    engine = world.load()
    engine.session.wait()
    engine.check()
    assert "the trace is not written" in caplog.text


def test_foundry_trace_draws_a_recording(tmp_path: Path) -> None:
    recording, html, copy = (str(tmp_path / name) for name in ("start.json", "start.html", "copy.json"))
    tracing.write(recording, EVENTS)
    assert invoke("trace", recording, "-o", html).exit_code == 0
    events, threads = Page(Path(html).read_text()).data()
    assert [event[0] for event in events] == [event.name for event in EVENTS] and len(threads) == 3
    assert invoke("trace", recording, "-o", copy).exit_code == 0
    assert tracing.read(copy) == tracing.read(recording)


def test_foundry_trace_restores_an_archive(world: World, tmp_path: Path) -> None:
    engine = world.save()
    import fake_core

    fake_core.new_process()
    html = tmp_path / "start.html"
    result = invoke("trace", str(world.archive), "-o", str(html))
    assert result.exit_code == 0, result.output
    events, _ = Page(html.read_text()).data()
    assert [event[1] for event in events if event[0] == "instantiate"] == [f"decode/{n}" for n in engine.graphs]
    assert {"restore", "open", "zones", "wait for graphs", "close"} <= {event[0] for event in events}
    assert not tracing.enabled() and not fake_core.process.open_loaders


def test_foundry_trace_says_what_is_wrong(world: World, tmp_path: Path) -> None:
    html = str(tmp_path / "start.html")
    result = invoke("trace", str(tmp_path / "absent.json"), "-o", html)
    assert result.exit_code == 1 and "absent.json" in result.output
    assert invoke("trace", str(tmp_path), "-o", html).exit_code == 1  # a folder that is no archive
    tracing.write(tmp_path / "start.json", EVENTS)
    result = invoke("trace", str(tmp_path / "start.json"), "-o", str(tmp_path / "absent" / "start.html"))
    assert result.exit_code == 1 and "absent" in result.output
