"""vLLM's worker, with a session around its start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from vllm.v1.worker import gpu_worker

from foundry.engines.common import seams as common
from foundry.engines.common.starting import EngineStart
from foundry.engines.vllm import seams, support
from foundry.engines.vllm.fingerprint import fields
from foundry.engines.vllm.plugin import say

if TYPE_CHECKING:
    # It imports what another release may lack, which must not keep vLLM from importing its worker.
    from foundry.engines.vllm.adapter import Adapter

_KV_BYTES = "vllm.available_kv_cache_bytes"


def holds_state(module: str) -> bool:
    """Modules whose objects may hold device tensors that graphs use."""
    return module.split(".")[0] in ("vllm", "transformers_modules") or module.startswith("torch.nn.")


class Worker(gpu_worker.Worker):  # type: ignore[misc]
    """Runs vLLM's own code in phases; on LOAD restored graphs take the place of profiling, warm-up and capture."""

    def init_device(self) -> None:
        """Chooses the device and constructs the model runner, inside the first phase."""
        self.foundry = EngineStart(say, holds_state)
        self.foundry_adapter: Adapter | None = None
        self.foundry_skipped_profile = False
        if not self._takes_part():
            super().init_device()
            return
        runner = self._runner_name()
        adapter = _adapter(runner, self.foundry)
        original = adapter.runner_class.__init__
        start, constructions = self.foundry, 0

        def constructed(this: Any, vllm_config: Any, device: Any, *args: Any, **kwargs: Any) -> None:
            nonlocal constructions
            constructions += 1
            start.begin(lambda: fields(vllm_config, runner), _leaves_saving(vllm_config.parallel_config))
            with start.phase("runner"):
                original(this, vllm_config, device, *args, **kwargs)
            start.register_reachable("runner", this)

        with patch.object(adapter.runner_class, "__init__", constructed):
            super().init_device()
        if not constructions:
            start.refuse(f"this vLLM's worker makes another model runner than {adapter.runner_class.__module__}'s")
        self.foundry_adapter = adapter

    def _takes_part(self) -> bool:
        """Whether there is a session; if not, why has been said."""
        # Seams first: they include what the configuration is asked for.
        found = common.problems((*seams.WORKER, *seams.WRAPPER, *seams.RUNNERS[self._runner_name()]))
        if found:
            self.foundry.refuse(f"this vLLM is not one that the plugin knows: {'; '.join(found)}")
            return False
        config = self.vllm_config
        reason = support.refusal(config)
        if not reason and _compiles(config):
            reason = "; ".join(common.problems(seams.PIECES))
        if reason:
            self.foundry.refuse(reason)
            return False
        return True

    def _runner_name(self) -> str:
        return "v2" if self._uses_v2() else "v1"

    def _uses_v2(self) -> bool:
        return bool(getattr(self, "use_v2_model_runner", False))

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Weights are a phase; parameters and buffers are anchors."""
        with self.foundry.phase("weights"):
            super().load_model(*args, **kwargs)
        self.foundry.register_module("model", self.model_runner.get_model())
        self.foundry.register_reachable("runner", self.model_runner)

    def determine_available_memory(self) -> int:
        """On LOAD the figure that SAVE measured, without a forward."""
        start = self.foundry
        if start.state == "load":
            known = start.notes.get(_KV_BYTES)
            problem = self._cannot_have(known)
            if not problem:
                assert isinstance(known, int)
                say(f"{known / 2**30:.2f} GiB for the KV cache, as measured on SAVE; no profile run")
                self.available_kv_cache_memory_bytes = known
                self.foundry_skipped_profile = True
                return known
            start.refuse(problem)
        # vLLM's figure counts what PyTorch reserves, whichever pool it is in.
        adapter = self.foundry_adapter if start.state == "save" else None
        with start.private("profile"), adapter.profiling(self.model_runner) if adapter else nullcontext():
            measured = int(super().determine_available_memory())
        if start.state == "save":
            start.notes[_KV_BYTES] = measured
        return measured

    def _cannot_have(self, known: object) -> str:
        if not isinstance(known, int) or isinstance(known, bool) or known <= 0:
            return "the archive does not say how much memory SAVE had for the KV cache"
        import torch

        free = torch.cuda.mem_get_info(self.device)[0]
        if known > free:
            return f"the KV cache took {known / 2**30:.2f} GiB on SAVE and {free / 2**30:.2f} GiB are free here"
        return ""

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """The KV cache and the buffers of attention are a phase."""
        with self.foundry.phase("kv_cache"):
            super().initialize_from_config(kv_cache_config)
        self.foundry.register_reachable("runner", self.model_runner)

    def compile_or_warm_up_model(self) -> Any:
        """SAVE: as vLLM does it, and every captured graph is kept. LOAD: restored graphs, no forward."""
        start, adapter = self.foundry, self.foundry_adapter
        if adapter is not None and start.state != "native":
            reason = ""
            with start.guarded("refusal"):
                # Again: the attention may allow no graphs, and vLLM has changed the mode then.
                reason = support.refusal(self.vllm_config) or adapter.refusal(self.model_runner)
            if reason:
                start.refuse(reason)
        if adapter is None or start.state == "native":
            self._profile()
            return super().compile_or_warm_up_model()
        if start.state == "save":
            step = self.execute_model

            def stepped(*args: Any, **kwargs: Any) -> Any:
                found = step(*args, **kwargs)
                # Steps of the warm-up rewrite what steps rewrite, and the last one may leave it as it was.
                start.captured()
                return found

            with (
                start.private("warm-up"),
                adapter.saving(self.model_runner),
                patch.object(self, "execute_model", stepped),
            ):
                times = super().compile_or_warm_up_model()
            with start.guarded("end"):
                adapter.saved(self.model_runner)
            start.end()
            return times
        missing: list[str] = []
        with start.guarded("restore"):
            missing = adapter.restore(self.model_runner)
        if missing or not start.loads():
            self._profile()
        if not start.loads():  # it did not fit after all
            return super().compile_or_warm_up_model()
        with ExitStack() as stack:
            for replaced in adapter.skipped(self.model_runner, missing):
                stack.enter_context(replaced)
            times = super().compile_or_warm_up_model()
        start.end()
        return times

    def _profile(self) -> None:
        """The largest forward, where LOAD left it out and vLLM captures after all.

        Captures rely on it: it grows the workspace that they use to its full size (V1 locks it then, and V2 would leave
        graphs behind that use memory of before), and it compiles the model for more than one token.
        """
        if self.foundry_skipped_profile:
            self.foundry_skipped_profile = False
            self.model_runner.profile_run()


def _compiles(config: Any) -> bool:
    mode = config.compilation_config.mode
    return mode is not None and mode.name == "VLLM_COMPILE"


def _leaves_saving(parallel: Any) -> str:
    """Why this replica does not save: another one does. "" if it may."""
    from foundry import modes

    replica = int(getattr(parallel, "data_parallel_index", parallel.data_parallel_rank) or 0)
    # Each machine may have archives of its own. Where they share them, the later of two SAVEs gives way, which "save"
    # would make an error.
    local = getattr(parallel, "data_parallel_rank_local", None)
    if local is None or modes.chosen_mode("auto") == "save":
        local = replica
    if not local:
        return ""
    whom = "all" if local == replica else "those of this machine"
    return f"data-parallel replica {replica} does not save: replica {replica - local} saves for {whom}"


def _adapter(runner: str, start: EngineStart) -> Adapter:
    chosen: Callable[[EngineStart], Adapter]
    if runner == "v2":
        from foundry.engines.vllm.runner_v2 import AdapterV2 as chosen
    else:
        from foundry.engines.vllm.runner_v1 import AdapterV1 as chosen
    return chosen(start)
