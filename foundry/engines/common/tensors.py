"""Finds the device tensors that an engine keeps, by walking its objects from one root in a fixed order."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# A walk that does not end means that something was walked into which is no engine state.
MAX_OBJECTS = 1_000_000


class Walker:
    """Breadth first, so that every object has its shortest name; each object once.

    Walks into mappings, lists and tuples (not sets: they have no order) and into objects whose class, or a base of it,
    comes from a module that `wanted` accepts; attributes in the order in which they were set. So the names are the
    same in every process that ran the same code.
    """

    def __init__(self, is_tensor: Callable[[Any], bool], wanted: Callable[[str], bool]) -> None:
        self._is_tensor = is_tensor
        self._wanted = wanted

    def tensors(self, name: str, root: Any) -> Iterator[tuple[str, Any]]:
        """(name, tensor object) of everything reachable. Raises RuntimeError after MAX_OBJECTS objects."""
        seen: set[int] = {id(root)}
        keep: list[Any] = []  # ids are only unique among objects that live
        queue: deque[tuple[str, Any]] = deque([(name, root)])
        while queue:
            path, value = queue.popleft()
            if self._is_tensor(value):
                yield path, value
                continue
            for child, found in self._children(path, value):
                if found is None or isinstance(found, (bool, int, float, complex, str, bytes)) or id(found) in seen:
                    continue
                seen.add(id(found))
                keep.append(found)
                if len(seen) > MAX_OBJECTS:
                    raise RuntimeError(f"{name} reaches more than {MAX_OBJECTS} objects, the last one is {child}")
                queue.append((child, found))

    def _children(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            yield from ((f"{path}[{_key(i, key)}]", item) for i, (key, item) in enumerate(list(value.items())))
        elif isinstance(value, (list, tuple, deque)):
            yield from ((f"{path}[{i}]", item) for i, item in enumerate(value))
        elif not isinstance(value, type) and self._walks_into(value):
            yield from self._attributes(path, value)

    def _walks_into(self, value: Any) -> bool:
        return any(self._wanted(kind.__module__) for kind in type(value).__mro__[:-1])

    def _attributes(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        table = getattr(value, "__dict__", None)
        if isinstance(table, dict):
            yield from ((f"{path}.{name}", item) for name, item in list(table.items()))
        names: list[str] = []
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            names += [slots] if isinstance(slots, str) else list(slots)
        if dataclasses.is_dataclass(value):
            names += [field.name for field in dataclasses.fields(value)]
        for name in dict.fromkeys(names):
            if table is None or name not in table:
                try:
                    yield f"{path}.{name}", object.__getattribute__(value, name)
                except AttributeError:
                    continue


def _key(position: int, key: Any) -> str:
    """Keys by what they say, if that is the same everywhere (the default repr has an address)."""
    return repr(key) if isinstance(key, (str, int, float, bool, bytes)) else f"#{position}"
