"""A graph that the program captured and uses without Foundry: its cuBLAS workspace must stay its own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import foundry


def active() -> dict[int, int]:
    """Address -> bytes of the allocator's blocks that are in use."""
    found = {}
    for segment in torch.cuda.memory_snapshot():
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                found[address] = block["size"]
            address += block["size"]
    return found


class Foreign:
    """Allocates nothing in its capture, so that only the workspace can change under it."""

    def __init__(self) -> None:
        # Much to add up for few results: cuBLAS splits the sum and needs its workspace.
        self.a = torch.ones(64, 65536, device="cuda", dtype=torch.half) / 256
        self.b = torch.ones(65536, 64, device="cuda", dtype=torch.half) / 256
        self.out = torch.empty(64, 64, device="cuda", dtype=torch.half)
        stream = torch.cuda.Stream()
        before = active()
        with torch.cuda.stream(stream):
            torch.mm(self.a, self.b, out=self.out)
        torch.cuda.synchronize()
        self.workspace = {address: n for address, n in active().items() if address not in before}
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            torch.mm(self.a, self.b, out=self.out)

    def intact(self) -> bool:
        """Its workspace belongs to it still, and what is allocated now survives a replay."""
        others = [torch.full((2 << 20,), 7, device="cuda", dtype=torch.uint8) for _ in range(64)]
        self.out.zero_()
        self.graph.replay()
        torch.cuda.synchronize()
        kept = active()
        return (
            all(kept.get(address) == nbytes for address, nbytes in self.workspace.items())
            and all(bool((other == 7).all()) for other in others)
            and bool((self.out == 1).all())
        )


def main() -> None:
    """Runs in the mode of the command line."""
    parser = argparse.ArgumentParser()
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("save", "load"):
        mode.add_argument(f"--{name}", dest="mode", action="store_const", const=name)
    parser.add_argument("--archive", required=True)
    parser.add_argument("--json", required=True)
    parser.add_argument("--when", choices=("before", "inside", "never"), required=True)
    options = parser.parse_args()

    foreign = Foreign() if options.when == "before" else None
    results: dict[str, Any] = {}
    with foundry.session(options.archive, options.mode) as s:
        if options.when == "inside":
            foreign = Foreign()
        with s.phase("weights"):
            w = s.register("w", torch.linspace(-1, 1, 1 << 20, device="cuda").view(1024, 1024).half())
            (w @ w).sum().item()  # a workspace of this phase
        with s.phase("inputs"):
            x = s.register("x", torch.linspace(0, 1, 64 << 10, device="cuda").view(64, 1024).half(), mutable=True)
        graph = s.graph("decode", lambda: (x @ w) @ w)
        results["workspace"] = sum(foreign.workspace.values()) if foreign is not None else None
    graph.replay()
    results["intact"] = foreign is None or foreign.intact()
    results["right"] = bool(torch.allclose(graph.outputs, (x @ w) @ w, rtol=1e-2, atol=0.1))
    report = s.report
    results |= {"outcome": report.outcome, "saved": report.saved, "left_out": report.left_out, "source": graph.source}
    Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    with torch.no_grad():
        main()
