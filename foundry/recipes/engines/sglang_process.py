"""An SGLang engine in one process tree: started, asked for tokens, timed; native, or under `foundry run`.

    foundry run --save --archive sglang.fdry -- python -m foundry.recipes.engines.sglang_process --json save.json
    foundry run --load --archive sglang.fdry -- python -m foundry.recipes.engines.sglang_process --json load.json

Without --model it has the shape of Qwen3-0.6B, dummy weights (refilled with N(0, 0.02), the same in every process) and
no tokenizer, and downloads nothing. Needs SGLang and a GPU.

Exit code: 0, or whatever SGLang ends with.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foundry.recipes.engines import random_model, sglang_graphs, sglang_probe
from foundry.recipes.engines.in_turns import compared
from foundry.recipes.engines.runs import READY, VALUE

PLUGINS = {
    "foundry": "foundry.engines.sglang:register",
    "foundry_probe": "foundry.recipes.engines.sglang_probe:register",
}
LOADERS = [
    sglang_graphs.loader(function)
    for function in (
        sglang_graphs.refill,
        sglang_graphs.capture_again,
        sglang_graphs.use_native,
        sglang_graphs.use_restored,
        sglang_graphs.replay_in_turns,
    )
]


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the engine is and what it is asked for."""
    parser.add_argument("--model", help="folder or name of a model (default: dummy weights, nothing is downloaded)")
    parser.add_argument("--layers", type=int, default=28, help="of the dummy model")
    parser.add_argument("--max-batch", type=int, default=16, help="largest batch with a graph (default: %(default)s)")
    parser.add_argument("--context", type=int, default=2048, help="longest sequence (default: %(default)s)")
    parser.add_argument("--memory", type=float, default=0.3, help="fraction of the GPU for weights and KV cache")
    parser.add_argument("--kv-tokens", type=int, help="tokens in the KV cache (default: what fits into --memory)")
    parser.add_argument("--attention", default="triton", help="attention backend (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="tokens per answer (default: %(default)s)")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 16], help="batch sizes to ask and time")
    parser.add_argument("--repeats", type=int, default=9, help="timed rounds per batch size (default: %(default)s)")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m foundry.recipes.engines.sglang_process",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    parser.add_argument("--compare", action="store_true", help="LOAD: capture natively too, and measure both in turns")
    parser.add_argument("--serve", action="store_true", help="then measure a batch size for every line of input")
    return parser.parse_args(argv)


def show_plugins(folder: str) -> None:
    """Makes the plugins visible to this process and its children, from a workspace too, where no package is installed."""
    info = Path(folder, "foundry_recipe-0.dist-info")
    info.mkdir(parents=True, exist_ok=True)
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: foundry-recipe\nVersion: 0\n")
    import importlib.metadata

    known = {entry.name for entry in importlib.metadata.entry_points(group="sglang.srt.plugins")}
    lines = [f"{name} = {target}" for name, target in PLUGINS.items() if name not in known]
    info.joinpath("entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *lines, ""]))
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)


def without_prefill_graphs() -> dict[str, Any]:
    """The option of this release that leaves out graphs of prefill: they are none of Foundry's, and take minutes."""
    from sglang.srt.server_args import ServerArgs

    known = {field.name for field in dataclasses.fields(ServerArgs)} if dataclasses.is_dataclass(ServerArgs) else set()
    if "disable_piecewise_cuda_graph" in known:
        return {"disable_piecewise_cuda_graph": True}
    return {"cuda_graph_backend_prefill": "disabled"}


class Engine:
    """One engine, and what it answers."""

    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self._options = options
        for name, value in (
            ("NCCL_SOCKET_IFNAME", "lo"),
            ("GLOO_SOCKET_IFNAME", "lo"),
            ("SGLANG_HOST_IP", "127.0.0.1"),
        ):
            os.environ.setdefault(name, value)
        begin = time.perf_counter()
        import sglang

        self.import_seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        dummy = not options.model
        if dummy:
            os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
            random_model.write(Path(folder), options.layers)
        self._engine = sglang.Engine(
            model_path=folder if dummy else options.model,
            load_format="dummy" if dummy else "auto",
            dtype="bfloat16" if dummy else "auto",
            skip_tokenizer_init=True,
            attention_backend=options.attention,
            sampling_backend="pytorch",
            grammar_backend="none",
            disable_radix_cache=True,
            **without_prefill_graphs(),
            cuda_graph_max_bs=options.max_batch,
            mem_fraction_static=options.memory,
            max_total_tokens=options.kv_tokens,
            context_length=options.context,
            custom_weight_loader=LOADERS,
            random_seed=0,
            log_level="info",
        )
        self.start_seconds = time.perf_counter() - begin
        if dummy:
            self.call(sglang_graphs.refill)

    def call(self, function: Any) -> None:
        """One of sglang_graphs' functions, in the scheduler."""
        self._engine.update_weights_from_tensor([], load_format=sglang_graphs.loader(function), flush_cache=False)

    def generate(self, batch: int, tokens: int, first: int = 0) -> list[list[int]]:
        """Greedy tokens of `batch` prompts."""
        prompts = random_model.prompts(batch, first)
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        return [answer["output_ids"] for answer in self._engine.generate(input_ids=prompts, sampling_params=sampling)]

    def step_ms(self, batch: int, tokens: int) -> float:
        """Milliseconds a step: the difference of a long and a short answer, so that the prefill does not count."""
        short = 4
        begin = time.perf_counter()
        self.generate(batch, short)
        middle = time.perf_counter()
        self.generate(batch, tokens)
        end = time.perf_counter()
        return ((end - middle) - (middle - begin)) * 1e3 / (tokens - short)

    def close(self) -> None:
        """Ends the processes of the engine."""
        self._engine.shutdown()


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options = arguments(argv)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(sglang_probe.FILE_VARIABLE, str(Path(folder, "probe.jsonl")))
        probe = os.environ[sglang_probe.FILE_VARIABLE]
        show_plugins(folder)
        engine = Engine(options, folder)
        results: dict[str, Any] = {"options": vars(options)}
        results["seconds"] = {"imports": engine.import_seconds, "engine_init": engine.start_seconds}
        begin = time.perf_counter()
        engine.generate(1, 1)
        results["seconds"]["first_token"] = time.perf_counter() - begin
        # 8 different prompts, then each batch size with prompts of its own.
        results["tokens"] = {"8 prompts": engine.generate(8, options.tokens)}
        for batch in options.batches:
            results["tokens"][str(batch)] = engine.generate(batch, options.tokens, first=100)
        results["ms_per_token"] = {
            str(batch): statistics.median(engine.step_ms(batch, options.tokens) for _ in range(options.repeats))
            for batch in options.batches
        }
        results["probe"] = sglang_probe.read(probe)
        results["foundry"] = next(line["account"] for line in results["probe"] if line["kind"] == "foundry")
        if options.compare:
            results.update(compare(engine, options, probe))
        if options.json:
            Path(options.json).write_text(json.dumps(results))
        print(json.dumps({key: results[key] for key in ("seconds", "ms_per_token")}), flush=True)
        if options.serve:
            serve(engine, options)
        engine.close()
    return 0


def compare(engine: Engine, options: argparse.Namespace, probe: str) -> dict[str, Any]:
    """Restored graphs against native ones of this process, captured again: replays, and whole steps of the engine."""
    engine.call(sglang_graphs.capture_again)
    native, restored = sglang_graphs.use_native, sglang_graphs.use_restored
    steps, equal = [], {}
    for batch in options.batches:
        answers = []
        for kind in (native, restored):
            engine.call(kind)
            answers.append(engine.generate(batch, options.tokens, first=100))
        equal[str(batch)] = answers[0] == answers[1]
        sglang_graphs.ask_for(batch)
        engine.call(sglang_graphs.replay_in_turns)
        times: dict[Any, list[float]] = {native: [], restored: []}
        for turn in range(options.repeats):
            for kind in (native, restored) if turn % 2 else (restored, native):
                engine.call(kind)
                times[kind].append(engine.step_ms(batch, options.tokens))
        steps.append({"batch": batch, **compared(times[native], times[restored])})
    replays = [line["row"] for line in sglang_probe.read(probe) if line["kind"] == "replays"]
    return {"replays": replays, "steps": steps, "equal_in_process": equal}


def serve(engine: Engine, options: argparse.Namespace) -> None:
    """Lines of a batch size each; answers with milliseconds. For measurements in turns with another process."""
    print(READY, flush=True)
    for line in sys.stdin:
        print(f"{VALUE}{engine.step_ms(int(line), options.tokens)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
