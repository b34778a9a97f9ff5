"""What a capture may contain: restored with equal results, or its graph is left out by name and served natively."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cases import engines
from tests.integration.story.support import GRAPHS, Done, Place, native, restored, same

DEVICE = "a100-40gb"
NOT_SUPPORTED = 801


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Done]:
    place = Place(tmp_path_factory.mktemp("plain"), DEVICE)
    return place, place.save()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, DEVICE)


def left_out(done: Done, *names: str) -> list[str]:
    """The sentences for graphs that were left out; all others were saved."""
    assert done.code == 0 and "error" not in done.results, done.output + str(done.results.get("error"))
    assert done.report["outcome"] == "saved" and done.report["saved"] == [n for n in GRAPHS if n not in names]
    assert set(done.report["left_out"]) == set(names)
    sentences = []
    for name in names:
        (sentence,) = done.report["left_out"][name]
        assert sentence.startswith(f"graph {name}, node "), sentence
        assert "\n" not in sentence
        sentences.append(sentence)
    return sentences


def served(place: Place, save: Done, *names: str) -> None:
    """LOAD restores all but these graphs, which it captures natively, with equal results."""
    done = place.run("load")
    assert done.code == 0 and "error" not in done.results, done.output + str(done.results.get("error"))
    assert done.report["outcome"] == "restored" and done.report["restored"] == [n for n in GRAPHS if n not in names]
    assert set(done.report["fell_back"]) == set(names)
    same(done, save)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (engines.ReadsPinned, "it reads 64 B of host memory at 0x"),
        (engines.WritesPinned, "it writes 64 B of host memory at 0x"),
        (engines.ReadsPageable, "it reads 64 B of host memory at 0x"),
    ],
    ids=["reads pinned", "writes pinned", "reads pageable"],
)
def test_copies_with_host_memory(plain: tuple[Place, Done], place: Place, kind: type, words: str) -> None:
    save = place.run("save", kinds=(kind,))
    (sentence,) = left_out(save, "decode/8")
    assert words in sentence and "register the host range" in sentence
    assert re.search(r"\(memcpy; after kernel [^;]+ \(node \d+\), before kernel mini::add\(", sentence), sentence
    same(save, plain[1])
    served(place, plain[1], "decode/8")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Done]:
    place = Place(tmp_path_factory.mktemp("staged"), DEVICE)
    return place, place.save(kinds=(engines.ThroughHostMemory,))


def test_registered_host_memory(plain: tuple[Place, Done], staged: tuple[Place, Done]) -> None:
    """Copies and kernels use what LOAD's program registers, wherever it lies."""
    place, save = staged
    same(save, plain[1])
    done = place.run("load", kinds=(engines.ThroughHostMemory,))
    restored(done, save)
    assert done.results["notes"]["host"] != save.results["notes"]["host"]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (engines.HostMemoryNotRegistered, "host memory 'staging' was not registered; register_host() it as on SAVE"),
        (engines.HostMemoryOfAnotherName, "host memory 'staging' was not registered"),
        (engines.HostMemoryTooSmall, "host memory 'staging' has 600 B here and had 4.00 KiB on SAVE"),
        (engines.HostMemoryPageable, "is not pinned"),
    ],
    ids=["not registered", "another name", "too small", "pageable"],
)
def test_host_memory_that_does_not_fit(staged: tuple[Place, Done], kind: type, words: str) -> None:
    place, save = staged
    done = place.run("load", kinds=(kind,))
    assert done.report["outcome"] == "restored", done.results["text"]
    assert done.report["restored"] == [name for name in GRAPHS if name != "decode/8"]
    reason = done.report["fell_back"]["decode/8"]
    assert words in reason and reason.startswith("graph decode/8, node "), reason
    same(done, save)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (engines.HostMemoryPageable, "is not pinned; a graph that uses it needs pinned memory"),
        (engines.HostMemoryTwice, "host memory 'again' overlaps 'staging'"),
    ],
    ids=["pageable", "twice"],
)
def test_host_memory_that_cannot_be_registered(place: Place, kind: type, words: str) -> None:
    done = place.run("save", kinds=(kind,))
    assert done.results["error"]["kind"] == "invalid" and not place.archive.exists()
    assert words in done.error


def test_kernel_that_reads_pinned_memory(plain: tuple[Place, Done], place: Place) -> None:
    save = place.run("save", kinds=(engines.KernelReadsPinned,))
    (sentence,) = left_out(save, "decode/8")
    assert "mini::add(" in sentence and "offset 0 of argument 1" in sentence and "pinned host memory" in sentence
    served(place, plain[1], "decode/8")


def test_host_function(plain: tuple[Place, Done], place: Place) -> None:
    save = place.run("save", kinds=(engines.HostFunction,))
    (sentence,) = left_out(save, "decode/8")
    assert "(host function; after kernel " in sentence and "before kernel mini::add(" in sentence
    assert "cannot restore host function nodes" in sentence
    served(place, plain[1], "decode/8")


def test_strict_refuses_a_node_too(place: Place) -> None:
    done = place.run("save", "--strict", kinds=(engines.HostFunction,))
    assert done.code == 0 and done.results["error"]["kind"] == "unsupported"
    assert "graph decode/8" in done.error and not place.archive.exists()


def test_memory_that_a_graph_allocates_and_another_frees(plain: tuple[Place, Done], place: Place) -> None:
    """The node that frees depends on another node than the last reader: refused by its type and neighbours."""
    save = place.run("save", kinds=(engines.GraphOwnedMemory,))
    allocates, frees = left_out(save, "decode/8", "decode/4")
    assert "(memory allocation; after no kernel, before no kernel)" in allocates
    assert re.search(r"\(memory free; after (no kernel|kernel [^;]+), before no kernel\)", frees), frees
    assert "cannot restore memory free nodes" in frees
    served(place, plain[1], "decode/8", "decode/4")


@pytest.mark.parametrize(
    "kind",
    [engines.AsyncScratch, engines.AsyncScratchFreedElsewhere, engines.AsyncScratchFreedOutside],
    ids=["freed in the capture", "freed in another capture", "freed outside"],
)
def test_stream_ordered_scratch_in_a_capture(plain: tuple[Place, Done], place: Place, kind: type) -> None:
    """cuMemAllocAsync inside a capture is served from the graphs zone on SAVE, so LOAD has the same address."""
    save = place.run("save", kinds=(kind,))
    left_out(save)
    same(save, plain[1])
    restored(place.run("load"), plain[1])


def test_generator_in_memory_that_no_zone_holds(plain: tuple[Place, Done], place: Place) -> None:
    save = place.run("save", kinds=(engines.GeneratorElsewhere,))
    assert set(save.report["left_out"]) == {"decode/8"}, save.output
    sentence = next(text for text in save.report["left_out"]["decode/8"] if "random" in text)
    assert "0 words hold the seed and 0 the offset" in sentence
    for what in ("seed", "offset"):
        assert re.search(rf"the {what} is at 0x[0-9a-f]+, which the hook did not place", sentence), sentence
    served(place, plain[1], "decode/8")


def test_graph_that_its_owner_changes_afterwards(plain: tuple[Place, Done], place: Place) -> None:
    """Nodes are copied when the graph is captured: what becomes of it later does not matter."""
    save = place.run("save", kinds=(engines.ChangedAfterwards,))
    left_out(save)
    assert all(token == 0 for row in save.results["tokens"] for token in row[1:])  # it was changed, natively
    done = place.run("load")
    restored(done, plain[1])


def test_code_loaded_in_the_middle_of_a_capture(place: Place) -> None:
    save = place.run("save", kinds=(engines.ModuleInCapture,))
    left_out(save)
    assert save.report["images"] == 4  # each of the two was loaded once more, with variables of its own ...
    assert len(list((place.archive / "images").iterdir())) == 2  # ... and is stored once
    done = place.run("load", kinds=(engines.ModuleInCapture,))
    assert done.report["outcome"] == "restored" and done.report["restored"] == GRAPHS, done.results["text"]
    assert done.results["outputs"] == save.results["outputs"]


def test_code_that_only_a_graph_uses_that_is_left_out(place: Place) -> None:
    """It is not stored: the archive has the two images that the other graphs use."""
    save = place.run("save", kinds=(engines.PinnedMemoryInOwnCode,))
    left_out(save, "decode/8")
    assert save.report["images"] == 2
    inspected = subprocess.run(
        [sys.executable, "-m", "foundry", "inspect", "--json", str(place.archive)], capture_output=True, check=True
    )
    assert len(json.loads(inspected.stdout)["images"]) == 2
    done = place.run("load", kinds=(engines.PinnedMemoryInOwnCode,))
    assert done.report["restored"] == [name for name in GRAPHS if name != "decode/8"], done.results["text"]
    assert done.results["outputs"] == save.results["outputs"]


def test_largest_graph_last(plain: tuple[Place, Done], place: Place) -> None:
    """Graphs share places of a pool that grew under them."""
    save = place.run("save", kinds=(engines.SmallestFirst,))
    assert save.report["saved"] == GRAPHS[::-1] and save.report["left_out"] == {}
    assert sum(1 for nbytes in save.results["notes"]["grown"].values() if nbytes) > 1
    done = place.run("load")
    restored(done, save)
    assert done.results["outputs"] == plain[1].results["outputs"]


def test_event_that_two_graphs_wait_for(plain: tuple[Place, Done], place: Place) -> None:
    """One event of the archive is one event in the process that restores it."""
    save = place.run("save", kinds=(engines.SharedEvent,))
    left_out(save)
    done = place.run("load")
    restored(done, plain[1])
    found = done.results["footprint"]
    assert found["after"]["event"] - found["before"]["event"] == 1


def test_event_that_host_code_waits_for(plain: tuple[Place, Done], place: Place) -> None:
    """It is handed back by name, and it is the one that the graph records."""
    not_ready = 600
    save = place.run("save", kinds=(engines.NamedEvent,))
    left_out(save)
    assert save.results["served"]["event"] == [not_ready, 0] and save.report["warnings"] == []
    done = place.run("load", kinds=(engines.NamedEvent,))
    restored(done, plain[1])
    assert done.results["served"]["event"] == [not_ready, 0]
    assert done.results["served"]["core"] == [False, not_ready, True, True]


def test_engine_with_captures_of_its_own(plain: tuple[Place, Done], place: Place) -> None:
    """What they hold is the same, whoever made them; either can load what the other saved."""
    save = place.run("save", kinds=(engines.OwnCaptures,))
    left_out(save)
    assert save.report["saved"] == GRAPHS
    for kinds in ((engines.OwnCaptures,), ()):
        restored(place.run("load", kinds=kinds), plain[1])
    native(place.run("load", "--field", "flag=1", kinds=(engines.OwnCaptures,)), plain[1])


def test_legacy_ipc_handles(plain: tuple[Place, Done], place: Place) -> None:
    """NOT_SUPPORTED, so that the caller's own fallback works; the handle is left alone."""
    save = place.save(kinds=(engines.AsksForIpcHandle,))
    for zone in ("weights", "ambient"):
        assert save.results["notes"][f"ipc.{zone}"] == [NOT_SUPPORTED, True]
    restored(place.run("load"), plain[1])
