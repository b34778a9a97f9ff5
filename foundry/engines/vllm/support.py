"""Configurations that the plugin leaves alone, each with a sentence."""

from __future__ import annotations

from typing import Any


def refusal(config: Any) -> str:
    """Why this configuration of vLLM is served natively; "" if graphs can be saved and restored."""
    return next((sentence for applies, sentence in _rules(config) if applies), "")


# Builders of attention's metadata that allocate in their first steps what every step rewrites and graphs read: plans
# of FlashInfer, one for each batch size, FlexAttention's masks. LOAD runs those steps later, so it has both elsewhere.
_LATE = {"FlashInferMetadataBuilder": "FlashInfer", "FlexAttentionMetadataBuilder": "FlexAttention"}


def attention_refusal(runner: Any) -> str:
    """The same for the attention that the engine has chosen; once there is a KV cache."""
    for builder in _builders(runner):
        for kind in type(builder).__mro__:
            # FlashInfer's decode by TensorRT-LLM's kernels has no plan.
            if kind.__name__ in _LATE and not getattr(builder, "use_trtllm_decode_attention", False):
                return (
                    f"{_LATE[kind.__name__]} is not supported yet (it allocates in steps what its graphs read): "
                    "--attention-backend FLASH_ATTN and TRITON_ATTN are"
                )
    return ""


def attention(runner: Any) -> str:
    """Which attention the engine has chosen, by itself where nobody asked for one: by what is installed, say."""
    kinds = map(type, _builders(runner))
    return ", ".join(sorted({f"{kind.__module__.removeprefix('vllm.')}.{kind.__qualname__}" for kind in kinds}))


def _builders(runner: Any) -> list[Any]:
    return [builder for groups in runner.attn_groups for group in groups for builder in group.metadata_builders]


def _rules(config: Any) -> list[tuple[bool, str]]:
    model, parallel, compilation = config.model_config, config.parallel_config, config.compilation_config
    mode = compilation.cudagraph_mode
    no_graphs = model.enforce_eager or mode is None or not mode
    return [
        (no_graphs, "no CUDA graphs are captured (enforce_eager, or cudagraph_mode is NONE)"),
        (parallel.tensor_parallel_size > 1, "tensor parallelism is not supported yet"),
        (parallel.pipeline_parallel_size > 1, "pipeline parallelism is not supported yet"),
        (_more_than_one(parallel, "prefill_context_parallel_size"), "context parallelism is not supported yet"),
        (_more_than_one(parallel, "decode_context_parallel_size"), "context parallelism is not supported yet"),
        (parallel.enable_expert_parallel, "expert parallelism is not supported yet"),
        (
            parallel.data_parallel_size > 1 and bool(getattr(parallel, "is_moe_model", False)),
            "data parallelism of a mixture of experts is not supported yet (its ranks talk inside the graphs)",
        ),
        (bool(getattr(parallel, "use_ubatching", False)), "micro-batching (DBO) is not supported yet"),
        (config.speculative_config is not None, "speculative decoding is not supported yet"),
        (bool(getattr(model, "enable_sleep_mode", False)), "sleep mode is not supported: it unmaps what graphs use"),
        (
            bool(getattr(model, "enable_cumem_allocator", False)),
            "vLLM's cumem allocator is not supported: it places memory by itself",
        ),
        (model.is_multimodal_model, "models with encoders (multimodal) are not supported yet"),
        (model.is_encoder_decoder, "encoder-decoder models are not supported yet"),
        (model.runner_type != "generate", f"a {model.runner_type} model is not supported, only generation"),
        (_keeps_state(model), "models with state-space layers are not supported yet"),
        (getattr(config, "diffusion_config", None) is not None, "diffusion models are not supported yet"),
        (config.kv_transfer_config is not None, "a KV connector is not supported yet"),
        (_offloads(config), "offloading of weights is not supported yet"),
        (compilation.mode is not None and compilation.mode.name == "STOCK_TORCH_COMPILE", _STOCK),
        (
            bool(getattr(compilation, "use_inductor_graph_partition", False)),
            "Inductor's graph partition is not supported yet: set use_inductor_graph_partition to false",
        ),
        (_breakable(), "breakable CUDA graphs are not supported yet"),
    ]


_STOCK = "compilation mode 1 (stock torch.compile) captures inside PyTorch, where the plugin does not reach"


def _keeps_state(model: Any) -> bool:
    """Hybrid ones, and those of which every layer does. (What `has_inner_state` says holds for a class of models, of
    which some have no such layer.)"""
    return bool(getattr(model, "is_hybrid", False) or getattr(model, "is_attention_free", False))


def _more_than_one(parallel: Any, name: str) -> bool:
    return int(getattr(parallel, name, 1) or 1) > 1


def _offloads(config: Any) -> bool:
    """Whatever the release calls it: nothing, `cache_config.cpu_offload_gb` or an offload_config."""
    offload = getattr(config, "offload_config", None)
    amounts = [getattr(config.cache_config, "cpu_offload_gb", 0)]
    if offload is not None:
        amounts.append(getattr(getattr(offload, "uva", None), "cpu_offload_gb", 0))
        amounts.append(getattr(getattr(offload, "prefetch", None), "offload_group_size", 0))
    return any(amounts)


def _breakable() -> bool:
    try:
        from vllm.compilation.breakable_cudagraph import is_breakable_cudagraph_enabled
    except ImportError:
        return False
    return bool(is_breakable_cudagraph_enabled())
