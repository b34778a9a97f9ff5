"""Replays at the end of SAVE: proofs of padding, golden runs; and what LOAD does about verdicts."""

from __future__ import annotations

import gc
import hashlib
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_core
import pytest
from fake_framework import FakeGraph, FakeTensor
from session_world import Engine, World

import foundry
from foundry import verifying
from foundry.report import Verdict

STALE = bytes(range(32))


def with_stale(program: Callable[[Engine, FakeTensor, FakeTensor], Any]) -> Callable[[Engine], None]:
    """Captures a graph "stale" that may touch freed memory: program(engine, output, freed)."""

    def make(engine: Engine) -> None:
        freed = engine.framework.tensor(STALE)

        def function() -> FakeTensor:
            out = engine.framework.add(engine.x, engine.x)
            program(engine, out, freed)
            return out

        engine.graphs[0] = engine.session.graph("stale", function)
        fake_core.process.doubts["stale"] = freed.address
        engine.keep = freed  # type: ignore[attr-defined]

    return make


def record(operation: str, to: int, sources: list[int], nbytes: int = 32) -> Callable[[Engine], None]:
    def act(engine: Engine) -> None:
        if engine.framework.recording is not None:
            engine.framework.recording.append((operation, to, sources, nbytes))

    return act


def test_a_word_that_changes_nothing_is_padding(world: World) -> None:
    engine = world.save(last=with_stale(lambda engine, out, freed: None))
    report = engine.session.report
    assert not report.left_out and "stale" in report.saved
    assert engine.keep.data == STALE  # type: ignore[attr-defined]


def test_a_graph_that_reads_freed_memory_is_left_out(world: World) -> None:
    engine = world.save(
        last=with_stale(lambda engine, out, freed: record("copy", out.address, [freed.address])(engine))
    )
    (sentence,) = engine.session.report.left_out["stale"]
    assert "a kernel reads it" in sentence and "stale" not in engine.session.report.saved
    assert engine.keep.data == STALE  # type: ignore[attr-defined]


def test_a_graph_that_writes_freed_memory_is_left_out(world: World) -> None:
    engine = world.save(
        last=with_stale(lambda engine, out, freed: record("copy", freed.address, [out.address])(engine))
    )
    assert "writes to that memory" in engine.session.report.left_out["stale"][0]


def test_outputs_that_do_not_repeat_prove_nothing(world: World) -> None:
    engine = world.save(last=with_stale(lambda engine, out, freed: record("noise", out.address, [])(engine)))
    assert "differ from replay to replay" in engine.session.report.left_out["stale"][0]


def test_an_error_ends_the_proof_and_nothing_else(world: World) -> None:
    def broken(engine: Engine, out: FakeTensor, freed: FakeTensor) -> None:
        record("copy", 0xDEAD000, [out.address])(engine)

    engine = world.save(last=with_stale(broken))
    assert "illegal address" in engine.session.report.left_out["stale"][0]
    assert engine.session.report.outcome == "saved" and "decode/8" in engine.session.report.saved


def test_strict_fails_for_an_unproved_word(world: World) -> None:
    with pytest.raises(foundry.FoundryError, match="may be a pointer"):
        world.save(
            session={"strict": True},
            last=with_stale(lambda engine, out, freed: record("noise", out.address, [])(engine)),
        )
    assert not world.archive.exists()


def test_replays_leave_no_trace(world: World) -> None:
    """A graph that counts in mutable memory, and the generator."""

    def counting(engine: Engine, out: FakeTensor, freed: FakeTensor) -> None:
        assert engine.x is not None
        record("add", engine.x.address, [engine.x.address, engine.x.address])(engine)

    def setup(engine: Engine) -> None:
        with_stale(counting)(engine)
        assert engine.x is not None
        engine.x.data = bytes([1] * 32)
        engine.framework.seed, engine.framework.offset = 77, 8

    engine = world.save(last=setup, session={"golden": True})
    assert engine.x is not None and engine.x.data == bytes([1] * 32)
    assert (engine.framework.seed, engine.framework.offset) == (77, 8)
    assert not engine.session.report.left_out


def test_golden_runs_are_recorded_for_the_graphs_asked_for(world: World) -> None:
    def last(engine: Engine) -> None:
        assert engine.x is not None
        engine.x.data = bytes(range(32))
        for name in ("one", "two"):
            engine.session.graph(name, lambda: engine.framework.add(engine.x, engine.x), golden=name == "two")

    engine = world.save(last=last)
    assert engine.session.report.golden == ["two"] and list(fake_core.process.golden) == ["two"]
    replays = fake_core.process.golden["two"]
    assert len(replays) > 1 and len(set(replays)) == 1
    every = world.save(session={"golden": True})
    assert every.session.report.golden == every.session.report.saved


def test_golden_runs_of_all_graphs_are_asked_for_by_the_environment_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOUNDRY_GOLDEN", "1")
    every = world.save()
    assert every.session.report.golden == every.session.report.saved != []
    assert world.save(session={"golden": False}).session.report.golden == []
    monkeypatch.setenv("FOUNDRY_GOLDEN", "yes")
    with pytest.raises(ValueError, match="FOUNDRY_GOLDEN is 'yes'"):
        world.save()


def test_a_golden_run_that_fails_is_a_note(world: World) -> None:
    def last(engine: Engine) -> None:
        assert engine.x is not None
        graph = engine.session.graph("g", lambda: engine.framework.add(engine.x, engine.x), golden=True)
        engine.x.data = bytes([1] * 32)

        def fails() -> None:
            assert engine.x is not None
            engine.x.data = bytes([2] * 32)
            raise RuntimeError("no launch")

        graph._native.replay = fails  # type: ignore[union-attr]

    engine = world.save(last=last)
    assert engine.session.report.outcome == "saved" and engine.session.report.golden == []
    assert engine.x is not None and engine.x.data == bytes([1] * 32), "what replays left was not put back"
    assert any("no golden run of graph g: no launch" in warning for warning in engine.session.report.warnings)


def test_golden_runs_find_inputs_as_before_the_replay_that_tells_of_random_numbers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frameworks may have to replay for that, and a graph may write its inputs."""
    generator = FakeGraph.generator

    def replaying(native: FakeGraph) -> Any:
        native.instantiate()
        native.replay()
        native.instantiated = False
        return generator(native)

    def last(engine: Engine) -> None:
        def function() -> FakeTensor:
            return engine.framework.copy_(engine.x, engine.framework.add(engine.x, engine.x))

        assert engine.x is not None
        engine.x.data = bytes([1] * 32)
        engine.session.graph("doubles", function, warmup=0, golden=True)

    monkeypatch.setattr(FakeGraph, "generator", replaying)
    world.save(last=last)
    assert set(fake_core.process.golden["doubles"]) == {hashlib.sha256(bytes([2] * 32)).hexdigest()}


def test_an_input_that_has_no_memory_while_a_graph_is_captured_is_not_read(world: World) -> None:
    def last(engine: Engine) -> None:
        with engine.session.phase("others"):
            other = engine.session.register("other", engine.framework.tensor(bytes(32)), mutable=True)
        address, other.storage.address = other.storage.address, 0
        engine.session.graph("g", lambda: engine.framework.add(engine.x, engine.x))
        other.storage.address = address

    report = world.save(last=last).session.report
    assert report.outcome == "saved" and "g" in report.saved


def test_what_was_kept_of_memory_is_freed_with_the_end_of_save(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the program keeps the session, and its graphs."""
    made = []

    class Saver(fake_core.Saver):
        def __init__(self, device: int) -> None:
            super().__init__(device)
            made.append(weakref.ref(self))

    monkeypatch.setattr(fake_core, "Saver", Saver)
    engine = world.save(session={"golden": True})
    gc.collect()
    assert engine.session.report.outcome == "saved" and [saver() for saver in made] == [None]


# ---- LOAD


def checked(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict) -> None:
    monkeypatch.setattr(verifying, "open_golden", lambda *arguments: object())
    monkeypatch.setattr(verifying, "check", lambda *arguments: (list(verdicts), ["a note"]))


BAD = Verdict("decode/16", "differs", "output 0 by 2")
GOOD = Verdict("decode/8", "equal", "")


def test_a_graph_that_computes_something_else_is_captured_natively(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.save()
    checked(monkeypatch, BAD, GOOD)
    monkeypatch.setenv("FOUNDRY_VERIFY", "1")
    monkeypatch.setenv("FOUNDRY_VERIFY_REPORT", str(tmp_path / "report.json"))
    engine = world.load()
    engine.check()
    report = engine.session.report
    assert {n: graph.source for n, graph in engine.graphs.items()} == {8: "restored", 16: "native", 32: "restored"}
    assert "output 0 by 2" in report.fell_back["decode/16"] and report.verdicts == [BAD, GOOD]
    assert "golden run of decode/16: differs: output 0 by 2" in str(report) and "a note" in report.warnings
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["outcome"] == "restored" and document["archive"] == str(world.archive)
    assert [v["verdict"] for v in document["verdicts"]] == ["differs", "equal"]


def test_on_mismatch_fail_raises(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()
    checked(monkeypatch, BAD)
    with pytest.raises(foundry.FoundryError, match=r"decode/16 .* does not compute what it did"):
        world.load(session={"verify": True, "on_mismatch": "fail"})


def test_golden_runs_that_are_damaged_are_known_before_anything_moves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.save()

    def damaged(*arguments: Any) -> None:
        raise fake_core.fail("corrupt", "rank_0/golden.fdry is damaged")

    monkeypatch.setattr(verifying, "open_golden", damaged)
    engine = world.load(session={"verify": True}, order=("w1", "w0"))
    engine.check()
    assert engine.session.report.outcome == "native" and "golden.fdry" in engine.session.report.reason


def test_a_check_that_fails_leaves_no_graph_to_replay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()

    def fails(*arguments: Any) -> None:
        raise fake_core.fail("driver", "the device is gone")

    monkeypatch.setattr(verifying, "open_golden", lambda *arguments: object())
    monkeypatch.setattr(verifying, "check", fails)
    engines: list[Engine] = []
    with pytest.raises(foundry.FoundryError, match="the device is gone"):
        world.load(session={"verify": True}, last=engines.append)
    assert engines[0].session.report.outcome == "failed"
    with pytest.raises(foundry.FoundryError, match="cannot replay"):
        engines[0].graphs[8].replay()


def test_without_verify_nothing_is_replayed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save()
    monkeypatch.setattr(verifying, "check", lambda *arguments: pytest.fail("it was verified"))
    assert world.load().session.report.outcome == "restored"
    monkeypatch.setenv("FOUNDRY_VERIFY", "1")
    assert world.load(session={"verify": False}).session.report.outcome == "restored"


def test_an_archive_without_golden_runs_says_so(world: World) -> None:
    world.save()
    engine = world.load(session={"verify": True})
    assert engine.session.report.verdicts == [] and engine.session.report.outcome == "restored"
    assert any("save it with golden=True" in warning for warning in engine.session.report.warnings)


def test_a_value_that_is_no_choice_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOUNDRY_VERIFY", "yes")
    with pytest.raises(ValueError, match="FOUNDRY_VERIFY is 'yes'"):
        foundry.session(world.archive, "off")


def lazily(program: Callable[[Engine, FakeTensor, FakeTensor], FakeTensor]) -> Callable[[Engine], None]:
    """Graphs "lazy/0", "lazy/1" and "lazy/2" of program(engine, output, memory), memory that the first forward makes and
    the engine rewrites afterwards."""

    def make(engine: Engine) -> None:
        memory: list[FakeTensor] = []

        def function() -> FakeTensor:
            if not memory:
                memory.append(engine.framework.tensor(bytes([1] * 32)))
            return program(engine, engine.framework.add(engine.x, engine.x), memory[0])

        for i in range(3):
            engine.session.graph(f"lazy/{i}", function)
        memory[0].data = bytes([7] * 32)
        engine.lazy = memory[0]  # type: ignore[attr-defined]

    return make


def test_what_the_program_rewrites_and_nobody_registered_is_a_hidden_input(world: World) -> None:
    engine = world.save(last=lazily(lambda engine, out, memory: engine.framework.add(out, memory)))
    report = engine.session.report
    assert set(report.left_out) == {"lazy/0", "lazy/1", "lazy/2"} and "decode/8" in report.saved
    assert engine.lazy.data == bytes([7] * 32)  # type: ignore[attr-defined]


def test_what_graphs_write_themselves_is_none(world: World) -> None:
    def program(engine: Engine, out: FakeTensor, memory: FakeTensor) -> FakeTensor:
        engine.framework.copy_(memory, out)
        return engine.framework.add(out, memory)

    engine = world.save(last=lazily(program))
    assert not engine.session.report.left_out
    assert engine.lazy.data == bytes([7] * 32)  # type: ignore[attr-defined]


def test_what_graphs_return_is_none(world: World) -> None:
    engine = world.save(last=lazily(lambda engine, out, memory: memory))
    assert not engine.session.report.left_out


def test_memory_that_no_result_depends_on_is_none(world: World) -> None:
    """An address in an argument that no kernel follows."""

    def program(engine: Engine, out: FakeTensor, memory: FakeTensor) -> FakeTensor:
        engine.framework.add(out, memory)
        return out

    engine = world.save(last=lazily(program))
    assert not engine.session.report.left_out
    assert engine.lazy.data == bytes([7] * 32)  # type: ignore[attr-defined]


def test_an_input_whose_two_contents_make_no_difference_is_found_with_others(world: World) -> None:
    def program(engine: Engine, out: FakeTensor, memory: FakeTensor) -> FakeTensor:
        """Of what the engine writes only the lowest bit matters: 1 and 7 are alike."""
        doubled = memory
        for _ in range(7):
            doubled = engine.framework.add(doubled, doubled)
        return engine.framework.add(out, doubled)

    engine = world.save(last=lazily(program))
    assert set(engine.session.report.left_out) == {"lazy/0", "lazy/1", "lazy/2"}
    assert engine.lazy.data == bytes([7] * 32)  # type: ignore[attr-defined]


def test_results_that_do_not_repeat_clear_nothing(world: World) -> None:
    def program(engine: Engine, out: FakeTensor, memory: FakeTensor) -> FakeTensor:
        engine.framework.add(out, memory)
        record("noise", out.address, [])(engine)
        return out

    engine = world.save(last=lazily(program))
    assert "differ from replay to replay" in engine.session.report.left_out["lazy/1"][0]


def test_a_replay_that_fails_clears_nothing(world: World) -> None:
    def program(engine: Engine, out: FakeTensor, memory: FakeTensor) -> FakeTensor:
        engine.framework.copy_(memory, out)
        record("copy", 0xDEAD000, [out.address])(engine)
        return out

    engine = world.save(last=lazily(program))
    assert "the test ended with" in engine.session.report.left_out["lazy/0"][0]


@pytest.mark.parametrize("told", [False, True])
def test_what_a_later_capture_creates_is_watched_when_captures_are_over(world: World, told: bool) -> None:
    def last(engine: Engine) -> None:
        s, framework, memory = engine.session, engine.framework, []

        def function() -> FakeTensor:
            if not memory:
                memory.append(framework.tensor(bytes([1] * 32)))
            return framework.add(engine.x, memory[0])

        s.graph("decode/64", lambda: framework.add(engine.x, engine.x))
        s.graph("decode/128", function)  # the 5th
        if told:
            s.captured()
        memory[0].data = bytes([7] * 32)

    engine = world.save(last=last)
    assert list(engine.session.report.left_out) == (["decode/128"] if told else [])
