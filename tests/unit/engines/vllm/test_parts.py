"""Names of graphs, refusals, the fingerprint, and how Foundry's worker gets chosen."""

from __future__ import annotations

import copy
import enum
import importlib
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm_world import World

from foundry.engines.vllm import keys, support

# Machines may be busy.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# ---- keys


class Mode(enum.Enum):
    FULL = 2
    PIECEWISE = 1


@dataclass(frozen=True)
class Batch:
    num_tokens: int
    num_reqs: int | None = None
    uniform: bool = False
    mode: Mode = Mode.FULL


def test_a_name_has_every_field_by_its_name() -> None:
    assert keys.name(Mode.FULL, Batch(8, 8, True)) == "FULL/num_tokens=8/num_reqs=8/uniform=True/mode=FULL"
    assert keys.name(Mode.PIECEWISE, Batch(8), 3).endswith("/num_reqs=None/uniform=False/mode=FULL/piece=3")
    named = namedtuple("named", "num_tokens lora")
    assert keys.name("FULL", named(8, 2)) == "FULL/num_tokens=8/lora=2"


batches = st.builds(
    Batch, st.integers(1, 99), st.none() | st.integers(1, 99), st.booleans(), st.sampled_from(list(Mode))
)
graphs = st.tuples(st.sampled_from(list(Mode)), batches, st.none() | st.integers(0, 99))


@UNHURRIED
@given(graphs, graphs)
def test_what_vllm_tells_apart_has_names_of_its_own(one: Any, other: Any) -> None:
    assert (keys.name(*one) == keys.name(*other)) == (one == other)


# ---- refusals


@pytest.fixture
def config(world: World) -> Any:
    world.process()
    return world.config(v2=True)


def set_(path: str, value: Any) -> Callable[[Any], None]:
    *parts, last = path.split(".")

    def change(config: Any) -> None:
        for part in parts:
            config = getattr(config, part)
        setattr(config, last, value)

    return change


def cudagraph_mode_none(config: Any) -> None:
    config.compilation_config.cudagraph_mode = type(config.compilation_config.cudagraph_mode).NONE


def stock_compile(config: Any) -> None:
    config.compilation_config.mode = type(config.compilation_config.mode).STOCK_TORCH_COMPILE


def moe_replicas(config: Any) -> None:
    config.parallel_config.data_parallel_size, config.parallel_config.is_moe_model = 2, True


REFUSED: dict[str, tuple[Callable[[Any], None], str]] = {
    "eager": (set_("model_config.enforce_eager", True), "no CUDA graphs are captured"),
    "no graphs": (cudagraph_mode_none, "no CUDA graphs are captured"),
    "no mode": (set_("compilation_config.cudagraph_mode", None), "no CUDA graphs are captured"),
    "tp": (set_("parallel_config.tensor_parallel_size", 2), "tensor parallelism"),
    "pp": (set_("parallel_config.pipeline_parallel_size", 2), "pipeline parallelism"),
    "prefill cp": (set_("parallel_config.prefill_context_parallel_size", 2), "context parallelism"),
    "decode cp": (set_("parallel_config.decode_context_parallel_size", 2), "context parallelism"),
    "ep": (set_("parallel_config.enable_expert_parallel", True), "expert parallelism"),
    "moe replicas": (moe_replicas, "mixture of experts"),
    "dbo": (set_("parallel_config.use_ubatching", True), "micro-batching"),
    "speculative": (set_("speculative_config", object()), "speculative decoding"),
    "sleep": (set_("model_config.enable_sleep_mode", True), "sleep mode"),
    "cumem": (set_("model_config.enable_cumem_allocator", True), "cumem allocator"),
    "multimodal": (set_("model_config.is_multimodal_model", True), "multimodal"),
    "encoder": (set_("model_config.is_encoder_decoder", True), "encoder-decoder"),
    "pooling": (set_("model_config.runner_type", "pooling"), "a pooling model"),
    "hybrid": (set_("model_config.is_hybrid", True), "state-space layers"),
    "no attention": (set_("model_config.is_attention_free", True), "state-space layers"),
    "diffusion": (set_("diffusion_config", object()), "diffusion models"),
    "kv connector": (set_("kv_transfer_config", object()), "KV connector"),
    "offload": (set_("cache_config.cpu_offload_gb", 4), "offloading"),
    "offload uva": (
        set_("offload_config", SimpleNamespace(uva=SimpleNamespace(cpu_offload_gb=4), prefetch=None)),
        "offloading",
    ),
    "offload prefetch": (
        set_("offload_config", SimpleNamespace(uva=None, prefetch=SimpleNamespace(offload_group_size=8))),
        "offloading",
    ),
    "stock compile": (stock_compile, "compilation mode 1"),
    "partition": (set_("compilation_config.use_inductor_graph_partition", True), "graph partition"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_a_sentence(config: Any, name: str) -> None:
    change, sentence = REFUSED[name]
    change(config)
    assert sentence in support.refusal(config)


def test_breakable_graphs_are_refused(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(is_breakable_cudagraph_enabled=lambda: True)
    monkeypatch.setitem(sys.modules, "vllm.compilation.breakable_cudagraph", module)
    assert "breakable" in support.refusal(config)
    module.is_breakable_cudagraph_enabled = lambda: False
    assert support.refusal(config) == ""


def test_every_rule_has_a_configuration_that_it_refuses(config: Any) -> None:
    tried = set()
    for change, _ in REFUSED.values():
        changed = copy.deepcopy(config)
        change(changed)
        tried.add(next(i for i, (applies, _) in enumerate(support._rules(changed)) if applies))
    untried = [sentence for i, (_, sentence) in enumerate(support._rules(config)) if i not in tried]
    assert untried == ["breakable CUDA graphs are not supported yet"]  # tried above


@pytest.mark.parametrize(
    "change",
    [
        lambda config: None,
        set_("parallel_config.data_parallel_size", 8),
        set_("parallel_config.is_moe_model", True),
        set_("model_config.has_inner_state", True),
        set_("compilation_config.mode", None),
        set_("offload_config", SimpleNamespace(uva=SimpleNamespace(cpu_offload_gb=0), prefetch=None)),
        set_("parallel_config.decode_context_parallel_size", None),
    ],
)
def test_is_taken(config: Any, change: Callable[[Any], None]) -> None:
    change(config)
    assert support.refusal(config) == ""


def test_older_releases_lack_some_of_what_is_asked_for(config: Any) -> None:
    model, parallel, compilation = config.model_config, config.parallel_config, config.compilation_config
    for part, name in (
        (model, "is_hybrid"),
        (model, "enable_sleep_mode"),
        (model, "enable_cumem_allocator"),
        (parallel, "prefill_context_parallel_size"),
        (parallel, "decode_context_parallel_size"),
        (parallel, "is_moe_model"),
        (parallel, "use_ubatching"),
        (compilation, "use_inductor_graph_partition"),
        (config, "offload_config"),
        (config.cache_config, "cpu_offload_gb"),
    ):
        delattr(part, name)
        if hasattr(type(part), name):
            delattr(type(part), name)
    assert support.refusal(config) == ""


# ---- the fingerprint


def fields(config: Any) -> dict[str, object]:
    from foundry.engines.vllm import fingerprint

    return fingerprint.fields(config, "v2")


def test_where_the_model_lies_does_not_matter(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fields(config)
    config.model_config.model = "/mnt/elsewhere"
    shape = config.model_config.hf_config.to_dict() | {"_name_or_path": "/mnt/elsewhere", "transformers_version": "9"}
    config.model_config.hf_config.to_dict = lambda: shape
    config.model_config.seed = 7
    config.model_config.max_logprobs = 5
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/mnt/cache")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("VLLM_PORT", "8000")
    monkeypatch.setenv("VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS", "2")
    # Services of a cluster, of which every container is told.
    monkeypatch.setenv("VLLM_QWEN_SERVICE_HOST", "10.0.0.7")
    monkeypatch.setenv("VLLM_QWEN_PORT_8000_TCP_ADDR", "10.0.0.7")
    monkeypatch.setenv("OTHER", "1")
    assert fields(config) == before


def other_size(config: Any) -> None:
    shape = config.model_config.hf_config.to_dict() | {"hidden_size": 2048}
    config.model_config.hf_config.to_dict = lambda: shape


def other_lora(config: Any) -> None:
    config.lora_config = importlib.import_module("vllm.config").LoRAConfig()


def other_mode(config: Any) -> None:
    config.compilation_config.cudagraph_mode = type(config.compilation_config.cudagraph_mode).FULL_AND_PIECEWISE


def other_compilation(config: Any) -> None:
    config.compilation_config.mode = type(config.compilation_config.mode).VLLM_COMPILE


CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "architecture": (set_("model_config.hf_config.architectures", ["Other"]), "model"),
    "shape": (other_size, "model_config"),
    "encoder flag": (set_("model_config.is_encoder_decoder", True), "model_config"),
    "dtype": (set_("model_config.dtype", "float16"), "model_dtype"),
    "quantization": (set_("model_config.quantization", "fp8"), "quantization"),
    "quantization as loaded": (set_("model_config.quantization_config", {"linear": "fp8"}), "model_config"),
    "length": (set_("model_config.max_model_len", 8192), "max_model_len"),
    "sequences": (set_("scheduler_config.max_num_seqs", 64), "max_num_seqs"),
    "tokens": (set_("scheduler_config.max_num_batched_tokens", 64), "max_num_batched_tokens"),
    "graph mode": (other_mode, "cudagraph_mode"),
    "sizes": (set_("compilation_config.cudagraph_capture_sizes", [8, 16]), "capture_sizes"),
    "compile mode": (other_compilation, "compilation_mode"),
    "no compile mode": (set_("compilation_config.mode", None), "compilation_mode"),
    "attention": (set_("attention_config.backend", "TRITON_ATTN"), "attention_backend"),
    "flash attention": (set_("attention_config.flash_attn_version", 2), "flash_attention"),
    "kv dtype": (set_("cache_config.cache_dtype", "fp8"), "kv_cache_dtype"),
    "block": (set_("cache_config.block_size", 32), "kv_block_size"),
    "kv bytes": (set_("cache_config.kv_cache_memory_bytes", 1 << 30), "kv_cache_bytes"),
    "blocks": (set_("cache_config.num_gpu_blocks_override", 10), "kv_blocks_override"),
    "memory": (set_("cache_config.gpu_memory_utilization", 0.5), "gpu_memory_utilization"),
    "replicas": (set_("parallel_config.data_parallel_size", 2), "parallel_layout"),
    "lora": (other_lora, "lora"),
    "cache hash": (set_("cache_config.salt", "x"), "vllm_config"),
    "parallel hash": (set_("parallel_config.salt", "x"), "vllm_config"),
    "scheduler hash": (set_("scheduler_config.salt", "x"), "vllm_config"),
    "attention hash": (set_("attention_config.salt", "x"), "vllm_config"),
    "compilation hash": (set_("compilation_config.salt", "x"), "vllm_config"),
    "additional": (set_("additional_config", {"a": 1}), "vllm_config"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_relevant_field_changes_it(config: Any, name: str) -> None:
    change, field = CHANGES[name]
    before = fields(config)
    change(config)
    after = fields(config)
    assert before[field] != after[field]


def test_the_runner_the_release_and_the_environment_change_it(
    config: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foundry.engines.vllm import fingerprint

    before = fields(config)
    assert fingerprint.fields(config, "v1")["vllm_runner"] != before["vllm_runner"]
    monkeypatch.setenv("VLLM_USE_TRITON_AWQ", "1")
    assert fields(config)["vllm_environment"] == "VLLM_USE_TRITON_AWQ=1"
    monkeypatch.setattr("vllm.__version__", "0.24.1")
    assert fields(config)["vllm"] == "0.24.1"


def test_every_value_can_be_a_fingerprint_field(config: Any) -> None:
    assert all(isinstance(value, (str, int, float)) for value in fields(config).values())


def test_it_is_the_same_in_every_process(config: Any) -> None:
    """Text of objects has addresses, sets of text have an order per process."""
    from foundry.engines.vllm import fingerprint

    class Nameless:
        pass

    class Hashed:
        def compute_hash(self) -> str:
            return "h"

    class Named:
        def __str__(self) -> str:
            return "torch.bfloat16"

    assert fingerprint._digest({"a": Nameless()}) == fingerprint._digest({"a": Nameless()})
    assert fingerprint._digest({"a": Hashed()}) == fingerprint._digest({"a": "h"})
    assert fingerprint._digest({"a": Named()}) == fingerprint._digest({"a": "torch.bfloat16"})
    program = (
        "from foundry.engines.vllm import fingerprint;"
        "print(fingerprint._digest({'a': {'x', 'y', 'z', 'w'}, 'b': frozenset('abc')}))"
    )
    root = Path(importlib.import_module("foundry").__file__ or "").parents[1]
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(digests) == 1


# ---- the plugin


def test_it_does_nothing_without_foundry_mode(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "", "off"):
        world.process()
        if value is None:
            monkeypatch.delenv("FOUNDRY_MODE", raising=False)
        else:
            monkeypatch.setenv("FOUNDRY_MODE", value)
        from foundry.engines import vllm as entry

        entry.register()
        assert "foundry.engines.vllm.plugin" not in sys.modules
        assert not [name for name in sys.modules if name.startswith("vllm.")]


def chosen(world: World, worker_cls: str = "auto") -> tuple[str, list[str]]:
    """The worker that vLLM then has, and what was said."""
    from foundry.engines import vllm as entry

    entry.register()
    config = world.config()
    config.parallel_config.worker_cls = worker_cls
    importlib.import_module("vllm.platforms").current_platform.check_and_update_config(config)
    said = [line.removeprefix("say Foundry: ") for line in importlib.import_module("vllm").log]
    return config.parallel_config.worker_cls, said


def test_it_chooses_foundrys_worker(world: World) -> None:
    world.process(MODE="load")
    assert chosen(world) == ("foundry.engines.vllm.worker.Worker", [])
    # vLLM calls plugins several times, and resolves its configuration several times.
    assert chosen(world, "foundry.engines.vllm.worker.Worker") == ("foundry.engines.vllm.worker.Worker", [])
    assert "foundry.engines.vllm.worker" not in sys.modules, "the worker is imported by vLLM when it is needed"
    assert "torch" not in sys.modules["foundry.engines.vllm.plugin"].__dict__


def test_a_users_own_worker_stays(world: World) -> None:
    world.process(MODE="load")
    name, said = chosen(world, "mine.Worker")
    assert name == "mine.Worker"
    assert said == ["serving natively: the worker is mine.Worker, not vLLM's own"]
    world.process(MODE="load", ON_MISMATCH="fail")
    with pytest.raises(RuntimeError, match="mine.Worker"):
        chosen(world, "mine.Worker")


def test_an_unknown_release_is_served_natively(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.process(MODE="load")
    platform = importlib.import_module("vllm.platforms.interface").Platform
    original = platform.check_and_update_config.__func__

    def takes_another(cls: Any, config: Any) -> None:
        original(cls, config)

    monkeypatch.setattr(platform, "check_and_update_config", classmethod(takes_another))
    name, said = chosen(world)
    assert name == "vllm.v1.worker.gpu_worker.Worker"
    assert len(said) == 1
    assert said[0].startswith("serving natively: this vLLM is not one that the plugin knows: ")
    assert "takes (config), the plugin knows (vllm_config, ...)" in said[0]


def test_other_platforms_are_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.process(MODE="load")
    platform = importlib.import_module("vllm.platforms.interface").Platform
    monkeypatch.setattr(platform, "is_cuda", classmethod(lambda cls: False))
    name, said = chosen(world)
    assert name == "vllm.v1.worker.gpu_worker.Worker"
    assert said == ["serving natively: the platform is NvmlCudaPlatform, Foundry needs CUDA"]
