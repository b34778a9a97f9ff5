"""SGLang 0.5.14 and later: DecodeCudaGraphRunner prepares a size, a backend captures and replays it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from foundry.engines.common import seams as common
from foundry.engines.sglang import seams
from foundry.engines.sglang.adapter import Adapter, Hook
from foundry.engines.sglang.seams import DECODE_RUNNER, EAGER_RUNNER, FULL_BACKEND, RUNNER

# Recorded inside decode graphs; overlap scheduling waits for it before it writes shared buffers again.
_EVENT = "in_graph_metadata_prep_done"


class Backends(Adapter):
    """Replaces what the full backend does for one size; loop and preparation stay SGLang's."""

    def __init__(self) -> None:
        super().__init__()
        self._backend: Any = None  # of the decode runner; prefill may have one of the same class
        self._dry = False

    def hooks(self) -> list[tuple[str, Hook]]:
        """See Adapter.hooks."""
        return [
            *super().hooks(),
            (f"{RUNNER}.ModelRunner.alloc_memory_pool", self.memory_pool),
            (_profile_target(), self.profile_available_bytes),
            (f"{RUNNER}.ModelRunner.init_attention_backends", self.in_buffers),
            (f"{EAGER_RUNNER}.EagerRunner.__init__", self.construct),
            (f"{DECODE_RUNNER}.DecodeCudaGraphRunner.__init__", self.construct),
            (f"{DECODE_RUNNER}.DecodeCudaGraphRunner.capture", self.capture),
            (f"{DECODE_RUNNER}.DecodeCudaGraphRunner.capture_one_shape", self.capture_shape),
            (f"{FULL_BACKEND}.FullCudaGraphBackend.capture_one", self.capture_one),
        ]

    def capture(self, original: Hook, graph_runner: Any, *args: Any, **kwargs: Any) -> Any:
        """See Adapter.capture; only full graphs of plain decode are ours."""
        self._backend = graph_runner.backend
        if type(self._backend).__name__ != "FullCudaGraphBackend" and self._mine(graph_runner.model_runner):
            self._buffers.close()
            self._stay_native(f"graphs of decode are captured by a {type(self._backend).__name__}")
        return super().capture(original, graph_runner, *args, **kwargs)

    def graph_names(self, graph_runner: Any) -> list[str]:
        """Largest first. Variants of a size are asked for when SGLang comes to them."""
        return [_name(graph_runner._make_graph_key(size)) for size in reversed(graph_runner.capture_bs)]

    def capture_shape(self, original: Hook, graph_runner: Any, size: int, *args: Any, **kwargs: Any) -> Any:
        """A restored size needs no preparation: state that replays need has been made."""
        if self._captures and not self._dry and graph_runner.backend is self._backend and not any(args[1:]):
            key = graph_runner._make_graph_key(size)
            if self._give(key):
                return None
        return original(graph_runner, size, *args, **kwargs)

    def _give(self, key: Any) -> bool:
        kept = self.restored(_name(key))
        if kept is None:
            return False
        self._backend._graphs[key], self._backend._outputs[key] = kept
        return True

    def capture_one(self, original: Hook, backend: Any, shape_key: Any, *args: Any, **kwargs: Any) -> None:
        """Captures one size."""
        if self._dry or not self._captures or backend is not self._backend:
            if not self._dry:
                original(backend, shape_key, *args, **kwargs)
            return
        if self._give(shape_key):
            return
        with self._start.substituted():
            original(backend, shape_key, *args, **kwargs)
        self.adopt(_name(shape_key), backend._graphs[shape_key], backend._outputs[shape_key])

    def make_state(self, graph_runner: Any) -> None:
        """SGLang's own preparation of every size; the backend does nothing."""
        self._dry = True
        try:
            for size in reversed(graph_runner.capture_bs):
                graph_runner.capture_one_shape(size, _no_forward)
        finally:
            self._dry = False

    def keep_event(self, graph_runner: Any) -> None:
        """Releases that have it make it in their first capture."""
        event = getattr(graph_runner, _EVENT, None)
        if event is not None:
            self._start.register_event(_EVENT, event)

    def give_event(self, graph_runner: Any) -> None:
        """Where there is none to give, SGLang waits for the end of a replay."""
        if hasattr(graph_runner, _EVENT):
            setattr(graph_runner, _EVENT, self._start.event(_EVENT))

    @contextmanager
    def nothing_to_freeze(self, everything_restored: bool) -> Iterator[None]:
        """See Adapter.nothing_to_freeze."""
        from sglang.srt.model_executor.runner import decode_cuda_graph_runner

        with patch.object(decode_cuda_graph_runner, "freeze_gc", _no_freeze) if everything_restored else nullcontext():
            yield


def _profile_target() -> str:
    for seam in seams.PROFILES:
        if not common.check(seam):
            return f"{seam.module}.{seam.name}"
    raise LookupError("this SGLang has no _profile_available_bytes where the plugin looks for it")


def _name(key: Any) -> str:
    """Of the size and whatever else distinguishes graphs of one size."""
    parts = [getattr(key, name, None) for name in ("stream_idx", "variant_label", "attention_variant")]
    return "/".join(["decode", str(getattr(key, "size", key)), *(str(part) for part in parts if part is not None)])


def _no_forward(*args: Any, **kwargs: Any) -> None:
    return None


@contextmanager
def _no_freeze(enable_cudagraph_gc: bool) -> Iterator[None]:
    yield
