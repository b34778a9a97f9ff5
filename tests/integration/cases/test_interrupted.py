"""A SAVE that something ends in the middle: nothing is published, nothing stays pinned, and the process can go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cases import engines
from tests.integration.story.support import GRAPHS, Done, Place, restored, same

DEVICE = "a100-40gb"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Done]:
    place = Place(tmp_path_factory.mktemp("plain"), DEVICE)
    return place, place.save()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, DEVICE)


INTERRUPTIONS = [
    (engines.ByException, "RuntimeError", "the model has a bug"),
    (engines.BySignal, "KeyboardInterrupt", ""),
    (engines.ByInvalidCall, "DriverError", "CUDA_ERROR_STREAM_CAPTURE"),
    (engines.ByMemory, "OutOfMemory", "no memory for a segment"),
]
by_interruption = pytest.mark.parametrize(
    ("kind", "error", "words"), INTERRUPTIONS, ids=lambda value: value.__name__ if isinstance(value, type) else ""
)


@by_interruption
def test_nothing_is_published_and_the_process_serves_natively(
    plain: tuple[Place, Done], place: Place, kind: type, error: str, words: str
) -> None:
    done = place.run("save", kinds=(kind,))
    assert done.code == 0, done.output
    assert done.results["error"]["kind"] == error and words in done.error
    assert done.report["outcome"] == "failed" and error in done.report["reason"]
    assert done.report["saved"] == [] and [path.name for path in place.folder.iterdir()] == ["save.json"]
    same(done, plain[1])


@by_interruption
def test_another_save_in_the_same_process_is_whole(
    plain: tuple[Place, Done], place: Place, kind: type, error: str, words: str
) -> None:
    """No pool, no zone and no capture of the first one is in its way; a fresh process loads what it publishes."""
    done = place.run("save", "--again", kinds=(kind,))
    assert done.code == 0, done.output
    assert done.results["error"]["kind"] == error
    assert done.results["again"]["outcome"] == "saved" and done.results["again"]["saved"] == GRAPHS
    assert done.results["again"]["left_out"] == {}
    same(done, plain[1])
    loaded = place.run("load")
    restored(loaded, plain[1])


def test_journal_of_another_save_is_of_that_save(place: Place, tmp_path: Path) -> None:
    """`foundry diff` does not take allocations of the abandoned one for missing."""
    done = place.run("save", "--again", kinds=(engines.ByException,), FOUNDRY_JOURNAL="sizes")
    assert done.results["again"]["outcome"] == "saved", done.output
    journal = tmp_path / "load.journal"
    done = place.run("load", FOUNDRY_JOURNAL="sizes", FOUNDRY_JOURNAL_FILE=str(journal))
    assert done.report["outcome"] == "restored" and done.report["warnings"] == []
    found = subprocess.run(
        [sys.executable, "-m", "foundry", "diff", "--json", str(place.archive), str(journal)],
        capture_output=True, text=True, timeout=60, check=False, env=place.environment(False),
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    zones = json.loads(found.stdout)["zones"]
    assert {zone["zone"] for zone in zones} == {"weights", "kv_cache", "buffers"}
    assert all(zone["first"] is None for zone in zones), zones


def test_an_archive_that_was_there_stays(plain: tuple[Place, Done], place: Place) -> None:
    save = place.save()
    before = {path: path.read_bytes() for path in place.archive.rglob("*") if path.is_file()}
    for kind in (engines.ByException, engines.ByKill, engines.KilledWhileWriting):
        place.run("save", kinds=(kind,))
        assert {path: path.read_bytes() for path in place.archive.rglob("*") if path.is_file()} == before
    restored(place.run("load"), save)


def test_killed_in_a_capture(plain: tuple[Place, Done], place: Place) -> None:
    done = place.run("save", kinds=(engines.ByKill,))
    assert done.code == -signal.SIGKILL
    assert list(place.folder.iterdir()) == []


def test_killed_while_writing(plain: tuple[Place, Done], place: Place) -> None:
    """What is left of it is no archive, the next SAVE is not disturbed, and `foundry gc` finds it."""
    done = place.run("save", kinds=(engines.KilledWhileWriting,))
    assert done.code == -signal.SIGKILL
    assert not place.archive.exists()
    (left,) = place.folder.iterdir()
    gc = [sys.executable, "-m", "foundry", "gc", str(place.archive)]
    found = subprocess.run(gc, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0 and left.name in found.stdout, found.stdout + found.stderr
    assert not left.exists()
    save = place.save()
    restored(place.run("load"), save)


def test_interrupted_load_serves_natively(plain: tuple[Place, Done]) -> None:
    """An engine that raises while it loads: what was restored is let go, and the process goes on."""
    place, save = plain
    done = place.run("load", kinds=(engines.RaisesWhileLoading,))
    assert done.code == 0 and done.results["error"]["kind"] == "RuntimeError", done.output
    assert done.report["outcome"] == "failed"
    after = done.results["footprint"]["after"]
    assert after["zones"].get("graphs", 0) == 0 and after["exec"] == 0, after
    same(done, save)
