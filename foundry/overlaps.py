"""Which graphs write their outputs to the same memory: a replay of one overwrites what another one left there."""

from __future__ import annotations

from collections.abc import Iterable


def groups(outputs: Iterable[tuple[str, int, int]]) -> list[list[str]]:
    """Graphs whose outputs overlap, directly or through others. `outputs` are (graph, address, bytes)."""
    ranges = [(address, address + nbytes, name) for name, address, nbytes in outputs]
    parent = {name: name for _, _, name in ranges}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    reaches, holder = 0, ""  # the farthest end so far, and whose it is
    for address, end, name in sorted(ranges):
        if address == end:
            continue
        if address < reaches:
            parent[root(name)] = root(holder)
        if end > reaches:
            reaches, holder = end, name
    found: dict[str, list[str]] = {}
    for name in parent:
        found.setdefault(root(name), []).append(name)
    return [names for names in found.values() if len(names) > 1]
