"""SGLang's decode graphs saved into an archive: starts an engine under `foundry run --save`.

    python -m foundry.recipes.sglang_save --archive sglang.fdry

Exit code: 0 if an archive was published, 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes import sglang_runs


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options = sglang_runs.arguments("sglang_save", __doc__, argv)
    with sglang_runs.Folder(options) as folder:
        save = folder.run("save")
        if save is None:
            return 1
        sglang_runs.print_starts({"SAVE": save})
        sglang_runs.print_archive(options.archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
