"""One process that starts vLLM, generates greedily and writes what it did as JSON.

    python -m foundry.recipes.engines.vllm_process --json out.json

Foundry's part comes from the environment, as `foundry run` sets it. The default model has the shape of Qwen3-0.6B and
random weights, so nothing is downloaded and no tokenizer is needed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foundry.recipes.engines import random_model, vllm_graphs, vllm_workers
from foundry.recipes.engines.vllm_engines import Asynchronous, Offline

STARTED = time.time()

# Nothing is looked up in a network, and one process holds everything unless --separate.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
ADAPTER_RANK = 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options that shape the engine; recipes hand them on."""
    parser.add_argument("--model", help="a model's folder or name (default: Qwen3-0.6B's shape, random weights)")
    parser.add_argument("--layers", type=int, default=28, help="of the default model (default: %(default)s)")
    parser.add_argument(
        "--runner", default="auto", choices=("auto", "v1", "v2"), help="vLLM's model runner (default: vLLM chooses)"
    )
    parser.add_argument("--compile", type=int, default=0, choices=(0, 3), help="vLLM's compilation mode (default: 0)")
    parser.add_argument(
        "--cudagraph",
        default="FULL_DECODE_ONLY",
        choices=("FULL_DECODE_ONLY", "FULL", "FULL_AND_PIECEWISE"),
        help="vLLM's cudagraph_mode (default: %(default)s)",
    )
    parser.add_argument(
        "--sizes", default="all", help='capture sizes, as 1,2,8 (default: "all", 1, 2, 4, 8, 16, ... 512)'
    )
    parser.add_argument("--max-num-seqs", type=int, default=512, help="largest batch (default: %(default)s)")
    parser.add_argument("--max-model-len", type=int, default=2048, help="longest sequence (default: %(default)s)")
    parser.add_argument(
        "--adapter", action="store_true", help="LoRA, with an adapter of random weights (default model)"
    )
    parser.add_argument("--attention", help="attention backend, for instance TRITON_ATTN")
    parser.add_argument(
        "--kv-gib", type=float, default=16.0, help="of KV cache; 0: vLLM profiles (default: %(default)s)"
    )
    parser.add_argument("--memory", type=float, default=0.9, help="gpu_memory_utilization (default: %(default)s)")
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs at all")
    parser.add_argument("--separate", action="store_true", help="the engine in a process of its own, as in a server")
    parser.add_argument(
        "--asynchronous", action="store_true", help="AsyncLLM, the class behind `vllm serve`; separate, too"
    )
    parser.add_argument(
        "--replicas", type=int, default=1, help="data-parallel replicas, a GPU each (with --asynchronous)"
    )
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 64, 256], help="batch sizes to time")
    parser.add_argument("--tokens", type=int, default=64, help="per prompt (default: %(default)s)")


def capture_sizes(text: str) -> list[int]:
    """The list that --sizes names."""
    return [1, 2, 4, *range(8, 513, 8)] if text == "all" else [int(size) for size in text.split(",")]


def engine_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of vllm.LLM."""
    model = options.model
    random_weights = model is None
    if model is None:
        model = random_model.write(random_model.place(options.layers), options.layers)
    arguments: dict[str, Any] = {
        "model": model,
        "skip_tokenizer_init": True,
        "dtype": "bfloat16" if random_weights else "auto",
        "max_model_len": options.max_model_len,
        "max_num_seqs": options.max_num_seqs,
        "gpu_memory_utilization": options.memory,
        "seed": 0,
        "enable_prefix_caching": False,
        "disable_log_stats": True,
    }
    if random_weights:
        arguments["load_format"] = "dummy"
    if options.adapter:
        arguments |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": ADAPTER_RANK}
    if options.kv_gib:
        arguments["kv_cache_memory_bytes"] = int(options.kv_gib * 2**30)
    if options.attention:
        arguments["attention_backend"] = options.attention
    if options.eager:
        arguments["enforce_eager"] = True
    else:
        arguments["compilation_config"] = {
            "mode": options.compile,
            "cudagraph_mode": options.cudagraph,
            "cudagraph_capture_sizes": capture_sizes(options.sizes),
        }
    return arguments


class Counts:
    """How often this process captured a graph or ran a forward that serves nobody, and how long steps of the start took."""

    def __init__(self) -> None:
        self.captures = 0
        self.dummy_runs = 0
        self.seconds: dict[str, float] = {}

    def install(self) -> None:
        """Counts from now on. In-process engines only: the engine's own process has counts of its own."""
        import torch

        self._count(torch.cuda.CUDAGraph, "capture_begin", "captures")
        for module in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner"):
            runner = _attribute(module, "GPUModelRunner")
            if runner is not None:
                self._count(runner, "_dummy_run", "dummy_runs")
                for method in ("load_model", "profile_run", "capture_model"):
                    self._time(runner, method)

    def _count(self, owner: Any, method: str, counter: str) -> None:
        original = getattr(owner, method)

        @functools.wraps(original)  # the plugin looks at signatures
        def counted(this: Any, *args: Any, **kwargs: Any) -> Any:
            setattr(self, counter, getattr(self, counter) + 1)
            return original(this, *args, **kwargs)

        setattr(owner, method, counted)

    def _time(self, owner: Any, method: str) -> None:
        original = getattr(owner, method)

        @functools.wraps(original)
        def timed(this: Any, *args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return original(this, *args, **kwargs)
            finally:
                self.seconds[method] = self.seconds.get(method, 0.0) + time.perf_counter() - begin

        setattr(owner, method, timed)


def _attribute(module: str, name: str) -> Any:
    import importlib

    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def main(argv: Sequence[str] | None = None) -> int:
    """Starts the engine, generates, writes the results; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m foundry.recipes.engines.vllm_process", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    add_options(parser)
    parser.add_argument("--json", required=True, metavar="FILE", help="where to write the results")
    parser.add_argument("--compare", action="store_true", help="also time restored graphs against native ones in turns")
    options = parser.parse_args(argv)
    options.separate = options.separate or options.asynchronous
    if options.adapter and options.model is not None:
        parser.error("--adapter is made for the default model, not for --model")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1" if options.separate else "0"
    if options.separate:  # for functions that run in the engine's process
        os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    if options.runner != "auto":
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if options.runner == "v2" else "0"
    results = run(options)
    Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads and the driver's exit handlers have nothing to add


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The results. Times are seconds since the process started, unless they say otherwise."""
    import torch
    import vllm

    seconds = {"imports": time.time() - STARTED}
    counts = Counts()
    if not options.separate:
        counts.install()
    begin = time.time()
    arguments = engine_arguments(options)
    engine = Asynchronous(arguments, options.replicas) if options.asynchronous else Offline(arguments)
    seconds["engine_init"] = time.time() - begin
    in_start = {"captures": counts.captures, "dummy_runs": counts.dummy_runs}

    def generate(count: int, tokens: int) -> tuple[list[list[int]], float]:
        return engine.answer(random_model.prompts(count), tokens)

    begin = time.time()
    generate(1, 1)
    seconds["first_token"] = time.time() - begin
    seconds["start_to_first_token"] = time.time() - STARTED
    if options.model is None:
        engine.in_workers("apply_model", vllm_workers.refill)

    def one_by_one(*replica: int) -> list[list[int]]:
        # Which prompts an engine process takes into its first steps together depends on when they arrive.
        return [engine.answer([prompt], options.tokens, *replica)[0][0] for prompt in random_model.prompts(8)]

    batches = [count for count in options.batches if count <= options.max_num_seqs]
    tokens = {"alone": one_by_one()}
    if isinstance(engine, Asynchronous) and options.replicas > 1:
        for replica in range(options.replicas):
            tokens[f"replica {replica}"] = one_by_one(replica)
    if options.adapter:
        folder = random_model.place(options.layers, "-adapter")
        engine.use_adapter(random_model.adapter(folder, options.layers, ADAPTER_RANK))
        tokens["adapter"] = one_by_one()
        engine.use_adapter(None)
    milliseconds = {}
    for count in batches:
        tokens[str(count)] = generate(count, options.tokens)[0]
        # A second token's worth of time less than the first: prefill cancels out.
        short = min(generate(count, options.tokens // 4)[1] for _ in range(2))
        long = min(generate(count, options.tokens)[1] for _ in range(2))
        milliseconds[str(count)] = 1e3 * (long - short) / (options.tokens - options.tokens // 4)
    accounts = engine.in_workers(vllm_workers.foundry_account)
    results = {
        "vllm": vllm.__version__,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "runner": "v2" if getattr(engine.config, "use_v2_model_runner", False) else "v1",
        "options": vars(options),
        "seconds": {name: round(value, 3) for name, value in {**seconds, **counts.seconds}.items()},
        "in_start": in_start,
        "captures": counts.captures,
        "tokens": tokens,
        "ms_per_token": {name: round(value, 4) for name, value in milliseconds.items()},
        "foundry": accounts[0],
        "replicas": accounts,
    }
    if options.compare:
        results["replays"] = engine.in_workers(vllm_graphs.compare)[0]
    if isinstance(engine, Asynchronous):
        engine.close()
    return results


if __name__ == "__main__":
    sys.exit(main())
