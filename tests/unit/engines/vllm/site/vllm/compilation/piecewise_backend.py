from __future__ import annotations

from typing import Any


class PiecewiseBackend:
    def __init__(self, function: Any, piecewise_compile_index: int) -> None:
        self.function, self.piecewise_compile_index = function, piecewise_compile_index

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)
