"""vLLM's second model runner: full graphs in a table of its CudaGraphManager, outputs in one persistent tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from vllm.config import CUDAGraphMode
from vllm.v1.worker import gpu_worker
from vllm.v1.worker.gpu import model_runner

from foundry.engines.vllm import keys
from foundry.engines.vllm.adapter import Adapter, nothing

# The model's outputs, made by the first full forward of the capture and asserted on by every replay.
_HIDDEN = "vllm.hidden_states"
_AUXILIARY = "vllm.aux_hidden_states"
_MODEL_STATE = "vllm.v1.worker.gpu.model_states.interface"


class _Adopting(dict[Any, Any]):
    """CudaGraphManager.graphs on SAVE: what is put in has just been captured."""

    def __init__(self, adapter: AdapterV2, manager: Any) -> None:
        super().__init__(manager.graphs)
        self._adapter = adapter
        self._manager = manager

    def __setitem__(self, descriptor: Any, graph: Any) -> None:
        super().__setitem__(descriptor, graph)
        self._adapter.captured(self._manager, descriptor, graph)


class AdapterV2(Adapter):
    """Graphs write into `hidden_states`, which SAVE exports and LOAD hands back."""

    runner_class = model_runner.GPUModelRunner

    @contextmanager
    def saving(self, runner: Any) -> Iterator[None]:
        """Around warm-up and capture."""
        runner.cudagraph_manager.graphs = _Adopting(self, runner.cudagraph_manager)
        with super().saving(runner):
            yield

    def captured(self, manager: Any, descriptor: Any, graph: Any) -> None:
        """Called for every full graph after its capture."""
        with self._start.guarded("capture"):
            rows = descriptor.num_tokens
            outputs = [manager.hidden_states, *manager.aux_hidden_states]
            self._start.adopt(keys.name(descriptor.cg_mode, descriptor), graph, [tensor[:rows] for tensor in outputs])

    def saved(self, runner: Any) -> None:
        """Exports what replays leave their result in."""
        super().saved(runner)
        manager = runner.cudagraph_manager
        manager.graphs = dict(manager.graphs)
        if manager.hidden_states is not None:
            self._start.export(_HIDDEN, manager.hidden_states)
        for i, tensor in enumerate(manager.aux_hidden_states):
            self._start.export(f"{_AUXILIARY}.{i}", tensor)

    def refusal(self, runner: Any) -> str:
        """As for both; and graphs that a model captures by its own code (releases from 0.32) are in no table."""
        reason = super().refusal(runner)
        if reason:
            return reason
        state = type(getattr(runner, "model_state", None))
        inner = getattr(state, "capture_inner_cudagraphs", None)
        if inner is None or inner.__module__ == _MODEL_STATE:
            return ""
        return f"the model captures graphs of its own ({state.__name__}.capture_inner_cudagraphs)"

    def restore(self, runner: Any) -> list[str]:
        """Fills the manager's table."""
        self._start.finish()
        if self._start.state != "load":
            return []
        manager = runner.cudagraph_manager
        wanted = {mode: list(descriptors) for mode, descriptors in manager._capture_descs.items()}
        full, pieces = wanted.get(CUDAGraphMode.FULL, []), wanted.get(CUDAGraphMode.PIECEWISE, [])
        outputs = self._outputs(max(d.num_tokens for d in full)) if full else None
        graphs = {d: self._start.restored(keys.name(d.cg_mode, d)) for d in full} if outputs else {}
        incomplete = set(self.restore_pieces([_wrapper_key(runner, d) for d in pieces]))
        if not self._start.loads():
            return []
        lacking = {
            CUDAGraphMode.FULL: [d for d in full if graphs.get(d) is None],
            CUDAGraphMode.PIECEWISE: [d for d in pieces if _wrapper_key(runner, d) in incomplete],
        }
        lacking = {mode: descriptors for mode, descriptors in lacking.items() if descriptors}
        if outputs:
            manager.hidden_states, manager.aux_hidden_states = outputs[0], outputs[1:]
        manager.graphs.update((d, graph) for d, graph in graphs.items() if graph is not None)
        self.give_pieces(runner)
        manager.use_aux_hidden_state_outputs = runner.use_aux_hidden_state_outputs
        # What is left is captured by the manager itself; a warm-up before that must not ask for it.
        manager._capture_descs = lacking
        manager._graphs_captured = not lacking
        return [keys.name(d.cg_mode, d) for descriptors in lacking.values() for d in descriptors]

    def _outputs(self, rows: int) -> list[Any]:
        """Hidden states, then auxiliary ones. None where they are too small: what is captured here writes more rows."""
        hidden = self._start.exported(_HIDDEN)
        if hidden is None or hidden.shape[0] < rows:
            return []
        found = [hidden]
        while (auxiliary := self._start.exported(f"{_AUXILIARY}.{len(found) - 1}")) is not None:
            found.append(auxiliary)
        return found

    def skipped(self, runner: Any, missing: list[str]) -> Iterator[AbstractContextManager[Any]]:
        """As for both, and the warm-up of sampling and mixed steps."""
        yield from super().skipped(runner, missing)
        if not missing:
            yield patch.object(gpu_worker, "warmup_kernels", nothing)


def _wrapper_key(runner: Any, descriptor: Any) -> Any:
    """The key that a CUDAGraphWrapper sees when the manager captures a piecewise descriptor."""
    from vllm.forward_context import BatchDescriptor

    return BatchDescriptor(
        num_tokens=descriptor.num_tokens,
        has_lora=runner.lora_config is not None,
        num_active_loras=getattr(descriptor, "num_active_loras", 0),  # 0.24 and later
    )
