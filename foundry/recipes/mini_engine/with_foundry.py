"""The mini engine with a Foundry session around its start: what an engine's plugin does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import foundry
from foundry.recipes.mini_engine.arrays import DeviceArray
from foundry.recipes.mini_engine.engine import EngineConfig, MiniEngine, Replayable
from foundry.recipes.mini_engine.model import StepOutputs
from foundry.recipes.mini_engine.runtime import MiniRuntime


class FoundryEngine(MiniEngine):
    """Start it with `start()`; options are those of foundry.session."""

    def __init__(
        self, images: Path, config: EngineConfig, archive: str, mode: str, ordinal: int = 0, **options: Any
    ) -> None:
        super().__init__(images, config, ordinal)
        self.runtime = MiniRuntime(self.device)
        fields = {"model": repr(config.model), "batch_sizes": list(config.batch_sizes), **options.pop("fields", {})}
        self.session = foundry.session(archive, mode, runtime=self.runtime, fingerprint=fields, **options)

    def start(self) -> None:
        """The engine's start inside the session, until every graph can be replayed."""
        with self.session:
            super().start()
        self.session.wait()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """The session's phase of that name."""
        return self.session.phase(name)

    def register(self, name: str, array: DeviceArray, constant: bool) -> DeviceArray:
        """Registers the array as an anchor."""
        return self.session.register(name, array, mutable=not constant)

    @property
    def restoring(self) -> bool:
        """Whether graphs come from an archive, as far as is known yet."""
        return self.session.report.outcome in ("loading", "restored")

    def warm_up(self) -> None:
        """Skipped where graphs are restored."""
        if not self.restoring:
            super().warm_up()

    def capture_all(self) -> None:
        """Every graph, then the persistent output that only forwards create: on LOAD none has run."""
        super().capture_all()
        restored = self.session.exported("hidden_states")
        if restored is not None:
            self.model.hidden_states = restored
        elif self.model.hidden_states is not None:
            self.session.export("hidden_states", self.model.hidden_states)

    def capture(self, name: str, batch: int, function: Callable[[], StepOutputs]) -> Replayable:
        """The session's graph of that name."""

        def forward() -> StepOutputs:
            # A graph that falls back on LOAD has had no warm_up(); the first call, outside the capture, makes up for it.
            self.model.prepare(self.config.max_batch)
            return function()

        return self.session.graph(name, forward, warmup=max(1, self.config.warm_up_per_graph))
