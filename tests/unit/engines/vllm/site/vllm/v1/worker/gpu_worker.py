from __future__ import annotations

from typing import Any

import vllm


def kernel_warmup(worker: Any) -> None:
    vllm.log.append("kernel warm-up")


def warmup_kernels(model_runner: Any, execute_model: Any, sample_tokens: Any) -> None:
    vllm.log.append("warm-up of steps")
    execute_model(8)


class Worker:
    def __init__(
        self,
        vllm_config: Any,
        local_rank: int,
        rank: int,
        distributed_init_method: str,
        is_driver_worker: bool = False,
    ) -> None:
        self.vllm_config = vllm_config
        self.use_v2_model_runner = vllm_config.use_v2_model_runner
        self.device: Any = None
        self.model_runner: Any = None

    def init_device(self) -> None:
        self.device = "cuda:0"
        if self.use_v2_model_runner:
            from vllm.v1.worker.gpu.model_runner import GPUModelRunner as Runner
        else:
            from vllm.v1.worker.gpu_model_runner import GPUModelRunner as Runner  # type: ignore[assignment]
        self.model_runner = Runner(self.vllm_config, self.device)

    def load_model(self, *, load_dummy_weights: bool = False) -> None:
        self.model_runner.load_model()

    def determine_available_memory(self) -> int:
        self.model_runner.profile_run()
        self.model_runner.profile_cudagraph_memory()
        self.available_kv_cache_memory_bytes = 5000
        return self.available_kv_cache_memory_bytes

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        self.model_runner.initialize_kv_cache(kv_cache_config)

    def execute_model(self, scheduler_output: Any) -> Any:
        return self.model_runner._step(scheduler_output)

    def compile_or_warm_up_model(self) -> float:
        runner, config = self.model_runner, self.vllm_config
        for size in config.compilation_config.compile_sizes:
            runner._dummy_run(size)
        kernel_warmup(self)
        early = vllm.release >= (0, 30)
        if self.use_v2_model_runner and early:
            warmup_kernels(runner, self.execute_model, None)
        if not config.model_config.enforce_eager:
            runner.capture_model()
        if self.use_v2_model_runner and not early:
            warmup_kernels(runner, self.execute_model, None)
        elif not self.use_v2_model_runner:
            _, last = runner._dummy_run(num_tokens=8)
            runner._dummy_sampler_run(hidden_states=last)
        return 1.5
