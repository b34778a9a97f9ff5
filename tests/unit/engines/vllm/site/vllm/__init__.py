"""vLLM in miniature: the control flow of its start, as far as the plugin holds on to it.

`release` chooses what differs between releases; nothing here is vLLM's code.
"""

import os

__version__ = os.environ.get("MINI_VLLM", "0.24.0")
release = tuple(int(part) for part in __version__.split("."))
# What ran, in order.
log: list[str] = []
