"""SGLang's decode graphs saved into an archive: starts an engine under `foundry run --save`.

    python -m foundry.recipes.sglang_save --archive sglang.fdry

Exit code: 0 if an archive was saved with every graph, 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes.engines.runs import keep_tokens, summary
from foundry.recipes.engines.sglang_recipe import arguments, starts


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options, runs = arguments("sglang_save", __doc__, argv)
    with runs:
        saved = runs.run("save")
    if saved is None:
        return 1
    starts({"SAVE": saved})
    summary(saved)
    if saved["foundry"]["outcome"] == "saved":
        keep_tokens(saved, options.archive)
    return 0 if saved["foundry"]["outcome"] == "saved" and not saved["foundry"]["left_out"] else 1


if __name__ == "__main__":
    sys.exit(main())
