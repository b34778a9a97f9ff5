from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import vllm


def init_logger(name: str) -> Any:
    return SimpleNamespace(info=lambda text, *values: vllm.log.append(f"say {text % values}"))
