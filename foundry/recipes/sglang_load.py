"""SGLang's decode graphs restored from an archive: starts an engine under `foundry run --load`.

    python -m foundry.recipes.sglang_save --archive sglang.fdry
    python -m foundry.recipes.sglang_load --archive sglang.fdry

With --native a native engine is started first, and their greedy tokens are compared.

Exit code: 0 if every graph was restored, nothing was captured, and tokens are equal; 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes import sglang_runs


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options = sglang_runs.arguments("sglang_load", __doc__, argv, native=True)
    with sglang_runs.Folder(options) as folder:
        starts = {"native": folder.run("native")} if options.native else {}
        starts["LOAD"] = folder.run("load")
        good = {name: start for name, start in starts.items() if start is not None}
        sglang_runs.print_starts(good)
        if len(good) < len(starts):
            return 1
        captured = sglang_runs.count(good["LOAD"], "capture")
        if captured:
            print(f"{captured} graphs were captured: see what the log of LOAD says of them.")
        equal = not options.native or sglang_runs.print_tokens(good["native"], good["LOAD"])
    return 0 if equal and not captured else 1


if __name__ == "__main__":
    sys.exit(main())
