"""The class that stands in for torch.cuda.CUDAGraph: what is held around a capture, also one that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fake_torch import FakeTorch


class FakeSession:
    """Remembers what a capture is surrounded with."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def graph_pool(self) -> Any:
        return "the zone's pool"

    @contextmanager
    def capturing(self) -> Iterator[None]:
        self.log.append("<")
        try:
            yield
        except BaseException as problem:
            self.log.append(f"> {problem}")
            raise
        self.log.append(">")


@pytest.fixture
def made(torch: FakeTorch) -> Any:
    """A graph of the class; the fake torch's log is the session's."""
    from foundry.engines.common.engine_graph import engine_graph

    begin = torch.cuda.CUDAGraph.capture_begin

    def capture_begin(graph: Any, pool: Any = None, capture_error_mode: str = "global") -> None:
        torch.log.append(f"pool {pool}, {capture_error_mode}")
        begin(graph, pool, capture_error_mode)

    torch.cuda.CUDAGraph.capture_begin = capture_begin
    return engine_graph(FakeSession(torch.log))()  # type: ignore[arg-type]


def test_a_capture_goes_into_the_zone_whatever_pool_is_named(torch: FakeTorch, made: Any) -> None:
    made.capture_begin(pool="the engine's pool", capture_error_mode="thread_local")
    assert torch.log == ["<", "pool the zone's pool, thread_local", "capture_begin"]
    made.capture_end()
    assert torch.log[3:] == ["capture_end", "instantiate", ">"]
    assert made.raw_cuda_graph() == 77
    made.replay()


def test_a_capture_that_does_not_begin(torch: FakeTorch, made: Any) -> None:
    def refuses(*args: Any) -> None:
        raise RuntimeError("another capture is active")

    torch.cuda.CUDAGraph.capture_begin = refuses
    with pytest.raises(RuntimeError, match="another capture"):
        made.capture_begin()
    assert torch.log == ["<", "> another capture is active"]
    made._leave(None)  # once only
    assert len(torch.log) == 2


def test_a_capture_that_does_not_end(torch: FakeTorch, made: Any) -> None:
    made.capture_begin()
    original = torch.cuda.CUDAGraph.capture_end

    def fails(graph: Any) -> None:
        raise RuntimeError("the capture was invalidated")

    torch.cuda.CUDAGraph.capture_end = fails
    with pytest.raises(RuntimeError, match="invalidated"):
        made.capture_end()
    assert torch.log[-1] == "> the capture was invalidated"
    # The same object may be used for another attempt.
    torch.cuda.CUDAGraph.capture_end = original
    made.capture_begin()
    made.capture_end()
    assert torch.log.count("<") == 2 and torch.log[-1] == ">"


def test_what_the_capture_hands_on_may_fail_too(torch: FakeTorch, made: Any) -> None:
    def refuses(graph: Any) -> None:
        raise ValueError("not this one")

    made.captured = refuses
    made.capture_begin()
    with pytest.raises(ValueError, match="not this one"):
        made.capture_end()
    assert torch.log[-1] == "> not this one"


def test_pytorch_is_told_twice_that_the_graph_is_kept(torch: FakeTorch, made: Any) -> None:
    assert type(made)().kept
