"""SGLang, native against restored: seconds of the start, milliseconds a step in turns, tokens.

    python -m foundry.recipes.sglang_bench --archive sglang.fdry

Saves the archive first if there is none. The process of LOAD also captures graphs natively, after its own measurements:
replays of both, and steps of the engine with both, come in turns. So do steps of two processes that live on the GPU at
once, native and LOAD, but those differ by more than their graphs.

Exit code: 0 if every graph was restored and tokens are equal, 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes.engines.in_turns import compared
from foundry.recipes.engines.runs import console, has_archive, replays, restored, summary
from foundry.recipes.engines.sglang_recipe import arguments, count, in_process, starts, tokens


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options, runs = arguments("sglang_bench", __doc__, argv)
    with runs:
        if not has_archive(options, runs):
            return 1
        # Native first: it measures what is free for its KV cache, LOAD has the figure of SAVE.
        with runs.serving("native") as native, runs.serving("load", extra=["--compare"]) as load:
            if native is None or load is None:
                return 1
            starts({"native": native.results, "LOAD": load.results})
            rows = []
            for batch in options.batches:
                times: dict[object, list[float]] = {native.process: [], load.process: []}
                for turn in range(2 * options.repeats):
                    for engine in (native, load) if turn % 2 else (load, native):
                        times[engine.process].append(engine.ask(batch))
                rows.append({"batch": batch, **compared(times[native.process], times[load.process])})
    equal = tokens(native.results, load.results)
    console.print("\none process, graphs captured again beside the restored ones:")
    equal = in_process(load.results) and equal
    console.print("\ntwo processes on one GPU:")
    replays(rows, "native step, ms", "LOAD")
    summary(load.results)
    return 0 if equal and restored(load.results) and not count(load.results, "capture") else 1


if __name__ == "__main__":
    sys.exit(main())
