"""foundry.torch's captures on a stand-in for PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
from fake_torch import FakeTorch, torch
from session_world import World

import foundry

__all__ = ["torch"]  # a fixture


class Pools:
    def graphs(self, slot: int) -> str:
        return f"pool of {slot}"


@pytest.fixture
def capturer(world: World, torch: FakeTorch) -> Any:
    from foundry.torch.capture import Capturer
    from foundry.torch.workspaces import Workspaces

    return Capturer(0, Pools, Workspaces())  # type: ignore[arg-type]


def test_kept_graph_hands_itself_on_before_it_is_instantiated(torch: FakeTorch) -> None:
    from foundry.torch.kept_graph import KeptGraph

    graph = KeptGraph(lambda made: torch.log.append(f"captured {made is graph} {made.execs} {made.raw_cuda_graph()}"))
    assert isinstance(graph, torch.cuda.CUDAGraph)
    with torch.cuda.graph(graph):
        pass
    assert torch.log == ["capture_begin", "capture_end", "captured True 0 77", "instantiate"]


def test_kept_graph_is_instantiated_once(torch: FakeTorch) -> None:
    """The snapshot may have to replay it; the engine does not know."""
    from foundry.torch.kept_graph import KeptGraph

    graph = KeptGraph()
    graph.captured = lambda made: made.instantiate()
    for _ in range(2):
        with torch.cuda.graph(graph):
            pass
        graph.instantiate()
        assert graph.execs == 1
        graph.reset()


def test_kept_graph_takes_the_place_of_an_ordinary_one(torch: FakeTorch) -> None:
    from foundry.torch.kept_graph import KeptGraph

    for graph in (KeptGraph(), KeptGraph(keep_graph=False)):
        assert graph.kept  # type: ignore[attr-defined]
        graph.capture_end()
        assert graph.execs == 1


def test_callback_that_raises_ends_the_capture(torch: FakeTorch) -> None:
    from foundry.torch.kept_graph import KeptGraph

    def refuse(graph: KeptGraph) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), torch.cuda.graph(KeptGraph(refuse)):
        pass
    assert "instantiate" not in torch.log


def test_graph_that_pytorch_did_not_keep_is_refused_before_it_is_replayed(torch: FakeTorch, capturer: Any) -> None:
    from foundry.torch.capture import TorchGraph

    graph = TorchGraph(torch.cuda.CUDAGraph(), None, 0, True)
    for ask in (graph.raw, graph.generator):
        with pytest.raises(foundry.FoundryError, match=r"keep_graph=True\): capture it with .*KeptGraph") as caught:
            ask()
        assert caught.value.kind == "unsupported"
    assert "replay" not in torch.log


def test_generator_of_a_kept_graph(torch: FakeTorch, capturer: Any) -> None:
    from foundry.torch.capture import TorchGraph

    torch.generator.manual_seed(5)
    for drawn in (0, 8):
        torch.drawn = drawn
        use = TorchGraph(torch.cuda.CUDAGraph(keep_graph=True), None, 0, True).generator()
        assert (use.increment if use else 0) == drawn
        assert (torch.generator.seed, torch.generator.offset) == (5, 0)


def test_generator_is_asked_once_the_capture_has_written_its_words(torch: FakeTorch, capturer: Any) -> None:
    """PyTorch writes seed and offset on the capture's stream, too; late, they would replace the ones searched for."""
    from foundry.torch.capture import TorchGraph

    torch.cuda.synchronize = lambda device: torch.log.append("synchronize")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    TorchGraph(graph, None, 0, False).generator()
    assert torch.log == ["synchronize", "replay", "synchronize"]


def test_around_a_capture_into_the_zone(torch: FakeTorch, capturer: Any) -> None:
    with capturer.around(3):
        torch.log.append("capture")
    assert torch.log == ["clear workspaces", "capture", "clear workspaces"]
    assert capturer.pool(3) == "pool of 3"


def test_around_a_native_capture(torch: FakeTorch, capturer: Any) -> None:
    """Graphs of others may use the workspaces of today."""
    with capturer.around(None):
        torch.log.append("capture")
    assert torch.log == ["capture"]
    assert capturer.pool(None) == (0, 1)


def test_capture_that_fails_gives_its_pool_back(torch: FakeTorch, capturer: Any) -> None:
    with pytest.raises(ZeroDivisionError), capturer.around(3):
        raise ZeroDivisionError
    assert torch.log == ["clear workspaces", "end pool of 3", "clear workspaces"]


def test_restored_event_has_the_methods_of_torchs(world: World, torch: FakeTorch) -> None:
    from foundry.torch.events import RestoredEvent, handle

    class CoreEvent:
        handle = 0xE7

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: torch.log.append(f"{name} {arguments}") or name

    class Stream:
        def __init__(self, cuda_stream: int) -> None:
            self.cuda_stream = cuda_stream

        def wait_event(self, event: Any) -> None:
            event.wait(self)  # as PyTorch's own

    torch.device = lambda *arguments: arguments
    torch.cuda.current_stream = lambda device: Stream(5)
    event = RestoredEvent(CoreEvent(), 0)  # type: ignore[arg-type]
    event.record()
    event.record(Stream(6))
    Stream(7).wait_event(event)
    assert event.query() == "query"
    event.synchronize()
    assert torch.log == ["record (5,)", "record (6,)", "wait (7,)", "query ()", "synchronize ()"]
    assert handle(event)[0] == event.cuda_event == 0xE7
