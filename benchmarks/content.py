"""Saves an archive whose materialized memory has content of a given size, half as much zeros beside it, and one graph.

    foundry run --save -- python -m benchmarks.content --archive content.fdry --mebibytes 384

The content is random, so nothing of it can be compressed. Needs a GPU and PyTorch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import foundry


def main(argv: Sequence[str] | None = None) -> int:
    """Saves; returns the exit code: 1 if there is no archive."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.content",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--archive", required=True)
    parser.add_argument("--mebibytes", type=int, default=384, help="of content (default: %(default)s)")
    options = parser.parse_args(argv)
    import torch

    torch.cuda.init()
    size = options.mebibytes << 20
    session = foundry.session(options.archive, "save")
    with session as s:
        with s.phase("made", "private"):
            words = torch.empty(size // 8, dtype=torch.int64, device="cuda").random_()
            s.export("content", words)
            s.export("zeros", torch.zeros(size // 2, dtype=torch.uint8, device="cuda"))
        s.graph("sum", lambda: words[:1024].sum())
    print(session.report)
    return 0 if session.report.outcome == "saved" else 1


if __name__ == "__main__":
    sys.exit(main())
