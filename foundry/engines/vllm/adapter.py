"""What both model runners need: graphs of CUDAGraphWrapper saved and given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from vllm.compilation.cuda_graph import CUDAGraphEntry, CUDAGraphWrapper
from vllm.config import CUDAGraphMode
from vllm.v1.worker import gpu_worker

from foundry.engines.vllm import keys, support

if TYPE_CHECKING:
    from foundry.engines.common.starting import EngineStart

_PIECES = "vllm.pieces"
_ATTENTION = "vllm.attention"


def piece_of(wrapper: Any) -> int | None:
    """The number of a piece among those that the model was split into; None for a wrapper of a whole model."""
    if wrapper.runtime_mode != CUDAGraphMode.PIECEWISE:
        return None
    return int(wrapper.runnable.piecewise_compile_index)


class Adapter:
    """One model runner's side of SAVE and LOAD."""

    runner_class: Any

    def __init__(self, start: EngineStart) -> None:
        self._start = start
        self._pieces: set[int] = set()  # SAVE: numbers of the pieces seen
        self._restored: dict[int, dict[Any, Any]] = {}  # LOAD: entries of every piece by descriptor

    def refusal(self, runner: Any) -> str:
        """Why this model, now that it is loaded and has a KV cache, is served natively; "" if it need not be."""
        chosen = support.attention(runner)
        if self._start.state == "save":
            self._start.notes[_ATTENTION] = chosen
        known = self._start.notes.get(_ATTENTION)
        if chosen != known:
            return f"attention is by {chosen or 'nothing'} here and was by {known or 'nothing'} on SAVE"
        return support.attention_refusal(runner)

    # ---- SAVE

    def profiling(self, runner: Any) -> AbstractContextManager[None]:
        """Around the profile, which LOAD does not run."""
        return nullcontext()

    @contextmanager
    def saving(self, runner: Any) -> Iterator[None]:
        """Around warm-up and capture."""
        original = runner.capture_model

        def capture_model(*args: Any, **kwargs: Any) -> Any:
            with self._start.substituted(), patch.object(CUDAGraphWrapper, "__call__", self._calls()):
                found = original(*args, **kwargs)
            self._start.captured()
            return found

        with patch.object(runner, "capture_model", capture_model):
            yield

    def saved(self, runner: Any) -> None:
        """Everything is captured; the session is still open."""
        if self._start.state == "save":
            self._start.notes[_PIECES] = len(self._pieces)

    def _calls(self) -> Any:
        """CUDAGraphWrapper.__call__ that has what it captures adopted."""
        original, start, pieces = CUDAGraphWrapper.__call__, self._start, self._pieces

        def __call__(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            before = set(wrapper.concrete_cudagraph_entries)
            output = original(wrapper, *args, **kwargs)
            with start.guarded("capture"):
                for descriptor in set(wrapper.concrete_cudagraph_entries) - before:
                    entry = wrapper.concrete_cudagraph_entries[descriptor]
                    piece = piece_of(wrapper)
                    if piece is not None:
                        pieces.add(piece)
                    # The addresses are compared by vLLM itself where its log level is DEBUG.
                    kept = {"output": output, "input_addresses": entry.input_addresses}
                    start.adopt(keys.name(wrapper.runtime_mode, descriptor, piece), entry.cudagraph, kept)
            return output

        return __call__

    # ---- LOAD

    def restore(self, runner: Any) -> list[str]:
        """Puts restored graphs where the runner looks for them; names of those that it has to capture itself.

        Where the session ends meanwhile nothing of the runner is changed.
        """
        raise NotImplementedError

    def skipped(self, runner: Any, missing: list[str]) -> Iterator[AbstractContextManager[Any]]:
        """What is not run on LOAD. Where graphs have to be captured, warm-up precedes that as always."""
        if not missing:
            yield patch.object(runner, "capture_model", lambda *args, **kwargs: 0)
            yield patch.object(runner, "_dummy_run", lambda *args, **kwargs: (None, None))
            yield patch.object(gpu_worker, "kernel_warmup", nothing)

    def entry(self, mode: Any, descriptor: Any, piece: int | None = None) -> Any:
        """The wrapper's entry for a restored graph, or None."""
        graph = self._start.restored(keys.name(mode, descriptor, piece))
        if graph is None:
            return None
        kept = graph.outputs
        return CUDAGraphEntry(
            batch_descriptor=descriptor,
            cudagraph=graph,
            output=kept["output"],
            input_addresses=kept["input_addresses"],
        )

    def restore_pieces(self, descriptors: list[Any]) -> list[Any]:
        """Keeps entries of piecewise graphs for `give_pieces`; descriptors of which a piece is lacking."""
        count = self._start.notes.get(_PIECES, 0)
        lacking = []
        for descriptor in descriptors:
            found = {}
            for piece in range(int(count)):
                entry = self.entry(CUDAGraphMode.PIECEWISE, descriptor, piece)
                if entry is not None:
                    found[piece] = entry
            if not found or len(found) < int(count):
                lacking.append(descriptor)
                continue
            for piece, entry in found.items():
                self._restored.setdefault(piece, {})[descriptor] = entry
        return lacking

    def give_pieces(self, runner: Any) -> None:
        """To the wrappers of this runner's model that exist, and to those that are made when it is first compiled.

        Another engine of this process has wrappers with the same numbers. A model's layers are found in one table of its
        configuration, whatever copies of the rest there are.
        """
        if not self._restored:
            return
        original, restored = CUDAGraphWrapper.__init__, self._restored
        layers = runner.vllm_config.compilation_config.static_forward_context

        def give(wrapper: Any) -> None:
            if wrapper.vllm_config.compilation_config.static_forward_context is not layers:
                return
            piece = piece_of(wrapper)
            if piece is not None:
                wrapper.concrete_cudagraph_entries.update(restored.get(piece, {}))

        def __init__(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            original(wrapper, *args, **kwargs)
            give(wrapper)

        for wrapper in list(getattr(CUDAGraphWrapper, "_all_instances", ())):
            give(wrapper)
        CUDAGraphWrapper.__init__ = __init__


def nothing(*args: Any, **kwargs: Any) -> None:
    """In place of a warm-up."""
