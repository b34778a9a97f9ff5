"""SGLang's decode graphs restored from an archive: starts an engine under `foundry run --load`.

    python -m foundry.recipes.sglang_save --archive sglang.fdry
    python -m foundry.recipes.sglang_load --archive sglang.fdry

With --native a native engine is started first, and their greedy tokens are compared.

Exit code: 0 if every graph was restored, nothing was captured, nothing compiled for decode, and tokens are those of
SAVE (and of native); 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes.engines.runs import Results, console, restored, summary, tokens_as_saved
from foundry.recipes.engines.sglang_recipe import arguments, compiled_for_decode, count, starts, tokens


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options, runs = arguments("sglang_load", __doc__, argv, native=True)
    found: dict[str, Results] = {}
    with runs:
        for name, mode in (("native", "native"), ("LOAD", "load")) if options.native else (("LOAD", "load"),):
            results = runs.run(mode)
            if results is None:
                return 1
            found[name] = results
    starts(found)
    load = found["LOAD"]
    summary(load)
    equal = tokens_as_saved(load, options.archive)
    if options.native:
        equal = tokens(found["native"], load) and equal
    compiled = compiled_for_decode(load)
    if compiled:
        console.print(f"compiled for decode: {', '.join(compiled)}", markup=False)
    return 0 if equal and restored(load) and not count(load, "capture") and not compiled else 1


if __name__ == "__main__":
    sys.exit(main())
