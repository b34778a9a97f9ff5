"""SGLang, native against restored: seconds of the start, milliseconds a step in turns.

    python -m foundry.recipes.sglang_bench --archive sglang.fdry

Saves the archive first if there is none. Both engines then live on the GPU at once, and steps of the same batch size are
timed in turns, so that clocks and neighbours are the same for both.

Exit code: 0 if every graph was restored and tokens are equal, 1 otherwise.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence

from foundry.recipes import sglang_runs


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options = sglang_runs.arguments("sglang_bench", __doc__, argv)
    with sglang_runs.Folder(options) as folder:
        if not os.path.isdir(options.archive) and folder.run("save") is None:
            return 1
        with folder.serving("native") as native, folder.serving("load") as load:
            if native is None or load is None:
                return 1
            sglang_runs.print_starts({"native": native.start, "LOAD": load.start})
            rows = []
            for batch in options.batches:
                times: tuple[list[float], list[float]] = [], []
                for turn in range(2 * options.repeats):
                    for engine in ((native, load), (load, native))[turn % 2]:
                        times[engine is load].append(engine.step_ms(batch))
                rows.append((batch, times[0], times[1]))
        equal = sglang_runs.print_tokens(native.start, load.start)
    sglang_runs.table(
        ("batch", "native, ms a step", "LOAD", "ratio", "native varies by", "tokens/s native", "LOAD"),
        [
            (
                str(batch),
                f"{statistics.median(a):.3f}",
                f"{statistics.median(b):.3f}",
                f"{statistics.median(b) / statistics.median(a):.4f}",
                f"{(max(a) - min(a)) / statistics.median(a):.2%}",
                f"{batch * 1e3 / statistics.median(a):.0f}",
                f"{batch * 1e3 / statistics.median(b):.0f}",
            )
            for batch, a, b in rows
        ],
    )
    return 0 if equal and not sglang_runs.count(load.start, "capture") else 1


if __name__ == "__main__":
    sys.exit(main())
