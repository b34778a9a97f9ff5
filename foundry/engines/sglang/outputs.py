"""What a captured size returns, as containers that an archive can hold, and back."""

from __future__ import annotations

import dataclasses
from typing import Any

from foundry.errors import corrupt, unsupported

KIND = "LogitsProcessorOutput"


def plain(output: Any) -> dict[str, Any]:
    """The fields that are set, by name. Raises FoundryError(kind="unsupported") for anything but the output of decode."""
    if type(output).__name__ != KIND or not dataclasses.is_dataclass(output):
        raise unsupported(f"a graph returns a {type(output).__name__}, not a {KIND}")
    fields = {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    return {name: value for name, value in fields.items() if value is not None}


def engines_own(fields: Any) -> Any:
    """The same as SGLang has it. Raises FoundryError(kind="corrupt") for fields that it does not have."""
    from sglang.srt.layers.logits_processor import LogitsProcessorOutput

    try:
        return LogitsProcessorOutput(**{"next_token_logits": None, **fields})
    except TypeError as problem:
        raise corrupt(f"the outputs in the archive are no {KIND} of this SGLang ({problem})") from None


class RestoredGraph:
    """In the place of a torch.cuda.CUDAGraph: SGLang replays it, and resets it when it captures anew."""

    __slots__ = ("replay",)

    def __init__(self, graph: Any) -> None:
        self.replay = graph.replay

    def reset(self) -> None:
        """What the graph uses stays mapped: it belongs to the archive."""
