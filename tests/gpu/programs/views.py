"""Two weights in each other's place on LOAD, with something that still means where they landed."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import foundry

WIDTH = 1024


def weight(name: str) -> torch.Tensor:
    """Weights of one size; each fills segments of its own."""
    generator = torch.Generator().manual_seed(ord(name))
    return torch.rand(4 * WIDTH, WIDTH, generator=generator).cuda()


def main() -> None:
    """Runs in the mode of the command line."""
    parser = argparse.ArgumentParser()
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("save", "load"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--swap", action="store_true")
    parser.add_argument("--keep", choices=("nothing", "view", "parameter", "cpp", "table"), default="nothing")
    options = parser.parse_args()

    kept: Any = None
    with foundry.session(options.archive, options.mode) as s:
        with s.phase("weights"):
            w = {name: weight(name) for name in ("ba" if options.swap else "ab")}
            if options.keep == "parameter":
                w = {name: torch.nn.Parameter(tensor) for name, tensor in w.items()}
            for name in "ab":
                s.register(name, w[name])
            table = s.register("table", torch.zeros(8, dtype=torch.int64, device="cuda"))
        with s.phase("inputs"):
            x = s.register("x", torch.linspace(0, 1, 8 * WIDTH, device="cuda").view(8, WIDTH), mutable=True)
        if options.keep == "view":
            kept = [w["a"].t(), w["b"][5:].view(torch.int32)]
        elif options.keep == "cpp":
            with torch.enable_grad():  # autograd keeps a view that Python never saw
                kept = torch.nn.functional.linear(
                    torch.ones(1, WIDTH, device="cuda", requires_grad=True), w["a"]
                ).grad_fn
        elif options.keep == "table":
            table[3] = w["b"].data_ptr() + 64
        graph = s.graph("decode", lambda: (x @ w["a"][:WIDTH]) @ w["b"][:WIDTH])
    graph.replay()
    expected = {name: weight(name) for name in "ab"}
    results: dict[str, Any] = {
        "source": graph.source,
        "differences": s.report.differences,
        "reseated": [moved.name for moved in s.report.reseated],
        "weights": all(bool(torch.equal(w[name], expected[name])) for name in "ab"),
        "right": bool(torch.allclose(graph.outputs, (x @ expected["a"][:WIDTH]) @ expected["b"][:WIDTH], rtol=1e-3)),
    }
    if options.keep == "view":
        results["views"] = [
            kept[0].data_ptr() == w["a"].data_ptr() and bool(torch.equal(kept[0], expected["a"].t())),
            bool(torch.equal(kept[1], expected["b"][5:].view(torch.int32))),
        ]
    Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    with torch.no_grad():
        main()
