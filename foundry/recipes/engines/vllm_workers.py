"""What the recipe's program has vLLM's workers do, in a module of its own: workers may be two processes away.

A function of the program itself is `__main__`'s, which the engine's process cannot hand on to its worker's.
"""

from __future__ import annotations

from typing import Any

from foundry.recipes.engines import random_model
from foundry.recipes.engines.account import account


def refill(model: Any) -> bool:
    """For vLLM's own way to call a function with the model."""
    random_model.refill(model)
    return True


def foundry_account(worker: Any) -> dict[str, Any]:
    """What Foundry did in the worker."""
    start = getattr(worker, "foundry", None)
    return account(start.report if start is not None else None)
