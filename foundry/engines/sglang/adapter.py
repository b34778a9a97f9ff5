"""What both adapters do around the start of one ModelRunner: the session, phases, the size of the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from foundry.engines.common.starting import EngineStart
from foundry.engines.sglang import features, fingerprint, outputs
from foundry.engines.sglang.plugin import say
from foundry.engines.sglang.seams import RUNNER
from foundry.graphs import Graph

if TYPE_CHECKING:
    from foundry.report import Report

Hook = Callable[..., Any]

_KV_BYTES = "sglang.available_bytes"
_MODULES = (
    "flashinfer.",
    "sglang.srt.layers.",
    "sglang.srt.mem_cache.",
    "sglang.srt.models.",
    "sglang.srt.model_executor.cuda_graph_buffer_registry",
    "sglang.srt.model_executor.forward_batch_info",
    "sglang.srt.model_executor.input_buffers",
    "sglang.srt.model_executor.runner_utils.buffers",
    "torch.nn.",
)
# Attention backends that keep nothing on the host for a size, so that nothing has to be made again on LOAD.
_STATELESS = ("TritonAttnBackend",)
# What makes the state of a size, while it is captured (0.5.13 and later; 0.5.12).
_STATE_MAKERS = ("init_forward_metadata_out_graph", "init_forward_metadata_capture_cuda_graph")


def holds_state(module: str) -> bool:
    """Modules whose objects may hold device tensors that graphs use."""
    return f"{module}.".startswith(_MODULES)


class Adapter:
    """Hooks of both adapters. One per process; SGLang constructs one target ModelRunner in a scheduler process."""

    def __init__(self) -> None:
        self._start = EngineStart(say, holds_state)
        self._runner: Any = None
        self._buffers = ExitStack()  # the phase between the construction of a graph runner and its captures
        self._handles: dict[str, Graph] = {}
        self._captures = False  # between the first and the last capture of the start
        self._over = False

    def hooks(self) -> list[tuple[str, Hook]]:
        """Targets, and what goes around them: called with the original and its arguments."""
        return [
            (f"{RUNNER}.ModelRunner.init_torch_distributed", self.init_torch_distributed),
            (f"{RUNNER}.ModelRunner.load_model", self.load_model),
        ]

    @property
    def report(self) -> Report | None:
        """The account of the session, if there was one."""
        return self._start.report

    # ---- the session

    def init_torch_distributed(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """The device is chosen: the session begins before anything of the model is there."""
        result = original(runner, *args, **kwargs)
        if self._runner is None and not getattr(runner, "is_draft_worker", False):
            self._runner = runner
            reason = features.obstacle(runner)
            if reason:
                self._stay_native(reason)
            else:
                self._start.begin(lambda: fingerprint.fields(runner), _leaves_saving(runner))
        return result

    def _stay_native(self, reason: str) -> None:
        self._over = True
        self._start.refuse(reason)

    def _mine(self, runner: Any) -> bool:
        return runner is self._runner and not self._over and self._start.state != "native"

    def load_model(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """Weights are a phase; parameters and buffers are anchors."""
        if not self._mine(runner):
            return original(runner, *args, **kwargs)
        with self._giving_up(), self._start.phase("weights"):
            result = original(runner, *args, **kwargs)
        reason = features.hybrid(runner)
        if reason:
            self._stay_native(reason)
            return result
        self._start.register_module("model", runner.model)
        self._start.register_reachable("layers", runner.model)
        return result

    # ---- the KV cache

    def memory_pool(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """The KV cache is a phase."""
        if not self._mine(runner):
            return original(runner, *args, **kwargs)
        with self._giving_up(), self._start.phase("kv_cache"):
            result = original(runner, *args, **kwargs)
        self._start.register_reachable("kv", runner.token_to_kv_pool)
        self._start.register_reachable("requests", runner.req_to_token_pool)
        return result

    def profile_available_bytes(self, original: Hook, this: Any, *args: Any, **kwargs: Any) -> int:
        """On LOAD the figure of SAVE: restored graphs have taken their memory already, and sizes must agree."""
        measured = int(original(this, *args, **kwargs))
        if self._over:
            return measured
        if self._start.state == "save":
            self._start.notes[_KV_BYTES] = measured
        elif self._start.state == "load":
            known = self._start.notes.get(_KV_BYTES)
            problem = _cannot_have(known)
            if not problem:
                assert isinstance(known, int)
                say(f"{known / 2**30:.2f} GiB for the KV cache, as measured on SAVE ({measured / 2**30:.2f} GiB here)")
                return known
            self._stay_native(problem)
        return measured

    # ---- buffers

    def in_buffers(self, original: Hook, runner: Any, *args: Any, **kwargs: Any) -> Any:
        """Around what allocates buffers of the attention backend or of eager runs."""
        if not self._mine(runner):
            return original(runner, *args, **kwargs)
        with self._giving_up(), self._start.phase("buffers"):
            return original(runner, *args, **kwargs)

    def construct(self, original: Hook, graph_runner: Any, model_runner: Any, *args: Any, **kwargs: Any) -> Any:
        """The constructor of a graph runner: a phase until it begins to capture."""
        if not self._mine(model_runner):
            return original(graph_runner, model_runner, *args, **kwargs)
        with self._giving_up(), self._buffers:
            self._buffers.enter_context(self._start.phase("buffers"))
            return original(graph_runner, model_runner, *args, **kwargs)

    # ---- captures

    def capture(self, original: Hook, graph_runner: Any, *args: Any, **kwargs: Any) -> Any:
        """The engine's loop over sizes: at its end the session is over. Later ones (other hidden states) are native."""
        if not self._mine(graph_runner.model_runner):
            return original(graph_runner, *args, **kwargs)
        self._buffers.close()
        self._captures = True
        try:
            with self._giving_up():
                self._register_buffers(graph_runner)
                result = self._capture(original, graph_runner, *args, **kwargs)
            self._start.end()
        finally:
            self._captures, self._over = False, True
        return result

    def _capture(self, original: Hook, graph_runner: Any, *args: Any, **kwargs: Any) -> Any:
        attention = graph_runner.attn_backend
        stateless = type(attention).__name__ in _STATELESS
        if stateless:
            # Before captures: those leave views behind, which LOAD does not have.
            self._start.register_reachable("attention", attention)
        saves = self._start.state == "save"
        with nullcontext() if stateless else self._state_in_phase(attention):
            if saves:
                result = original(graph_runner, *args, **kwargs)
            elif not stateless:
                self.make_state(graph_runner)
        if not stateless:
            self._start.register_reachable("attention", attention)
        if saves:
            self.keep_event(graph_runner)
            _compile_for_steps(graph_runner.model_runner.device)
            return result
        return self._restore(original, graph_runner, *args, **kwargs)

    def _restore(self, original: Hook, graph_runner: Any, *args: Any, **kwargs: Any) -> Any:
        names = self.graph_names(graph_runner)
        for name in names:
            graph = self._start.restored(name)
            if graph is not None:
                self._handles[name] = graph
        say(f"{len(self._handles)} of {len(names)} decode graphs restored")
        if self._handles:
            self.give_event(graph_runner)
        with self.nothing_to_freeze(len(self._handles) == len(names)):
            return original(graph_runner, *args, **kwargs)

    def keep_event(self, graph_runner: Any) -> None:
        """SAVE: the event inside graphs that overlap scheduling waits for, if there is one."""

    def give_event(self, graph_runner: Any) -> None:
        """LOAD: that event, in its place."""

    def _register_buffers(self, graph_runner: Any) -> None:
        self._start.register_reachable("inputs", vars(graph_runner.buffers))
        self._start.register_reachable("slots", getattr(graph_runner, "buffer_registry", None))

    @contextmanager
    def _state_in_phase(self, backend: Any) -> Iterator[None]:
        """What an attention backend allocates for a size while SGLang captures it belongs to the phase, too."""
        maker = next((name for name in _STATE_MAKERS if hasattr(backend, name)), None)
        if maker is None:
            yield
            return
        original = getattr(backend, maker)

        def in_phase(*args: Any, **kwargs: Any) -> Any:
            with self._start.phase("buffers"):
                return original(*args, **kwargs)

        setattr(backend, maker, in_phase)
        try:
            yield
        finally:
            delattr(backend, maker)

    def make_state(self, graph_runner: Any) -> None:
        """LOAD: the state of every size as a capture makes it, without any forward."""
        raise NotImplementedError

    def graph_names(self, graph_runner: Any) -> list[str]:
        """Names of the graphs that SGLang is about to capture, in its order."""
        raise NotImplementedError

    @contextmanager
    def nothing_to_freeze(self, everything_restored: bool) -> Iterator[None]:
        """LOAD: no collections of garbage around captures where there are none."""
        raise NotImplementedError
        yield

    def adopt(self, name: str, graph: Any, output: Any) -> None:
        """SAVE: a size that SGLang has just captured."""
        from foundry import _core

        try:
            fields = outputs.plain(output)
        except _core.FoundryError as problem:
            say(f"{name} is not saved: {problem}")
            return
        self._start.adopt(name, graph, fields)

    def restored(self, name: str) -> tuple[outputs.RestoredGraph, Any] | None:
        """LOAD: what SGLang keeps for a size, or None if it has to capture it."""
        graph = self._handles.get(name) if self._captures else None
        return None if graph is None else (outputs.RestoredGraph(graph), outputs.engines_own(graph.outputs))

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """An engine that fails to start ends the session, so that memory is not kept from a second try."""
        try:
            yield
        except BaseException as problem:
            self._over = True
            self._start.give_up(problem)
            raise


def _compile_for_steps(device: Any) -> None:
    """SAVE: SGLang compiles what a decode step launches beside its graph with the first step, if no capture needed it.

    That is after the archive is written: compiled now, it is in it. Attention metadata was needed by captures.
    """
    import torch
    from sglang.srt.model_executor import forward_batch_info

    positions = getattr(forward_batch_info, "clamp_position", None)
    if positions is not None:
        positions(torch.ones(1, dtype=torch.int64, device=device))


def _leaves_saving(runner: Any) -> str:
    """Why this replica does not save: another one does. "" if it may."""
    replica = getattr(runner, "dp_rank", None) or 0
    return f"data-parallel replica {replica} does not save: replica 0 saves for all" if replica else ""


def _cannot_have(known: object) -> str:
    if not isinstance(known, int) or isinstance(known, bool) or known <= 0:
        return "the archive does not say how much memory SAVE had for the KV cache"
    import torch

    free = torch.cuda.mem_get_info()[0]
    if known > free:
        return f"the KV cache had {known / 2**30:.2f} GiB on SAVE and {free / 2**30:.2f} GiB are free here"
    return ""
