"""Events of restored graphs with the methods of torch.cuda.Event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from foundry._core import Event

_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class RestoredEvent:
    """Takes the place of a `torch.cuda.Event(external=True)`, also for `Stream.wait_event` and `Stream.record_event`.

    PyTorch makes no events of its own from handles. This one has no timing.
    """

    def __init__(self, event: Event, device: int) -> None:
        self._event = event
        self.device = torch.device("cuda", device)
        self.cuda_event = event.handle

    def record(self, stream: Any = None) -> None:
        """Records it in a stream, by default the current one."""
        self._event.record(self._stream(stream))

    def wait(self, stream: Any = None) -> None:
        """Makes later work of a stream, by default the current one, wait for it."""
        self._event.wait(self._stream(stream))

    def synchronize(self) -> None:
        """Waits for it on the host."""
        self._event.synchronize()

    def query(self) -> bool:
        """Whether everything before its latest record is done."""
        return self._event.query()

    def _stream(self, stream: Any) -> int:
        return int((torch.cuda.current_stream(self.device) if stream is None else stream).cuda_stream)

    def __repr__(self) -> str:
        return f"<foundry event {self.cuda_event:#x}>"


def handle(event: Any) -> tuple[int, int]:
    """The CUevent, 0 if PyTorch has not created it yet, and flags for one like it: PyTorch does not tell them."""
    return int(event.cuda_event), _DISABLE_TIMING
