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
        # In a capture only an external event becomes a node.
        self.done = s.register_event("done", torch.cuda.Event(external=True))
        with s.phase("weights"):
            self.w = s.register("w", torch.linspace(-1, 1, WIDTH * WIDTH, device="cuda").view(WIDTH, WIDTH).half())
        with s.phase("inputs"):
            self.x = s.register("x", torch.linspace(0, 1, ROWS * WIDTH, device="cuda").view(ROWS, WIDTH).half(), True)

    def forward(self, n: int) -> torch.Tensor:
        """cuBLAS with a workspace, intermediate tensors."""
        out = torch.nn.functional.gelu(self.x[:n] @ self.w) @ self.w
        if torch.cuda.is_current_stream_capturing():
            self.s.event("done").record()
        return out

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
            found[f"decode/{n}"] = [
                out.float().sum().item(),
                bool(torch.allclose(out, self.forward(n), rtol=1e-2, atol=0.5)),
            ]
        torch.manual_seed(7)
        draws = []
        for _ in range(2):
            self.graphs["random"].replay()
            draws.append(self.outputs["random"].sum().item())
        return {**found, "random": draws, "event": self.waits()}

    def waits(self) -> list[bool]:
        """Whether host and streams wait for the event in the graph: [pending, copied in time, done]."""
        event, out = self.s.event("done"), self.outputs["decode/64"]
        out.zero_()
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)
        self.graphs["decode/64"].replay()
        pending = not event.query()
        side.wait_event(event)
        with torch.cuda.stream(side):
            copied = out.clone()
        event.synchronize()
        done = event.query()
        torch.cuda.synchronize()
        return [pending, bool(torch.equal(copied, out) and out.any()), done]


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
        "warnings": report.warnings,
        "captures": engine.captures,
        "computed": engine.computed(),
    }
    Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    with torch.no_grad():
        main()
