"""Every place of SGLang that the plugin holds on to (releases 0.5.12 and later).

Two adapters: `classic` for the one class that captures in 0.5.12 and 0.5.13, `backends` for the runners with pluggable
backends of 0.5.14 and later.
"""

from __future__ import annotations

from foundry.engines.common.seams import Seam

RUNNER = "sglang.srt.model_executor.model_runner"
CLASSIC_RUNNER = "sglang.srt.model_executor.cuda_graph_runner"
DECODE_RUNNER = "sglang.srt.model_executor.runner.decode_cuda_graph_runner"
EAGER_RUNNER = "sglang.srt.model_executor.runner.eager_runner"
FULL_BACKEND = "sglang.srt.model_executor.runner_backend.full_cuda_graph_backend"
KV_CONFIGURATOR = "sglang.srt.mem_cache.kv_cache_configurator"

# Needed to be called at all, and by both adapters.
COMMON: tuple[Seam, ...] = (
    Seam("sglang.srt.plugins", "load_plugins", "calls the plugin in every process", ()),
    Seam(
        "sglang.srt.plugins.hook_registry",
        "HookRegistry.register",
        "puts functions around seams",
        ("target", "hook", "hook_type"),
    ),
    Seam("sglang.srt.plugins.hook_registry", "HookType.AROUND", "the kind of hook"),
    Seam("sglang.srt.managers.scheduler", "run_scheduler_process", "loads plugins before it constructs", None),
    Seam(
        RUNNER,
        "ModelRunner",
        "what the plugin asks it for",
        None,
        "",
        ("device", "is_generation", "model", "model_config", "req_to_token_pool", "server_args", "token_to_kv_pool"),
    ),
    Seam(RUNNER, "ModelRunner.init_torch_distributed", "the device is chosen: the session begins", ()),
    Seam(RUNNER, "ModelRunner.load_model", "weights", ()),
    Seam(
        "sglang.srt.layers.logits_processor",
        "LogitsProcessorOutput",
        "what a decode graph outputs",
        None,
        "",
        ("next_token_logits",),
    ),
    Seam(
        "sglang.srt.model_executor.forward_batch_info",
        "ForwardBatch",
        "made for every step; a kernel of its module that no graph has is compiled on SAVE, for the archive",
    ),
)

CLASSIC: tuple[Seam, ...] = (
    Seam(RUNNER, "ModelRunner.init_memory_pool", "the KV cache", ("pre_model_load_memory",), "classic"),
    Seam(
        RUNNER,
        "ModelRunner._profile_available_bytes",
        "sizes the KV cache; answered from the archive on LOAD",
        ("pre_model_load_memory",),
        "classic",
    ),
    Seam(RUNNER, "ModelRunner.init_attention_backend", "buffers of the attention backend", (), "classic"),
    Seam(
        CLASSIC_RUNNER,
        "CudaGraphRunner",
        "its buffers are a phase; keeps graphs and outputs",
        ("model_runner",),
        "classic",
        ("attn_backend", "buffers", "capture_bs", "graphs", "model_runner", "output_buffers"),
    ),
    Seam(CLASSIC_RUNNER, "CudaGraphRunner.capture", "the loop over sizes, kept", (), "classic"),
    Seam(
        CLASSIC_RUNNER,
        "CudaGraphRunner.capture_one_batch_size",
        "captures one size; replaced by a restored graph on LOAD",
        ("bs", "forward", "stream_idx"),
        "classic",
    ),
    Seam(
        CLASSIC_RUNNER,
        "CudaGraphRunner._capture_graph",
        "left out where only state of the attention backend is made",
        ("graph", "pool", "stream", "run_once_fn"),
        "classic",
    ),
    Seam(CLASSIC_RUNNER, "CudaGraphRunner._create_device_graph", "likewise", (), "classic"),
    Seam(CLASSIC_RUNNER, "freeze_gc", "not needed where nothing is captured", ("enable_cudagraph_gc",), "classic"),
)

BACKENDS: tuple[Seam, ...] = (
    Seam(RUNNER, "ModelRunner.alloc_memory_pool", "the KV cache", ("memory_pool_config",), "backends"),
    Seam(RUNNER, "ModelRunner.init_attention_backends", "buffers of the attention backend", (), "backends"),
    Seam(EAGER_RUNNER, "EagerRunner", "makes buffers that decode shares", ("model_runner",), "backends"),
    Seam(
        DECODE_RUNNER,
        "DecodeCudaGraphRunner",
        "its buffers are a phase",
        ("model_runner",),
        "backends",
        ("attn_backend", "backend", "buffers", "capture_bs", "model_runner"),
    ),
    Seam(
        FULL_BACKEND,
        "FullCudaGraphBackend",
        "keeps graphs and outputs",
        None,
        "backends",
        ("_graphs", "_outputs"),
    ),
    Seam(DECODE_RUNNER, "DecodeCudaGraphRunner.capture", "the loop over sizes, kept", (), "backends"),
    Seam(
        DECODE_RUNNER,
        "DecodeCudaGraphRunner.capture_one_shape",
        "prepares and captures one size",
        ("size", "forward", "stream_idx", "variant_label"),
        "backends",
    ),
    Seam(DECODE_RUNNER, "DecodeCudaGraphRunner._make_graph_key", "key of a graph", None, "backends"),
    Seam(
        FULL_BACKEND,
        "FullCudaGraphBackend.capture_one",
        "captures one size; replaced by a restored graph on LOAD",
        ("shape_key", "forward_fn"),
        "backends",
    ),
    Seam(
        FULL_BACKEND,
        "FullCudaGraphBackend.replay",
        "replays a graph, returns its outputs",
        ("shape_key", "static_forward_batch"),
        "backends",
    ),
    Seam(DECODE_RUNNER, "freeze_gc", "not needed where nothing is captured", ("enable_cudagraph_gc",), "backends"),
)

# Where `_profile_available_bytes` is for `backends`: the first that exists is taken (0.5.14 has the second).
PROFILES: tuple[Seam, ...] = (
    Seam(
        KV_CONFIGURATOR,
        "KVCacheConfigurator._profile_available_bytes",
        "sizes the KV cache; answered from the archive on LOAD",
        ("pre_model_load_memory",),
        "backends",
    ),
    Seam(
        RUNNER,
        "ModelRunner._profile_available_bytes",
        "likewise",
        ("pre_model_load_memory",),
        "backends",
    ),
)

ADAPTERS = {"classic": CLASSIC, "backends": BACKENDS}
# A release has the places of one adapter; of these groups it needs one place.
ONE_ADAPTER = True
ONE_OF: tuple[tuple[Seam, ...], ...] = (PROFILES,)
ALL: tuple[Seam, ...] = (*COMMON, *CLASSIC, *BACKENDS, *PROFILES)
