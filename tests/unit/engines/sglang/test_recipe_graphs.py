"""Recipes: native graphs captured beside restored ones, on a stand-in of both generations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from fake_start import FakeStart
from mini_sglang import log
from test_adapters import GENERATIONS, NAMES, NOTES, kept, run

from foundry.recipes.engines import sglang_graphs, sglang_probe

Make = Callable[..., tuple[Any, Any, Any]]


@pytest.fixture
def loaded(engine: Make, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The graph runner of an engine that has restored everything."""
    _, _, found = engine(request.param, FakeStart("load", set(NAMES), dict(NOTES)))
    runner = run(found)
    monkeypatch.setattr(sglang_probe, "runner", runner.model_runner)
    monkeypatch.setattr(sys.modules["torch"].cuda, "synchronize", lambda: None, raising=False)
    monkeypatch.setattr(sglang_graphs, "_kept", {})
    log.clear()
    return runner


@pytest.mark.parametrize("loaded", GENERATIONS, indirect=True)
def test_both_kinds_side_by_side(loaded: Any) -> None:
    restored = kept(loaded)
    event = getattr(loaded, "in_graph_metadata_prep_done", None)
    sglang_graphs.capture_again(None, None)
    assert log.count("capture") == 3
    assert kept(loaded) == restored  # in use again
    assert getattr(loaded, "in_graph_metadata_prep_done", None) == event
    sglang_graphs.use_native(None, None)
    native = kept(loaded)
    assert list(native) == list(restored)
    assert all(native[size][0] is not restored[size][0] for size in native)
    assert {size: output.next_token_logits for size, (_, output) in native.items()} == {
        size: f"logits {size}" for size in native
    }
    if event is not None:
        assert loaded.in_graph_metadata_prep_done == "captured event" != event
    sglang_graphs.use_restored(None, None)
    assert kept(loaded) == restored


@pytest.mark.parametrize("loaded", GENERATIONS, indirect=True)
def test_restored_graphs_are_back_where_a_capture_fails(loaded: Any) -> None:
    restored = kept(loaded)
    loaded.model_runner.fails = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        sglang_graphs.capture_again(None, None)
    assert kept(loaded) == restored


@pytest.mark.parametrize("loaded", GENERATIONS, indirect=True)
@pytest.mark.parametrize(("batch", "size"), [(1, 1), (2, 2), (3, 4)])
def test_replays_of_a_batch_size(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, batch: int, size: int
) -> None:
    sglang_graphs.capture_again(None, None)
    monkeypatch.setenv(sglang_probe.FILE_VARIABLE, str(tmp_path / "probe"))
    monkeypatch.setattr(sys.modules["torch"].cuda, "Stream", lambda: None, raising=False)
    monkeypatch.setattr(sys.modules["torch"].cuda, "stream", nullcontext, raising=False)

    def in_turns(restored: Callable[[], None], native: Callable[[], None]) -> dict[str, float]:
        log.clear()
        restored()
        native()
        return {"ratio": 1.0}

    monkeypatch.setattr(sglang_graphs, "in_turns", in_turns)
    sglang_graphs.ask_for(batch)
    sglang_graphs.replay_in_turns(None, None)
    assert log[0] == f"restored replay decode/{size}" and log[1].startswith("native replay")
    (line,) = sglang_probe.read(str(tmp_path / "probe"))
    assert line["row"] == {"batch": batch, "ratio": 1.0}
