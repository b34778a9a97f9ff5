"""Decode graphs of a 28-layer model, saved in one process and restored in the next, compared bit for bit.

    foundry run --save -- python -m foundry.recipes.torch_decode --save --archive decode.fdry
    python -m foundry.recipes.torch_decode --load --archive decode.fdry

SAVE writes golden outputs beside the archive (ARCHIVE.golden.pt). LOAD replays every graph against them and times
restored graphs against ones captured natively in the same process, in turns. Needs a GPU and PyTorch 2.8 or later.

Exit code: 0 if every graph is restored and equal (LOAD), saved (SAVE) or captured (native); 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import foundry

DRIFTS = ("extra", "generator", "empty_cache", "reorder", "mutable")


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m foundry.recipes.torch_decode",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    for name, text in (
        ("save", "capture and publish the archive"),
        ("load", "restore and compare"),
        ("native", "capture only"),
    ):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name, help=text)
    parser.add_argument("--archive", default="decode.fdry", help="directory of the archive (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write the results there too")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--max-batch", type=int, default=512)
    parser.add_argument("--step", type=int, default=8, help="distance of batch sizes (default: 8, 67 graphs)")
    parser.add_argument("--cache-length", type=int, default=256, help="tokens per sequence")
    parser.add_argument("--attention", default="flash", choices=("flash", "efficient", "math", "cudnn"))
    parser.add_argument("--dropout", type=float, default=0.0, help="makes the graphs draw random numbers")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument(
        "--compare", type=int, nargs="*", default=[1, 8, 64, 256, 512], help="sizes whose steps to time"
    )
    parser.add_argument("--repeats", type=int, default=40, help="timed rounds per size")
    parser.add_argument(
        "--on-mismatch", choices=("fallback", "fail"), help="default: FOUNDRY_ON_MISMATCH, else fallback"
    )
    parser.add_argument(
        "--drift", action="append", default=[], choices=DRIFTS, help="do this differently from the other side"
    )
    return parser.parse_args(argv)


class Decode:
    """The engine: model, caches, inputs, and a graph per batch size."""

    def __init__(self, options: argparse.Namespace) -> None:
        from foundry.recipes.torch_model import DecoderConfig, batch_sizes

        self.options = options
        self.config = DecoderConfig(
            layers=options.layers,
            max_batch=options.max_batch,
            cache_length=options.cache_length,
            attention=options.attention,
            dropout=options.dropout,
        )
        self.sizes = batch_sizes(options.max_batch, options.step)
        self.graphs: dict[int, Any] = {}
        self.keep: list[Any] = []
        self.milliseconds: dict[str, float] = {}

    def start(self, session: foundry.Session) -> None:
        """The engine's start, in the session."""
        import torch

        from foundry.recipes.torch_model import Decoder, make_caches

        drift = self.options.drift
        if "extra" in drift:
            self.keep += [torch.randn(1000 + 777 * i, 333, device="cuda") for i in range(20)]
            self.keep.append(torch.empty(300 << 20, dtype=torch.uint8, device="cuda"))
        begin = time.perf_counter()
        with session as s:
            self.lap("session", begin)
            begin = time.perf_counter()
            with s.phase("weights"):
                self.model = s.register_module("model", Decoder(self.config, reverse="reorder" in drift))
            if "empty_cache" in drift:
                torch.cuda.empty_cache()
            if "extra" in drift:
                self.keep.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda"))
            with s.phase("kv_cache"):
                self.caches = make_caches(self.config)
                for i, (keys, values) in enumerate(self.caches):
                    s.register(f"cache.{i}.keys", keys, mutable=True)
                    s.register(f"cache.{i}.values", values, mutable=True)
            with s.phase("inputs"):
                if "mutable" in drift:
                    self.keep.append(torch.zeros(self.config.max_batch, dtype=torch.int64, device="cuda"))
                zeros = [torch.zeros(self.config.max_batch, dtype=torch.int64, device="cuda") for _ in range(2)]
                self.ids = s.register("ids", zeros[0], mutable=True)
                self.positions = s.register("positions", zeros[1], mutable=True)
            torch.cuda.synchronize()
            self.lap("engine", begin)
            begin = time.perf_counter()
            if "generator" in drift:
                self.keep.append(s.graph("noise", lambda: torch.rand(64, device="cuda")))
                torch.rand(64, device="cuda")
            for n in reversed(self.sizes):
                self.graphs[n] = s.graph(f"decode/{n}", self.step_of(n), warmup=self.options.warmup)
            self.lap("graphs", begin)
            begin = time.perf_counter()
        self.lap("end", begin)
        begin = time.perf_counter()
        session.wait()
        self.lap("wait", begin)
        torch.cuda.synchronize()

    def lap(self, name: str, begin: float) -> None:
        """Notes the time since `begin`."""
        self.milliseconds[name] = round((time.perf_counter() - begin) * 1e3, 3)

    def step_of(self, n: int) -> Callable[[], Any]:
        """The function that a graph of n rows is captured from."""
        return lambda: self.model(self.ids[:n], self.positions[:n], self.caches)

    def set_inputs(self, round_: int) -> None:
        """Tokens and positions of a round; the same in every process."""
        import torch

        generator = torch.Generator().manual_seed(round_)
        n = self.config.max_batch
        self.ids.copy_(torch.randint(self.config.vocabulary, (n,), generator=generator))
        # One cache position for all rounds: each overwrites it before it is read, so rounds do not depend on others.
        self.positions.copy_(torch.arange(n) % self.config.cache_length)

    def run(self, n: int, round_: int, graph: Any = None) -> dict[str, Any]:
        """Outputs of one replay, on the host."""
        import torch

        self.set_inputs(round_)
        graph = graph or self.graphs[n]
        torch.manual_seed(1000 + round_)  # with dropout, restored graphs must draw what native ones draw
        for tensor in graph.outputs.values():
            tensor.zero_()  # a replay that does nothing must not pass
        graph.replay()
        return {name: tensor.cpu() for name, tensor in graph.outputs.items()}

    def all_outputs(self) -> dict[str, Any]:
        """Outputs of every graph in two rounds, from the caches' first content on."""
        from foundry.recipes.torch_model import fill_caches

        fill_caches(self.caches)
        return {
            f"{n}/{round_}/{name}": tensor
            for n in self.sizes
            for round_ in range(2)
            for name, tensor in self.run(n, round_).items()
        }


def equal_bits(a: Any, b: Any) -> bool:
    """Whether two tensors hold the same bytes."""
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)))


def compare(outputs: dict[str, Any], golden: dict[str, Any]) -> list[str]:
    """Keys that differ, with the largest difference."""
    different = []
    for key, tensor in golden.items():
        if not equal_bits(outputs[key], tensor):
            most = (outputs[key].double() - tensor.double()).abs().max().item()
            different.append(f"{key}: up to {most:.4g} of {tensor.double().abs().max().item():.4g}")
    return different


def step_times(decode: Decode, sizes: Sequence[int], repeats: int) -> tuple[list[dict[str, float]], list[str]]:
    """Milliseconds of a step, restored and native in turns; also sizes where the two differ in a bit."""
    import torch

    from foundry.native import capture
    from foundry.recipes.torch_model import fill_caches
    from foundry.torch import runtime

    rows, different = [], []
    for n in sizes:
        native = capture(runtime(), decode.step_of(n), 2)
        fill_caches(decode.caches)
        same = [compare(decode.run(n, r), decode.run(n, r, native)) for r in range(2)]
        different += [f"native {key}" for each in same for key in each]
        times: dict[str, list[float]] = {"restored": [], "native": []}
        pair = {"restored": decode.graphs[n].replay, "native": native.replay}
        inner = 10
        for turn in range(repeats):
            for name in ("restored", "native") if turn % 2 else ("native", "restored"):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                for _ in range(inner):
                    pair[name]()
                end.record()
                end.synchronize()
                times[name].append(start.elapsed_time(end) / inner)
        medians = {name: round(statistics.median(values), 5) for name, values in times.items()}
        rows.append({"batch": n, **medians, "ratio": round(medians["restored"] / medians["native"], 5)})
    return rows, different


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the recipe; returns the exit code."""
    options = arguments(argv)
    logging.getLogger("foundry").addHandler(logging.NullHandler())  # the report is printed below
    try:
        import torch
    except ModuleNotFoundError:
        print("torch_decode needs PyTorch 2.8 or later: install it into this environment", file=sys.stderr)
        return 1

    begin = time.perf_counter()
    torch.cuda.init()
    torch.cuda.synchronize()
    context = (time.perf_counter() - begin) * 1e3
    decode = Decode(options)
    mode = "off" if options.mode == "native" else options.mode
    fields = {"recipe": "torch_decode", **vars(decode.config), "sizes": decode.sizes}
    session = foundry.session(options.archive, mode, on_mismatch=options.on_mismatch, fingerprint=fields)
    results: dict[str, Any] = {"mode": options.mode, "graphs": len(decode.sizes), "torch": torch.__version__}
    results["preload"] = os.environ.get("LD_PRELOAD", "")
    try:
        with torch.no_grad():
            decode.start(session)
            good = finish(decode, session, options, results)
    except foundry.FoundryError as problem:
        print(f"{problem}", file=sys.stderr)
        return 1
    results["milliseconds"] = {"context": round(context, 3), **decode.milliseconds}
    text = json.dumps(results, indent=1)
    print(session.report)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")
    return 0 if good else 1


def finish(decode: Decode, session: foundry.Session, options: argparse.Namespace, results: dict[str, Any]) -> bool:
    """Checks and times what the mode asks for; whether all is well."""
    import torch

    report = session.report
    golden = Path(f"{options.archive}.golden.pt")
    begin = time.perf_counter()
    outputs = decode.all_outputs()
    decode.lap("replays", begin)
    results["outcome"] = report.outcome
    results["report"] = {
        "restored": len(report.restored),
        "fell_back": report.fell_back,
        "left_out": report.left_out,
        "reseated": [r.name for r in report.reseated],
        "differences": report.differences,
        "warnings": report.warnings,
        "nodes": report.nodes,
        "images": report.images,
        "mapped_bytes": report.mapped_bytes,
        "content_bytes": report.content_bytes,
        "stored_bytes": report.stored_bytes,
        "bytes_by_file": report.bytes_by_file,
        "milliseconds": {name: round(value, 3) for name, value in report.milliseconds.items()},
    }
    if options.mode == "native":
        return True
    if options.mode == "save":
        # Native replays that do not repeat bit for bit cannot judge restored ones.
        again = decode.all_outputs()
        results["not_repeatable"] = compare(again, outputs)
        torch.save(outputs, golden)
        results["archive_bytes"] = sum(f.stat().st_size for f in Path(report.archive).rglob("*") if f.is_file())
        return report.outcome == "saved" and not [n for n in decode.sizes if f"decode/{n}" in report.left_out]
    results["different"] = compare(outputs, torch.load(golden, weights_only=True))
    results["compared"] = len(outputs)
    sizes = [n for n in options.compare if n in decode.graphs]
    results["step_ms"], different = step_times(decode, sizes, options.repeats)
    results["different"] += different
    results["not_restored"] = [n for n, graph in decode.graphs.items() if graph.source != "restored"]
    return not results["different"] and not results["not_restored"]


if __name__ == "__main__":
    sys.exit(main())
