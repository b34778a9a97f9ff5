"""What goes wrong in the middle of a start: vLLM serves all the same, unless the user wanted an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import fake_core
import pytest
from vllm_world import FULL, MODES, RUNNERS, World, parts_of


@RUNNERS
@MODES
def test_a_session_that_ends_while_graphs_are_handed_over(
    world: World, v2: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.save(v2, mode)
    world.process(MODE="load")
    import foundry

    original, asked = foundry.Session.restored, []

    def restored(session: Any, name: str) -> Any:
        asked.append(name)
        if len(asked) == 2:
            raise OSError("the disk is gone")
        return original(session, name)

    monkeypatch.setattr(foundry.Session, "restored", restored)
    loaded = world.start(world.config(v2, mode))
    assert loaded.captured[-3:] == FULL
    loaded.check(*parts_of(mode))
    assert any("serving natively" in line and "the disk is gone" in line for line in loaded.said)


@RUNNERS
@pytest.mark.parametrize("asked_for", ["save", "auto"])
def test_a_save_that_breaks_off_serves_all_the_same_unless_it_was_asked_for(
    world: World, v2: bool, asked_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.process(hook=True, MODE=asked_for)
    import foundry

    original, adopted = foundry.Session.adopt, []

    def adopt(session: Any, name: str, *args: Any) -> Any:
        adopted.append(name)
        if len(adopted) == 2:
            raise OSError("no space left")
        return original(session, name, *args)

    monkeypatch.setattr(foundry.Session, "adopt", adopt)
    if asked_for == "save":
        with pytest.raises(OSError, match="no space left"):
            world.start(world.config(v2))
    else:
        server = world.start(world.config(v2))
        server.check()
        assert server.captured == FULL and len(adopted) == 2
        assert any("serving natively" in line and "no space left" in line for line in server.said)
    assert not world.archive.exists()
    import torch

    assert torch.cuda.CUDAGraph is torch.CUDAGraph


@RUNNERS
def test_an_archive_that_cannot_be_published(world: World, v2: bool) -> None:
    world.process(hook=True, MODE="auto")
    fake_core.process.full_disk = True
    server = world.start(world.config(v2))
    server.check()
    assert "no space left" in server.said[-1]
    world.process(hook=True, MODE="save")
    fake_core.process.full_disk = True
    with pytest.raises(fake_core.FoundryError, match="no space left"):
        world.start(world.config(v2))


@RUNNERS
@pytest.mark.parametrize("name", ["runner", "weights", "profile", "kv_cache", "warm-up"])
@pytest.mark.parametrize("when", ["opened", "closed"])
@pytest.mark.parametrize("mode", ["load", "auto", "save"])
def test_a_phase_that_breaks(
    world: World, v2: bool, name: str, when: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "load":
        world.save(v2)
    world.process(hook=mode != "load", MODE=mode)
    import foundry

    original = foundry.Session.phase

    @contextmanager
    def breaks(inner: Any) -> Iterator[None]:
        with inner:
            yield
        raise OSError("no addresses are left")

    def phase(session: Any, asked: str, *kind: Any) -> Any:
        if asked != name:
            return original(session, asked, *kind)
        if when == "opened":
            raise OSError("no addresses are left")
        return breaks(original(session, asked, *kind))

    monkeypatch.setattr(foundry.Session, "phase", phase)
    if mode == "save":
        with pytest.raises(OSError, match="no addresses are left"):
            world.start(world.config(v2))
        return
    server = world.start(world.config(v2))
    server.check()
    if mode == "load" and name in ("profile", "warm-up"):
        assert server.log == []  # LOAD does not run those
        return
    assert server.captured == FULL
    assert [line for line in server.said if "natively" in line] == [
        f"serving natively: phase {name}: no addresses are left"
    ]
    assert world.archive.exists() == (mode == "load")


@RUNNERS
def test_a_session_that_does_not_even_end(world: World, v2: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world.process(hook=True, MODE="auto")
    import foundry

    original = foundry.Session.end

    def adopt(session: Any, *args: Any) -> Any:
        raise OSError("the disk is gone")

    def end(session: Any, problem: BaseException | None = None) -> None:
        original(session, problem)
        raise OSError("the driver is gone, too")

    monkeypatch.setattr(foundry.Session, "adopt", adopt)
    monkeypatch.setattr(foundry.Session, "end", end)
    server = world.start(world.config(v2))
    server.check()
    ended, native = server.said[-2:]
    assert ended == "the session did not end well: the driver is gone, too"
    assert native.startswith("serving natively: graph FULL") and native.endswith("the disk is gone")


@RUNNERS
def test_an_archive_with_outputs_of_another_kind(world: World, v2: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world.save(v2, "FULL_AND_PIECEWISE")
    world.process(MODE="load")
    import foundry

    original = foundry.Session.restored

    def restored(session: Any, name: str) -> Any:
        graph = original(session, name)
        return SimpleNamespace(outputs=[], replay=graph.replay) if name.startswith("PIECEWISE") else graph

    monkeypatch.setattr(foundry.Session, "restored", restored)
    server = world.start(world.config(v2, "FULL_AND_PIECEWISE"))
    server.check("FULL", "PIECEWISE")
    assert server.captured[-3:] == FULL
    assert any("serving natively: restore: " in line for line in server.said)


@RUNNERS
@pytest.mark.parametrize("mode", ["load", "auto"])
def test_what_the_plugin_does_not_understand(
    world: World, v2: bool, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode == "load":
        world.save(v2)
    world.process(hook=mode == "auto", MODE=mode)
    from foundry.engines.vllm import support

    def attention_refusal(runner: Any) -> str:
        raise AttributeError("no such thing")

    monkeypatch.setattr(support, "attention_refusal", attention_refusal)
    server = world.start(world.config(v2))
    server.check()
    assert server.captured == FULL
    assert server.said[-1] == "serving natively: refusal: no such thing"
