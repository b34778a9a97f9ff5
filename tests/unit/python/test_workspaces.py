"""Workspaces of cuBLAS are given back only where no graph uses them, on a stand-in for PyTorch."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from fake_torch import FakeTorch, torch
from session_world import World

__all__ = ["torch"]  # a fixture


@pytest.fixture
def workspaces(world: World, torch: FakeTorch) -> Any:
    gc.collect()
    from foundry.torch.workspaces import Workspaces

    return Workspaces()


def cleared(torch: FakeTorch) -> int:
    """How often since the last call."""
    found = torch.log.count("clear workspaces")
    torch.log.clear()
    return found


def capture(torch: FakeTorch) -> Any:
    """By code that knows nothing of Foundry."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass
    return graph


def test_without_graphs_they_go(torch: FakeTorch, workspaces: Any) -> None:
    assert workspaces.clear() and cleared(torch) == 1


def test_graph_captured_before_foundry_keeps_them(torch: FakeTorch, world: World) -> None:
    class Subclass(torch.cuda.CUDAGraph):  # type: ignore[misc, name-defined]
        pass

    from foundry.torch.workspaces import Workspaces

    for kind in (torch.cuda.CUDAGraph, Subclass):
        graph = kind()
        workspaces = Workspaces()
        assert not workspaces.clear() and cleared(torch) == 0
        del graph
        assert workspaces.clear() and cleared(torch) == 1, "the graph is gone"


def test_graph_captured_later_keeps_them_as_long_as_it_lives(torch: FakeTorch, workspaces: Any) -> None:
    assert workspaces.clear()
    graph = capture(torch)
    assert cleared(torch) == 1 and not workspaces.clear() and cleared(torch) == 0
    del graph
    assert workspaces.clear()


def test_graphs_with_private_workspaces_do_not_matter(torch: FakeTorch, workspaces: Any) -> None:
    """Also where they are captured before the first search."""
    graphs = []
    for _ in range(3):
        with workspaces.private():
            graphs.append(capture(torch))
        assert cleared(torch) == 2
    assert workspaces.clear()


def test_graph_is_not_private_beside_a_foreign_one(torch: FakeTorch, workspaces: Any) -> None:
    foreign = capture(torch)
    with workspaces.private():
        shared = capture(torch)
    assert cleared(torch) == 0
    # It shares workspaces from now on, so they must stay even when the other one is gone.
    del foreign
    assert not workspaces.clear()
    del shared
    assert workspaces.clear()


def test_graph_that_is_captured_anew_counts_as_what_it_is_now(torch: FakeTorch, workspaces: Any) -> None:
    graph = capture(torch)
    assert not workspaces.clear()
    graph.reset()
    del graph
    with workspaces.private():
        graph = capture(torch)
        graph.capture_begin()
    assert workspaces.clear()
    graph.capture_begin()
    assert not workspaces.clear()


def test_foreign_capture_during_a_private_one(torch: FakeTorch, workspaces: Any) -> None:
    import threading

    foreign: list[Any] = []
    with workspaces.private():
        thread = threading.Thread(target=lambda: foreign.append(capture(torch)))
        thread.start()
        thread.join()
    assert cleared(torch) == 1, "that at the end would take the other thread's"


def test_nothing_is_searched_where_cuda_was_not_used(
    torch: FakeTorch, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foundry.torch.workspaces import Workspaces

    torch.initialized = False
    workspaces = Workspaces()
    torch.initialized = True
    monkeypatch.setattr(gc, "get_objects", None)
    assert workspaces.clear()
    graph = capture(torch)
    assert not workspaces.clear(), graph


def test_frozen_objects_cannot_be_searched(torch: FakeTorch, workspaces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    assert not workspaces.clear()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 0)
    assert workspaces.clear()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    assert workspaces.clear(), "later captures were noticed"


def test_end_of_a_phase(torch: FakeTorch, workspaces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from foundry.torch.pools import ZonePools

    class Pool:
        id = "pool"

    pools = ZonePools(workspaces)
    monkeypatch.setattr(pools, "_new_pool", lambda slot: Pool())
    steps = ["begin pool", "clear workspaces", "end pool", "release pool"]
    for foreign in (False, True):
        if foreign:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            steps.remove("clear workspaces")
        torch.log.clear()
        pools.begin(0, 3)
        pools.end(3)
        assert torch.log == steps


def test_a_paused_phase_keeps_its_pool(torch: FakeTorch, workspaces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from foundry.torch.pools import ZonePools

    class Pool:
        id = "pool"

    pools = ZonePools(workspaces)
    monkeypatch.setattr(pools, "_new_pool", lambda slot: Pool())
    pools.begin(0, 3)
    torch.log.clear()
    pools.pause(3)
    pools.resume(3)
    # Each beginning makes PyTorch count one more user: without the release the pool's segments would never go.
    assert torch.log == ["end pool", "begin pool", "release pool"]
    pools.pause(3)
    with pytest.raises(Exception, match="cannot end"):
        pools.end(3)
    with pytest.raises(Exception, match="cannot pause"):
        pools.pause(3)
    pools.resume(3)
    pools.end(3)
    assert torch.log[-1] == "release pool"
