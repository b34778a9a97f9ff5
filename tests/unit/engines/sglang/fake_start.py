"""In the place of EngineStart: remembers what adapters ask for, in mini_sglang's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mini_sglang import log


class RestoredHandle:
    def __init__(self, name: str) -> None:
        self.name = name
        self.outputs = {"next_token_logits": f"restored {name}"}

    def replay(self) -> None:
        log.append(f"restored replay {self.name}")


class FakeStart:
    def __init__(self, state: str, archive: set[str] | None = None, notes: dict[str, Any] | None = None) -> None:
        self.becomes, self.state = state, "native"
        self.archive, self.notes = archive or set(), notes or {}
        self.registered: list[tuple[str, Any]] = []
        self.adopted: dict[str, Any] = {}
        self.problem: BaseException | None = None
        self.fingerprint: dict[str, Any] = {}

    def begin(self, fingerprint: Callable[[], dict[str, Any]], spare: str = "") -> None:
        log.append("begin")
        self.spare, self.fingerprint = spare, fingerprint()
        if not spare or self.becomes != "save":
            self.state = self.becomes

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        log.append(f"<{name}")
        try:
            yield
        finally:
            log.append(f"{name}>")

    def register_module(self, name: str, module: Any) -> None:
        self.registered.append((name, module))

    def register_reachable(self, name: str, root: Any) -> None:
        log.append(f"register {name}")
        self.registered.append((name, root))

    def restored(self, name: str) -> RestoredHandle | None:
        log.append(f"restored {name}")
        return RestoredHandle(name) if name in self.archive and self.state == "load" else None

    def adopt(self, name: str, graph: Any, outputs: Any) -> None:
        if self.state == "save":
            log.append(f"adopt {name}")
            self.adopted[name] = (graph, outputs)

    def register_event(self, name: str, event: Any) -> None:
        log.append(f"register event {event}")

    def event(self, name: str) -> Any:
        return f"restored {name}"

    @contextmanager
    def substituted(self) -> Iterator[None]:
        log.append("<substituted")
        try:
            yield
        finally:
            log.append("substituted>")

    def end(self) -> None:
        log.append("end")
        self.state = "native" if self.state == "save" else self.state

    def give_up(self, problem: BaseException) -> None:
        if self.state != "native" or self.problem is None:
            self.problem = problem
        self.state = "native"

    def refuse(self, reason: str) -> None:
        self.give_up(RuntimeError(reason))
