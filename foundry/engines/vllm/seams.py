"""Every place of vLLM that the plugin holds on to (releases 0.22 and later)."""

from __future__ import annotations

from foundry.engines.common.seams import Seam

# Needed to get Foundry's worker chosen at all.
LAUNCH: tuple[Seam, ...] = (
    Seam("vllm.plugins", "load_general_plugins", "calls the plugin in every process", ()),
    Seam("vllm.logger", "init_logger", "the engine's own log", ("name",)),
    Seam("vllm.platforms.interface", "Platform.check_and_update_config", "chooses the worker", ("vllm_config",)),
    Seam("vllm.platforms.interface", "Platform.is_cuda", "other platforms are left alone", ()),
)

_WORKER = "vllm.v1.worker.gpu_worker"
_V1 = "vllm.v1.worker.gpu_model_runner"
_V2 = "vllm.v1.worker.gpu.model_runner"
_GRAPHS_V2 = "vllm.v1.worker.gpu.cudagraph_utils"
_WRAPPER = "vllm.compilation.cuda_graph"

# What the fingerprint and the refusals read.
_CONFIG: tuple[Seam, ...] = tuple(
    Seam("vllm.config", owner, "fingerprint and refusals", None, "", tuple(attributes.split()))
    for owner, attributes in (
        (
            "VllmConfig",
            "additional_config cache_config compilation_config kv_transfer_config lora_config model_config "
            "parallel_config scheduler_config speculative_config",
        ),
        ("CacheConfig", "block_size cache_dtype compute_hash gpu_memory_utilization"),
        ("CompilationConfig", "compute_hash cudagraph_capture_sizes cudagraph_mode mode static_forward_context"),
        ("LoRAConfig", "compute_hash max_lora_rank max_loras"),
        (
            "ModelConfig",
            "dtype enforce_eager hf_config is_encoder_decoder is_multimodal_model max_model_len quantization runner_type",
        ),
        (
            "ParallelConfig",
            "compute_hash data_parallel_rank data_parallel_rank_local data_parallel_size enable_expert_parallel "
            "pipeline_parallel_size tensor_parallel_size worker_cls",
        ),
        ("SchedulerConfig", "max_num_batched_tokens max_num_seqs"),
        ("CUDAGraphMode", "FULL NONE PIECEWISE"),
    )
)

WORKER: tuple[Seam, ...] = (
    Seam(
        _WORKER,
        "Worker",
        "is extended",
        ("vllm_config", "local_rank", "rank", "distributed_init_method", "is_driver_worker"),
        attributes=("available_kv_cache_memory_bytes", "device", "model_runner", "use_v2_model_runner", "vllm_config"),
    ),
    Seam(_WORKER, "Worker.init_device", "constructs the model runner", ()),
    Seam(_WORKER, "Worker.load_model", "weights", ()),
    Seam(_WORKER, "Worker.determine_available_memory", "profiles; answered from the archive on LOAD", ()),
    Seam(_WORKER, "Worker.initialize_from_config", "the KV cache", ("kv_cache_config",)),
    Seam(_WORKER, "Worker.compile_or_warm_up_model", "warms up and captures", ()),
    Seam(_WORKER, "Worker.execute_model", "a step; watched in SAVE's warm-up", ("scheduler_output",)),
    Seam(_WORKER, "kernel_warmup", "not run on LOAD", ("worker",)),
    Seam(
        "vllm.v1.worker.utils", "AttentionGroup", "attention that is refused", None, attributes=("metadata_builders",)
    ),
    *_CONFIG,
)

V1: tuple[Seam, ...] = (
    Seam(
        _V1,
        "GPUModelRunner",
        "its buffers are a phase",
        ("vllm_config", "device"),
        "v1",
        (
            "_init_block_sizes",
            "attn_groups",
            "cudagraph_dispatcher",
            "get_model",
            "input_batch",
            "model",
            "vllm_config",
        ),
    ),
    Seam(_V1, "GPUModelRunner.capture_model", "captures", (), "v1"),
    Seam(
        _V1,
        "GPUModelRunner._capture_cudagraphs",
        "is asked only for what the archive lacks",
        ("batch_descriptors", "cudagraph_runtime_mode"),
        "v1",
    ),
    Seam(_V1, "GPUModelRunner._dummy_run", "warms up; not run on LOAD", ("num_tokens",), "v1"),
    Seam(_V1, "GPUModelRunner.profile_run", "on LOAD only before a capture", (), "v1"),
    Seam(_V1, "GPUModelRunner._dummy_sampler_run", "warms up; not run on LOAD", ("hidden_states",), "v1"),
    Seam(_V1, "set_cudagraph_capturing_enabled", "off on LOAD, as after a capture", ("enabled",), "v1"),
    Seam(
        "vllm.v1.cudagraph_dispatcher",
        "CudagraphDispatcher.get_capture_descs",
        "what is captured: (runtime mode, descriptors)",
        (),
        "v1",
    ),
)

V2: tuple[Seam, ...] = (
    Seam(
        _V2,
        "GPUModelRunner",
        "its buffers are a phase",
        ("vllm_config", "device"),
        "v2",
        (
            "attn_groups",
            "cudagraph_manager",
            "get_model",
            "lora_config",
            "use_aux_hidden_state_outputs",
            "vllm_config",
        ),
    ),
    Seam(_V2, "GPUModelRunner.capture_model", "captures", (), "v2"),
    Seam(_WORKER, "warmup_kernels", "not run on LOAD", ("model_runner",), "v2"),
    Seam(
        _GRAPHS_V2,
        "ModelCudaGraphManager",
        "keeps graphs, and hidden states made by a forward",
        None,
        "v2",
        (
            "_capture_descs",
            "_graphs_captured",
            "aux_hidden_states",
            "graphs",
            "hidden_states",
            "use_aux_hidden_state_outputs",
        ),
    ),
    Seam(_GRAPHS_V2, "ModelCudaGraphManager.run_fullgraph", "replays", ("desc",), "v2"),
    Seam(_GRAPHS_V2, "CudaGraphManager.capture", "captures what `_capture_descs` lists", ("create_forward_fn",), "v2"),
    Seam(_GRAPHS_V2, "CudaGraphManager.needs_capture", "reads `_capture_descs`", (), "v2"),
    Seam(_GRAPHS_V2, "BatchExecutionDescriptor", "key of a graph", None, "v2", ("cg_mode", "num_tokens")),
    Seam(_V2, "GPUModelRunner._dummy_run", "warms up; not run on LOAD", ("num_tokens",), "v2"),
    Seam(_V2, "GPUModelRunner.profile_run", "on LOAD only before a capture", (), "v2"),
)

WRAPPER: tuple[Seam, ...] = (
    Seam(
        _WRAPPER,
        "CUDAGraphWrapper",
        "V1's full graphs, pieces of both",
        ("runnable", "vllm_config", "runtime_mode"),
        attributes=("_all_instances", "concrete_cudagraph_entries", "runnable", "runtime_mode", "vllm_config"),
    ),
    Seam(_WRAPPER, "CUDAGraphWrapper.__call__", "captures", None),
    Seam(
        _WRAPPER,
        "CUDAGraphEntry",
        "a graph and its output",
        None,
        attributes=("batch_descriptor", "cudagraph", "input_addresses", "output"),
    ),
    Seam(
        "vllm.forward_context",
        "BatchDescriptor",
        "key of a graph",
        None,
        attributes=("has_lora", "num_active_loras", "num_tokens"),
    ),
)

# Asked for where the model is compiled: the module is slow to import.
PIECES: tuple[Seam, ...] = (
    Seam(
        "vllm.compilation.piecewise_backend",
        "PiecewiseBackend",
        "tells pieces apart",
        None,
        attributes=("piecewise_compile_index",),
    ),
)

RUNNERS = {"v1": V1, "v2": V2}
ALL: tuple[Seam, ...] = (*LAUNCH, *WORKER, *WRAPPER, *PIECES, *V1, *V2)
