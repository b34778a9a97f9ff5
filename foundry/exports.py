"""What the program names on SAVE and gets back on LOAD: tensors that only forwards create, events of graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from foundry.errors import invalid

if TYPE_CHECKING:
    from foundry.native import Backend

T = TypeVar("T")


class Exports:
    """The exported tensors of a session by name, in order."""

    def __init__(self) -> None:
        self._by_name: dict[str, Any] = {}

    def add(self, backend: Backend, name: str, tensor: T) -> T:
        """Declares; what SAVE exported under that name wins. Raises FoundryError if another tensor has the name."""
        found = self.get(backend, name)
        if found is None:
            backend.exporting(name, tensor)
            found = self._by_name[name] = tensor
        elif found is not tensor and not backend.restores_exports():
            raise invalid(f"two tensors are exported as {name!r}: every export needs a name of its own")
        result: T = found
        return result

    def get(self, backend: Backend, name: str) -> Any:
        """The tensor of that name, None if there is none."""
        if name not in self._by_name:
            found = backend.exported(name)
            if found is None:
                return None
            self._by_name[name] = found
        return self._by_name[name]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._by_name.items())


class Events:
    """The program's own events of a session by name, in order."""

    def __init__(self) -> None:
        self._by_name: dict[str, Any] = {}

    def add(self, name: str, event: Any) -> None:
        """Declares. Raises FoundryError if another event has the name."""
        if self._by_name.setdefault(name, event) is not event:
            raise invalid(f"two events are registered as {name!r}: every event needs a name of its own")

    def get(self, name: str) -> Any:
        """The program's event of that name, None if there is none."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._by_name.items())
