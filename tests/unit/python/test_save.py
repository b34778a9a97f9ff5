"""SAVE through the public API on the fake core: what is published, and what is left out or refused."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import fake_core
import pytest
from fake_framework import Framework
from session_world import SIZES, Engine, World, start

import foundry


def loaded(engine: Engine) -> dict[int, str]:
    return {n: graph.source for n, graph in engine.graphs.items()}


def test_save_publishes_and_its_graphs_work(world: World) -> None:
    engine = world.save()
    engine.check()
    assert engine.session.report.outcome == "saved"
    assert engine.session.report.saved == [f"decode/{n}" for n in SIZES]
    document = json.loads((world.archive / "foundry.json").read_text())
    assert document["fingerprint"]["sm_count"] == {"value": 132, "rule": "exact"}
    assert [graph["name"] for graph in document["graphs"]] == engine.session.report.saved
    assert [entry["name"] for entry in document["inventory"]] == ["rank_0/all.json"]
    assert fake_core.process.sealed and fake_core.process.ambient is None
    assert engine.framework.zone is None


def test_save_without_hook_names_the_launcher(world: World) -> None:
    fake_core.new_process(hook=False)
    with pytest.raises(foundry.FoundryError, match="foundry run --save -- python") as caught:
        start(world.session(Framework(), "save"), Framework())
    assert caught.value.kind == "state"
    assert not world.archive.exists()


def test_exception_in_the_block_publishes_nothing(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()

    def stop(engine: Engine) -> None:
        raise KeyboardInterrupt

    session = world.session(framework, "save")
    with pytest.raises(KeyboardInterrupt):
        start(session, framework, last=stop)
    assert list(world.archive.parent.iterdir()) == []
    assert fake_core.process.sealed and framework.zone is None
    assert "KeyboardInterrupt" in session.report.reason
    # The process can go on: the next session works.
    start(world.session(framework, "save"), framework).check()
    assert world.archive.exists()


def test_exception_inside_a_phase_ends_the_phase(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    with pytest.raises(ZeroDivisionError):
        start(world.session(framework, "save"), framework, inside=lambda engine: engine.calls // 0 and None)
    assert framework.zone is None and framework.log == ["begin weights", "end weights"]


def test_failed_capture_resumes_the_phase_and_ends_well(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()

    def broken() -> None:
        raise ValueError("no kernel")

    with world.session(framework, "save") as s, s.phase("weights"):
        with pytest.raises(ValueError, match="no kernel"):
            s.graph("g", broken, warmup=0)
        assert framework.zone is not None
    assert framework.zone is None


def test_failing_write_discards_and_raises(world: World) -> None:
    def fill(engine: Engine) -> None:
        fake_core.process.full_disk = True

    with pytest.raises(foundry.FoundryError, match="no space left"):
        world.save(last=fill)
    assert list(world.archive.parent.iterdir()) == []
    assert fake_core.process.sealed


def test_failing_write_in_auto_leaves_a_working_engine(world: World) -> None:
    def fill(engine: Engine) -> None:
        fake_core.process.full_disk = True

    engine = world.save(mode="auto", last=fill)
    engine.check()
    assert engine.session.report.outcome == "failed" and "no space left" in engine.session.report.reason


def test_unsupported_graph_is_left_out_and_native(world: World, caplog: pytest.LogCaptureFixture) -> None:
    fake_core.new_process(hook=True)
    fake_core.process.unsupported.add("decode/16")
    framework = Framework()
    engine = start(world.session(framework, "save"), framework)
    engine.check()
    assert engine.session.report.left_out == {"decode/16": ["graph decode/16 has a host node between kernels a and b"]}
    assert engine.session.report.saved == ["decode/8", "decode/32"]
    assert "decode/16 is not saved" in caplog.text
    engine = world.load()
    engine.check()
    assert loaded(engine) == {8: "restored", 16: "native", 32: "restored"}
    why = "SAVE left it out: graph decode/16 has a host node between kernels a and b"
    assert engine.session.report.fell_back == {"decode/16": why}


def test_strict_save_raises_for_an_unsupported_graph(world: World) -> None:
    fake_core.new_process(hook=True)
    fake_core.process.unsupported.add("decode/16")
    framework = Framework()
    with pytest.raises(foundry.FoundryError, match="host node"):
        start(world.session(framework, "save", strict=True), framework)
    assert not world.archive.exists()


def noisy(world: World, mode: str) -> tuple[Framework, dict[str, Any], foundry.Session]:
    """Two graphs that share the generator, one that draws twice."""
    fake_core.new_process(hook=mode == "save")
    framework = Framework()
    session = world.session(framework, mode)
    with session as s:
        graphs = {
            "one": s.graph("one", lambda: framework.random(16)),
            "two": s.graph("two", lambda: (framework.random(8), framework.random(8))),
        }
    return framework, graphs, session


def drawn(framework: Framework, graphs: dict[str, Any]) -> list[bytes]:
    """Replays in turns, with eager draws between them."""
    framework.manual_seed(42)
    found = []
    for _ in range(3):
        graphs["one"].replay()
        found.append(graphs["one"].outputs.data)
        found.append(framework.random(8).data)
        graphs["two"].replay()
        found += [tensor.data for tensor in graphs["two"].outputs]
    return found


def test_random_numbers_go_on_as_in_native_replays(world: World) -> None:
    framework, graphs, session = noisy(world, "save")
    assert session.report.saved == ["one", "two"]
    assert (framework.seed, framework.offset) == (0, 2 * 4 + 2 * 8)  # the warm-ups; asking changed nothing
    native = drawn(framework, graphs)
    assert len(set(native)) == len(native) - 3  # the second draw of a graph repeats the first: words are not advanced
    framework, graphs, session = noisy(world, "load")
    assert drawn(framework, graphs) == native
    assert {graph.source for graph in graphs.values()} == {"restored"}
    assert drawn(framework, graphs) == native


def test_graph_whose_generator_words_cannot_be_told_is_left_out(world: World) -> None:
    fake_core.new_process(hook=True)
    fake_core.process.lost_generator = True
    framework = Framework()
    session = world.session(framework, "save")
    with session as s:
        s.graph("noise", lambda: framework.random(8))
        s.graph("plain", lambda: None)
    assert "random numbers" in session.report.left_out["noise"][0]
    assert session.report.saved == ["plain"]
    # Its snapshot is in the file all the same; LOAD does not use it.
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, "load") as s:
        graph = s.graph("noise", lambda: framework.random(8))
        plain = s.graph("plain", lambda: None)
    assert graph.source == "native" and plain.source == "pending"


def test_output_outside_zones_leaves_the_graph_out(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    elsewhere = framework.tensor(bytes(8))
    session = world.session(framework, "save")
    with session as s:
        s.graph("g", lambda: elsewhere)
        s.graph("h", lambda: object())
        s.graph("i", lambda: framework.add(elsewhere, elsewhere))
    assert session.report.saved == ["i"]
    assert "Foundry did not see allocated" in session.report.left_out["g"][0]
    assert "outputs is a builtins.object" in session.report.left_out["h"][0]


@pytest.mark.parametrize("mode", ["save", "auto"])
def test_nothing_is_published_where_every_graph_is_left_out(world: World, mode: str) -> None:
    world.save()
    before = (world.archive / "foundry.json").read_bytes()
    fake_core.new_process(hook=True, sm_count=7)  # for "auto": the archive does not fit
    framework = Framework()
    elsewhere = framework.tensor(bytes(8))
    session = world.session(framework, mode)
    with (
        nullcontext() if mode == "auto" else pytest.raises(foundry.FoundryError, match="none of 2 graphs"),
        session as s,
    ):
        first = s.graph("g", lambda: elsewhere)
        s.graph("h", lambda: object())
    report = session.report
    assert report.outcome == "failed" and report.saved == [] and set(report.left_out) == {"g", "h"}
    assert report.reason.startswith(
        "none of 2 graphs can be restored, so no archive is published; the first: an output"
    )
    assert [path.name for path in world.archive.parent.iterdir()] == [world.archive.name]
    assert (world.archive / "foundry.json").read_bytes() == before  # one that was there stays
    first.replay()  # native


def test_register_outside_a_phase_is_an_error_on_save(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    outside = pytest.raises(foundry.FoundryError, match=r"'x' .* was not allocated in a phase")
    with outside, world.session(framework, "save") as s:
        s.register("x", framework.tensor(bytes(8)))


def test_compact_is_asked_for_by_argument_or_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()
    assert not fake_core.process.compact
    world.save(session={"compact": True})
    assert fake_core.process.compact
    monkeypatch.setenv("FOUNDRY_COMPACT", "1")
    world.save()
    assert fake_core.process.compact
    world.save(session={"compact": False})
    assert not fake_core.process.compact
    monkeypatch.setenv("FOUNDRY_COMPACT", "yes")
    with pytest.raises(ValueError, match="FOUNDRY_COMPACT is 'yes'"):
        world.save()
