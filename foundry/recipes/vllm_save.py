"""vLLM's CUDA graphs saved to an archive: one start of stock vLLM under the hook.

    python -m foundry.recipes.vllm_save --archive vllm.fdry

The default is a model of Qwen3-0.6B's shape with random weights: nothing is downloaded. With --model any model that the
plugin supports (docs/engines/vllm.md). Needs a GPU, PyTorch and vLLM.

Exit code: 0 if an archive was saved with every graph, 1 otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from foundry.recipes.engines.runs import save
from foundry.recipes.engines.vllm_recipe import arguments, starts


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    return save(*arguments("vllm_save", __doc__, argv), starts)


if __name__ == "__main__":
    sys.exit(main())
