"""SGLang's decode graphs saved into an archive: starts an engine under `foundry run --save`.

    python -m foundry.recipes.sglang_save --archive sglang.fdry

Exit code: 0 if an archive was saved with every graph, 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes.engines.runs import save
from foundry.recipes.engines.sglang_recipe import arguments, starts


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    return save(*arguments("sglang_save", __doc__, argv), starts)


if __name__ == "__main__":
    sys.exit(main())
