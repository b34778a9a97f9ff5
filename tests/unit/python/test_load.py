"""LOAD through the public API on the fake core: what is restored, and every way to fall back."""

from __future__ import annotations

from typing import Any

import fake_core
import pytest
from fake_framework import Framework
from session_world import SIZES, Engine, World, start

import foundry
from foundry.report import Report


def loaded(engine: Engine) -> dict[int, str]:
    return {n: graph.source for n, graph in engine.graphs.items()}


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


def test_graphs_with_copies_wait_for_the_engines_tensors(world: World) -> None:
    """The driver refuses a copy node whose memory is not mapped yet: the loader is told when it is."""
    world.save()
    settled: list[bool] = []
    engine = world.load(last=lambda engine: settled.append("settle" in fake_core.process.calls))
    assert settled == [False] and fake_core.process.calls.index("start") < fake_core.process.calls.index("settle")
    engine.check()
    assert loaded(engine) == dict.fromkeys(SIZES, "restored")


def test_damaged_content_is_known_before_tensors_are_moved(world: World) -> None:
    world.save()
    engine = world.load(before=lambda engine: setattr(fake_core.process, "bad_content", True), order=("w1", "w0"))
    assert engine.session.report.outcome == "native" and "does not decode" in engine.session.report.reason
    assert not engine.session.report.reseated
    engine.check()
    assert loaded(engine) == dict.fromkeys(SIZES, "native")


def test_allocations_outside_phases_may_differ(world: World) -> None:
    world.save(before=lambda engine: setattr(engine, "junk", engine.framework.alloc(100)))
    keep: list[Any] = []
    engine = world.load(before=lambda e: keep.extend(e.framework.alloc(700) for _ in range(5)))
    engine.check()
    assert loaded(engine) == dict.fromkeys(SIZES, "restored")


def test_a_graph_that_cannot_be_restored_falls_back_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.save()
    engine = world.load(before=lambda engine: fake_core.process.broken.add("decode/16"))
    engine.check()
    assert loaded(engine) == {8: "restored", 16: "native", 32: "restored"}
    assert "CUDA_ERROR_INVALID_VALUE" in engine.session.report.fell_back["decode/16"]
    assert "decode/16" not in engine.session.report.restored
    assert "decode/16 is captured natively" in caplog.text


def test_a_reason_that_graphs_share_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.save()
    original = fake_core.Loader.wait

    def wait(loader: Any, graph: int) -> None:
        if loader.archive.graphs[graph].name != "decode/8":
            raise fake_core.fail("corrupt", "images/ab: the hash is another one. The code image is damaged.")
        original(loader, graph)

    monkeypatch.setattr(fake_core.Loader, "wait", wait)
    engine = world.load()
    engine.check()
    report = engine.session.report
    assert len(set(report.fell_back.values())) == 1
    warnings = [record.getMessage() for record in caplog.records if "is captured natively" in record.getMessage()]
    assert len([w for w in warnings if w.endswith(report.fell_back["decode/16"])]) == len(warnings) == 1
    assert "restored 1 of 3 graphs" in str(report)
    assert str(report).count(report.fell_back["decode/16"]) == 1
    assert "captured natively: decode/16, decode/32: " in str(report)


def test_a_reason_that_names_the_graph_is_said_once_too() -> None:
    why = {n: f"graph decode/{n}, node 2 (kernel k): code image 1: images/ab: its hash is wrong" for n in (8, 16)}
    report = Report("a", "load", "restored", fell_back={f"decode/{n}": reason for n, reason in why.items()})
    (line,) = [line for line in str(report).splitlines() if "captured natively" in line]
    assert (
        line == "captured natively: decode/8, decode/16: node 2 (kernel k): code image 1: images/ab: its hash is wrong"
    )


def test_a_graph_asked_for_late_falls_back_too(world: World) -> None:
    world.save()
    engine = world.load(before=lambda engine: fake_core.process.broken.add("decode/32"), sizes=(8, 16))
    engine.graphs[8].replay()
    late = engine.session.graph("decode/32", lambda: engine.framework.add(engine.x[:32], engine.x[:32]))
    late.replay()
    assert late.source == "native"
    assert "decode/32" in engine.session.report.fell_back


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
        engine.graphs[12] = engine.session.graph(
            "decode/12", lambda: engine.framework.add(engine.x[:12], engine.x[:12])
        )  # type: ignore[index]

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
    with pytest.raises(foundry.FoundryError, match="there is no archive"):
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


def test_exec_budget_is_given_by_argument_or_environment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()
    assert world.load().session.report.execs == 1 and fake_core.process.exec_budget == 0
    world.load(session={"exec_budget": 1 << 20})
    assert fake_core.process.exec_budget == 1 << 20
    monkeypatch.setenv("FOUNDRY_EXEC_BUDGET", "12345")
    world.load()
    assert fake_core.process.exec_budget == 12345
    world.load(session={"exec_budget": 0})
    assert fake_core.process.exec_budget == 0
    for bad in ("-1", "1e6", "all", "٣"):
        monkeypatch.setenv("FOUNDRY_EXEC_BUDGET", bad)
        with pytest.raises(ValueError, match="FOUNDRY_EXEC_BUDGET is"):
            world.load()
    with pytest.raises(ValueError, match="no number of bytes"):
        world.load(session={"exec_budget": -1})
