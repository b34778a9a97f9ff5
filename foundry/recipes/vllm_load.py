"""vLLM started with graphs from an archive: nothing is captured, profiled or warmed up.

    python -m foundry.recipes.vllm_load --archive vllm.fdry

Give the options that vllm_save was given: another model, other sizes or another memory limit is another archive, and
vLLM then captures as always and says what differs.

Exit code: 0 if every graph was restored and tokens are those of SAVE, 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes.engines.runs import restored, summary, tokens_as_saved
from foundry.recipes.engines.vllm_recipe import arguments, starts


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options, runs = arguments("vllm_load", __doc__, argv)
    with runs:
        loaded = runs.run("load")
    if loaded is None:
        return 1
    starts({"LOAD": loaded})
    summary(loaded)
    equal = tokens_as_saved(loaded, options.archive)
    return 0 if equal and restored(loaded) and not loaded["in_start"]["captures"] else 1


if __name__ == "__main__":
    sys.exit(main())
