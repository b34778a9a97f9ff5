"""Captures with plain PyTorch code, as engines do: the default capture mode, streams and warm-ups of their own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import foundry
from foundry.torch.kept_graph import KeptGraph

ROWS, WIDTH = 64, 1024
SIZES = (64, 8)


class Engine:
    """`capture` keeps graphs and outputs; `captures` counts what this process captured."""

    def __init__(self, s: foundry.Session) -> None:
        self.s = s
        self.captures = 0
        self.outputs: dict[str, Any] = {}
        self.graphs: dict[str, Any] = {}
        with s.phase("weights"):
            self.w = s.register("w", torch.linspace(-1, 1, WIDTH * WIDTH, device="cuda").view(WIDTH, WIDTH).half())
        with s.phase("inputs"):
            self.x = s.register("x", torch.linspace(0, 1, ROWS * WIDTH, device="cuda").view(ROWS, WIDTH).half(), True)

    def forward(self, n: int) -> torch.Tensor:
        """cuBLAS with a workspace, intermediate tensors."""
        return torch.nn.functional.gelu(self.x[:n] @ self.w) @ self.w

    def capture(self, name: str, function: Callable[[], torch.Tensor]) -> None:
        """The engine's own loop body."""
        restored = self.s.restored(name)
        if restored is not None:
            self.graphs[name], self.outputs[name] = restored, restored.outputs
            return
        self.captures += 1
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function()
        torch.cuda.current_stream().wait_stream(stream)
        made: list[torch.Tensor] = []
        graph = KeptGraph(lambda graph: self.s.adopt(name, graph, made[0]))
        with self.s.capturing(), torch.cuda.graph(graph, pool=self.s.graph_pool(), stream=stream):
            made.append(function())
        self.graphs[name], self.outputs[name] = graph, made[0]

    def computed(self) -> dict[str, Any]:
        """A few numbers of every graph, and whether it computes what the eager forward does."""
        found = {}
        for n in SIZES:
            self.x.copy_(torch.linspace(0, n, ROWS * WIDTH, device="cuda").view(ROWS, WIDTH))
            self.graphs[f"decode/{n}"].replay()
            out = self.outputs[f"decode/{n}"]
            found[f"decode/{n}"] = [out.float().sum().item(), bool(torch.allclose(out, self.forward(n), rtol=1e-2))]
        torch.manual_seed(7)
        draws = []
        for _ in range(2):
            self.graphs["random"].replay()
            draws.append(self.outputs["random"].sum().item())
        return {**found, "random": draws}


def main() -> None:
    """Runs in the mode of the command line."""
    parser = argparse.ArgumentParser()
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("save", "load"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--more", action="store_true", help="one graph more, which the archive does not have")
    options = parser.parse_args()

    session = foundry.session(options.archive, options.mode)
    s = session.begin()
    engine = Engine(s)
    for n in SIZES:
        engine.capture(f"decode/{n}", lambda n=n: engine.forward(n))  # type: ignore[misc]
    if options.more:
        engine.capture("more", lambda: engine.forward(16))
    engine.capture("random", lambda: torch.nn.functional.dropout(engine.x.float(), 0.5))
    session.end()
    report = session.report
    results = {
        "outcome": report.outcome,
        "saved": report.saved,
        "restored": report.restored,
        "left_out": report.left_out,
        "fell_back": report.fell_back,
        "captures": engine.captures,
        "computed": engine.computed(),
    }
    Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    with torch.no_grad():
        main()
