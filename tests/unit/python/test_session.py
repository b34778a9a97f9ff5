"""SAVE and LOAD through the public API on the fake core: the state machine and every way to fall back."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import fake_core
import pytest
from session_world import SIZES, Engine, World, start
from fake_framework import Framework

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


def test_load_restores_without_calling_the_function(world: World) -> None:
    world.save()
    engine = world.load()
    assert engine.calls == 0
    assert loaded(engine) == dict.fromkeys(SIZES, "pending")
    engine.check()
    assert loaded(engine) == dict.fromkeys(SIZES, "restored")
    assert engine.calls == 0
    report = engine.session.report
    assert report.outcome == "restored" and report.restored == [f"decode/{n}" for n in SIZES]
    assert report.anchors_in_place == 3 and not report.reseated
    assert fake_core.process.pins == 1 and fake_core.process.sealed


def test_restore_starts_before_any_phase(world: World) -> None:
    world.save()
    engine = world.load(before=lambda engine: engine.framework.log.append(f"started {fake_core.process.calls}"))
    assert "start" in fake_core.process.calls
    fake_core.new_process()
    framework = Framework()
    with world.session(framework, "load"):
        assert "start" in fake_core.process.calls and framework.log == []
    assert engine.session.report.outcome == "restored"


def test_allocations_outside_phases_may_differ(world: World) -> None:
    world.save(before=lambda engine: setattr(engine, "junk", engine.framework.alloc(100)))
    keep: list[Any] = []
    engine = world.load(before=lambda e: keep.extend(e.framework.alloc(700) for _ in range(5)))
    engine.check()
    assert loaded(engine) == dict.fromkeys(SIZES, "restored")


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
    assert engine.session.report.fell_back == {"decode/16": "the archive does not have it"}


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
    assert "Foundry did not see allocated" in session.report.left_out["g"][0]
    assert "outputs is a builtins.object" in session.report.left_out["h"][0]


def test_register_outside_a_phase_is_an_error_on_save(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    with pytest.raises(foundry.FoundryError, match=r"'x' .* was not allocated in a phase"):
        with world.session(framework, "save") as s:
            s.register("x", framework.tensor(bytes(8)))


def test_a_graph_that_cannot_be_restored_falls_back_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.save()
    engine = world.load(before=lambda engine: fake_core.process.broken.add("decode/16"))
    engine.check()
    assert loaded(engine) == {8: "restored", 16: "native", 32: "restored"}
    assert "CUDA_ERROR_INVALID_VALUE" in engine.session.report.fell_back["decode/16"]
    assert "decode/16" not in engine.session.report.restored
    assert "decode/16 is captured natively" in caplog.text


def test_a_graph_that_cannot_be_restored_raises_with_fail(world: World) -> None:
    world.save()
    engine = world.load(
        session={"on_mismatch": "fail"}, before=lambda engine: fake_core.process.broken.add("decode/16")
    )
    engine.graphs[8].replay()
    with pytest.raises(foundry.FoundryError, match="cannot be instantiated"):
        engine.graphs[16].replay()


def test_graph_that_the_archive_lacks_is_captured_at_the_end(world: World) -> None:
    world.save(sizes=(8, 16))
    engine = world.load()
    assert loaded(engine) == {8: "pending", 16: "pending", 32: "native"}
    engine.check()


def test_unused_graphs_are_reported(world: World) -> None:
    world.save()
    engine = world.load(sizes=(8,))
    assert engine.session.report.unused == ["decode/16", "decode/32"]
    engine.check()


def test_wait_decides_every_graph(world: World) -> None:
    world.save()
    engine = world.load(before=lambda engine: fake_core.process.broken.add("decode/16"))
    report = engine.session.wait()
    assert loaded(engine) == {8: "restored", 16: "native", 32: "restored"}
    assert report.restored == ["decode/8", "decode/32"]


def test_first_replay_inside_the_block_finishes(world: World) -> None:
    world.save()

    def replay(engine: Engine) -> None:
        engine.graphs[8].replay()
        assert engine.session.report.outcome == "restored"
        with engine.session.phase("weights"):
            assert engine.framework.zone is None  # placement is over
        engine.graphs[12] = engine.session.graph("decode/12", lambda: engine.framework.add(engine.x[:12], engine.x[:12]))  # type: ignore[index]

    engine = world.load(last=replay)
    assert engine.graphs[12].source == "native"
    assert engine.graphs[32].source == "pending"
    del engine.graphs[12]
    engine.check()


@pytest.mark.parametrize("mode", ["load", "auto"])
def test_missing_archive_is_native_with_a_reason(world: World, mode: str) -> None:
    engine = world.load(mode=mode)
    engine.check()
    assert loaded(engine) == dict.fromkeys(SIZES, "native")
    assert str(world.archive) in engine.session.report.reason
    if mode == "auto":
        assert "foundry run --save" in engine.session.report.reason


def test_missing_archive_fails_with_fail(world: World) -> None:
    with pytest.raises(foundry.FoundryError, match="cannot be read"):
        world.load(session={"on_mismatch": "fail"})


def test_other_gpu_is_refused_before_anything_is_touched(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.save()
    engine = world.load(process={"name": "Other GPU", "sm_count": 108})
    engine.check()
    report = engine.session.report
    assert [(m.field, m.archive, m.here) for m in report.mismatches] == [
        ("gpu_name", "Fake GPU", "Other GPU"),
        ("sm_count", 132, 108),
    ]
    assert fake_core.process.zones == {} and fake_core.process.open_loaders == []
    for word in ("sm_count", "132", "108", "must be equal"):
        assert word in caplog.text
    with pytest.raises(foundry.FoundryError, match="sm_count"):
        world.load(process={"sm_count": 108}, session={"on_mismatch": "fail"})


def test_less_memory_is_a_mismatch_and_more_is_not(world: World) -> None:
    world.save()
    assert world.load(process={"total_memory": 2 << 30}).session.report.outcome == "restored"
    assert world.load(process={"total_memory": 1 << 20}).session.report.outcome == "native"


def test_callers_fields_are_compared(world: World) -> None:
    world.save(session={"fingerprint": {"model": "a"}})
    assert world.load(session={"fingerprint": {"model": "a"}}).session.report.outcome == "restored"
    report = world.load(session={"fingerprint": {"model": "b"}}).session.report
    assert [m.field for m in report.mismatches] == ["model"]
    assert [m.here for m in world.load().session.report.mismatches] == [None]


def test_changed_file_is_refused_with_nothing_mapped(world: World) -> None:
    world.save()
    path = world.archive / "rank_0" / "all.json"
    path.write_text(path.read_text().replace("decode/8", "decode/9"))
    engine = world.load()
    engine.check()
    assert "is not the file that foundry.json lists" in engine.session.report.reason
    assert fake_core.process.zones == {}


def test_occupied_addresses_are_refused(world: World) -> None:
    world.save()
    engine = world.load(prepare=lambda framework: fake_core.zone_open(0, "other", "private"))  # type: ignore[arg-type, return-value]
    engine.check()
    assert "is taken" in engine.session.report.reason
    assert fake_core.process.open_loaders == []


def test_settings_that_bypass_zones(world: World) -> None:
    def expandable(framework: Framework) -> None:
        framework.settings = "expandable"

    world.save()
    engine = world.load(prepare=expandable)
    engine.check()
    assert "expandable segments" in engine.session.report.reason


def test_no_driver(world: World) -> None:
    engine = world.load(process={"driver": "libcuda.so.1 was not found"})
    assert engine.session.report.reason == "libcuda.so.1 was not found"
    with pytest.raises(foundry.FoundryError, match=r"libcuda.so.1 was not found"):
        fake_core.new_process(hook=True, driver="libcuda.so.1 was not found")
        start(world.session(Framework(), "save"), Framework())


def test_auto_saves_then_loads(world: World) -> None:
    assert world.save(mode="auto").session.report.outcome == "saved"
    engine = world.load(mode="auto")
    engine.check()
    assert engine.session.report.outcome == "restored"
    # Under the hook too: a fitting archive is used, not written again.
    assert world.save(mode="auto").session.report.outcome == "restored"


def test_auto_saves_beside_an_archive_of_something_else(world: World) -> None:
    world.save(session={"fingerprint": {"model": "a"}})
    saved = world.save(mode="auto", session={"fingerprint": {"model": "b"}})
    assert saved.session.report.outcome == "saved"
    siblings = sorted(os.listdir(world.archive.parent))
    assert len(siblings) == 2 and siblings[1].startswith("decode.fdry-") and len(siblings[1]) == len("decode.fdry-") + 8
    for model in "ab":
        engine = world.load(mode="auto", session={"fingerprint": {"model": model}})
        assert engine.session.report.outcome == "restored"
    assert world.load(mode="auto", session={"fingerprint": {"model": "c"}}).session.report.outcome == "native"


def test_environment_narrows_auto_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()
    monkeypatch.setenv("FOUNDRY_MODE", "off")
    assert world.load(mode="auto").session.report.outcome == "off"
    assert world.load(mode="load").session.report.outcome == "restored"
    monkeypatch.setenv("FOUNDRY_MODE", "save")
    with pytest.raises(foundry.FoundryError, match="SAVE needs"):
        world.load(mode="auto")


def test_environment_names_the_archive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="FOUNDRY_ARCHIVE"):
        foundry.session()
    monkeypatch.setenv("FOUNDRY_ARCHIVE", str(world.archive))
    fake_core.new_process(hook=True)
    framework = Framework()
    start(foundry.session(mode="save", runtime=framework), framework)
    assert world.archive.exists()


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="'sometimes'"):
        foundry.session("a", "sometimes")
    with pytest.raises(ValueError, match="'maybe'"):
        foundry.session("a", on_mismatch="maybe")
    with pytest.raises(RuntimeError, match="inside its `with` block"):
        foundry.session("a", "off").phase("weights")


def test_one_session_at_a_time(world: World) -> None:
    fake_core.new_process(hook=True)
    framework = Framework()
    with world.session(framework, "save"):
        with pytest.raises(RuntimeError, match="one at a time"), world.session(framework, "save"):
            pass


def test_names_are_used_once(world: World) -> None:
    world.save()
    for mode, hook in (("save", True), ("load", False)):
        fake_core.new_process(hook=hook)
        framework = Framework()
        with pytest.raises(foundry.FoundryError, match="name of its own"), world.session(framework, mode) as s:
            s.graph("g", lambda: None)
            s.graph("g", lambda: None)


def test_exception_during_load_unmaps_and_handles_turn_native(world: World) -> None:
    world.save()
    fake_core.new_process()
    framework = Framework()
    handles: dict[int, Any] = {}

    def stop(engine: Engine) -> None:
        handles.update(engine.graphs)
        raise RuntimeError("engine failed")

    session = world.session(framework, "load")
    with pytest.raises(RuntimeError, match="engine failed"):
        start(session, framework, last=stop)
    assert fake_core.process.open_loaders == [] and framework.zone is None
    assert session.report.outcome == "failed" and "engine failed" in session.report.reason
    handles[8].replay()
    assert handles[8].source == "native"


def test_phase_unknown_to_the_archive_changes_nothing(world: World) -> None:
    world.save()

    def extra(engine: Engine) -> None:
        with engine.session.phase("more"):
            assert engine.framework.zone is None

    engine = world.load(last=extra)
    engine.check()
    assert any("no phase 'more'" in warning for warning in engine.session.report.warnings)


def test_private_phase_is_not_rebuilt(world: World) -> None:
    def warm_up(engine: Engine) -> None:
        with engine.session.phase("warm-up", kind="private"):
            engine.calls += engine.framework.zone is not None

    saved = world.save(last=warm_up)
    assert saved.calls == 3 * len(SIZES) + 1
    engine = world.load(last=warm_up)
    assert engine.calls == 0
    engine.check()


def test_report_is_printable(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "foundry")
    saved = world.save()
    text = str(saved.session.report)
    assert "saved 3 graphs" in text and "1 code image," in text and "capture" in text
    loaded_text = str(world.load().session.report)
    assert "restored 3 graphs" in loaded_text and "3 tensors in place, 0 re-seated" in loaded_text
    assert text in caplog.text
