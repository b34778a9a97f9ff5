"""A program whose graph returns every kind of output; checks them itself and writes what it found as JSON."""

from __future__ import annotations

import argparse
import collections
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import torch

import foundry

Result = collections.namedtuple("Result", ["whole", "tail", "count"])
DTYPES = ["bfloat16", "float16", "float32", "float64", "int64", "int8", "bool", "complex64", "float8_e4m3fn"]


def forward(x: torch.Tensor, w: torch.Tensor, kept: torch.Tensor) -> dict[str, Any]:
    """Kernels of several kinds, and outputs of all shapes."""
    whole = x * 2 + w
    kept.add_(1)
    return {
        "named": Result(whole, whole[4:], 3),
        "again": whole,
        "strided": (x @ w.t())[1:, ::2],
        "anchor view": x[2:4],
        "list": [None, True, 1.5, "text", (whole.sum(), -7)],
        "empty": whole[:0],
        "scalar": whole.amax(),
        "maximum": torch.max(whole, 1),
        "types": {name: (x > 0).to(torch.float32).to(getattr(torch, name)) for name in DTYPES},
        "kept": kept,
        "memset": torch.zeros(1000, device="cuda"),
    }


def check(out: dict[str, Any], x: torch.Tensor, w: torch.Tensor) -> list[str]:
    """What is wrong with the outputs for the current x and w."""
    expected = x * 2 + w
    largest = torch.max(expected, 1)
    shares = out["named"].whole.untyped_storage().data_ptr()
    facts = {
        "whole": torch.equal(out["named"].whole, expected),
        "tail": torch.equal(out["named"].tail, expected[4:]) and out["named"].tail.shape == expected[4:].shape,
        "named fields": out["named"].count == 3 and out["named"]._fields == Result._fields,
        "same object": out["again"] is out["named"].whole,
        "shared storage": out["named"].tail.untyped_storage().data_ptr() == shares,
        "strided": torch.allclose(out["strided"], (x @ w.t())[1:, ::2], rtol=1e-4, atol=1e-4),
        "strides": out["strided"].stride() == (x @ w.t())[1:, ::2].stride(),
        "anchor view": out["anchor view"].data_ptr() == x[2:4].data_ptr(),
        "list": out["list"][:4] == [None, True, 1.5, "text"] and out["list"][4][1] == -7,
        "sum": bool(torch.isclose(out["list"][4][0], expected.sum(), rtol=1e-4)),
        "empty": out["empty"].shape == expected[:0].shape,
        "scalar": out["scalar"].dim() == 0 and torch.equal(out["scalar"], expected.amax()),
        "maximum": torch.equal(out["maximum"].values, largest.values)
        and torch.equal(out["maximum"].indices, largest.indices),
        "memset": torch.equal(out["memset"], torch.zeros(1000, device="cuda")),
    }
    for name, tensor in out["types"].items():
        dtype = getattr(torch, name)
        facts[name] = tensor.dtype == dtype and torch.equal(tensor.to(torch.float32), (x > 0).to(torch.float32))
    return [name for name, good in facts.items() if not good]


def main() -> None:
    """Runs in the mode of the command line."""
    parser = argparse.ArgumentParser()
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("save", "load"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--json", required=True)
    options = parser.parse_args()

    wrong: list[str] = []
    session = foundry.session(options.archive, options.mode)
    with session as s:
        with s.phase("weights"):
            w = s.register("w", torch.linspace(-1, 1, 64 * 64, device="cuda").view(64, 64))
        with s.phase("inputs"):
            x = s.register("x", torch.zeros(64, 64, device="cuda"), mutable=True)
            kept = s.register("kept", torch.zeros(8, device="cuda"), mutable=True)
        graph = s.graph("all", lambda: forward(x, w, kept))
        plain = s.graph("plain", lambda: x.sum(), warmup=1)
        other = s.graph("odd", lambda: (x + 1, object()), warmup=1)
    session.wait()
    for seed in range(3):
        x.copy_(torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)))
        before = kept.clone()
        for tensor in [graph.outputs["named"].whole, graph.outputs["strided"], *graph.outputs["types"].values()]:
            tensor.view(torch.uint8 if tensor.is_contiguous() else tensor.dtype).zero_()
        graph.replay()
        torch.cuda.synchronize()
        wrong += [f"{name} with seed {seed}" for name in check(graph.outputs, x, w)]
        if not torch.equal(kept, before + 1) or graph.outputs["kept"].data_ptr() != kept.data_ptr():
            wrong.append(f"kept with seed {seed}")
        plain.replay()
        if not torch.isclose(plain.outputs, x.sum(), rtol=1e-3, atol=1e-3):
            wrong.append("plain")

    # An output outlives its graph, its session and the caching allocator's cache.
    view = graph.outputs["named"].whole[1:]
    expected = view.clone()
    dead = weakref.ref(session)
    sources = {g.name: g.source for g in (graph, plain, other)}
    report = {"outcome": session.report.outcome, "left_out": session.report.left_out}
    del graph, plain, other, session, s
    gc.collect()
    torch.cuda.empty_cache()
    noise = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(32)]
    torch.cuda.synchronize()
    if not torch.equal(view, expected):
        wrong.append("an output changed after its graph went")
    results = {"wrong": wrong, "sources": sources, "session_gone": dead() is None, "noise": len(noise), **report}
    Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    with torch.no_grad():
        main()
