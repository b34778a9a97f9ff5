"""Outputs of a graph as a tree of JSON: any nesting of tuples, lists, dicts and plain values around tensors.

A node is a list whose first item is its kind:
    ["tensor", index]  ["none"]  ["value", v]  ["float", hex]  ["complex", hex, hex]
    ["tuple", node...]  ["list", node...]  ["dict", [key node, node]...]  ["named", type name, [field...], node...]
Reading it back creates containers and values only; nothing that the text names is imported or called.
"""

from __future__ import annotations

import json
import math
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from foundry.errors import corrupt, unsupported

MAX_DEPTH = 64
MAX_TEXT = 16 << 20


class Encoded:
    """A tree and its distinct tensor objects, in order of first appearance."""

    def __init__(self, value: Any, is_tensor: Callable[[Any], bool]) -> None:
        """Raises FoundryError(kind="unsupported") that says where a value of which type stands.

        A named tuple will come back as a named tuple of the same name and fields, of a class of its own.
        """
        self.tensors: list[Any] = []
        self._is_tensor = is_tensor
        self._index: dict[int, int] = {}
        self._leaves: list[list[Any]] = []
        self._tree = self._node(value, "outputs", 0)

    def release(self) -> list[Any]:
        """The tensors, which are not kept any longer: a graph's memory may be used again when its outputs go."""
        tensors, self.tensors = self.tensors, []
        self._index.clear()
        return tensors

    def dumps(self, numbers: Sequence[int]) -> str:
        """The tree as text, with numbers[i] as the index of the tensor that was tensors[i]."""
        positions = [leaf[1] for leaf in self._leaves]
        try:
            for leaf, position in zip(self._leaves, positions, strict=True):
                leaf[1] = numbers[position]
            return json.dumps(self._tree, separators=(",", ":"))
        finally:
            for leaf, position in zip(self._leaves, positions, strict=True):
                leaf[1] = position

    def _node(self, value: Any, where: str, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise unsupported(f"{where} is nested more than {MAX_DEPTH} deep (or contains itself)")
        if self._is_tensor(value):
            if id(value) not in self._index:
                self._index[id(value)] = len(self.tensors)
                self.tensors.append(value)
            self._leaves.append(["tensor", self._index[id(value)]])
            return self._leaves[-1]
        plain = _plain(value)
        if plain is not None:
            return plain
        if isinstance(value, tuple):
            fields = _field_names(value)
            children = [
                self._node(item, f"{where}.{fields[i]}" if fields else f"{where}[{i}]", depth + 1)
                for i, item in enumerate(value)
            ]
            return ["named", type(value).__name__, fields, *children] if fields else ["tuple", *children]
        if type(value) is list:
            return ["list", *(self._node(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value))]
        if type(value) is dict:
            return ["dict", *self._items(value, where, depth)]
        raise unsupported(
            f"{where} is a {type(value).__module__}.{type(value).__qualname__}: return tensors, numbers, text and None "
            "in tuples, named tuples, lists and dicts"
        )

    def _items(self, value: dict[Any, Any], where: str, depth: int) -> Iterator[list[Any]]:
        for key, item in value.items():
            if self._is_tensor(key):
                raise unsupported(f"{where} has a tensor as a key")
            yield [
                self._node(key, f"a key of {where}", depth + 1),
                self._node(item, f"{where}[{key!r}]", depth + 1),
            ]


def _plain(value: Any) -> list[Any] | None:
    if value is None:
        return ["none"]
    # Exactly these types: a subclass (an enum, a numpy scalar) would come back as something else.
    if type(value) in (bool, int, str):
        return ["value", value]
    if type(value) is float:
        return ["float", value.hex()]
    if type(value) is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    return None


def _field_names(value: tuple[Any, ...]) -> list[str]:
    """Field names of a named tuple or a structseq (torch.return_types), [] for a plain tuple."""
    kind = type(value)
    if kind is tuple:
        return []
    names: tuple[str, ...] = getattr(kind, "_fields", None) or getattr(kind, "__match_args__", None) or ()
    if len(names) != len(value) or not all(isinstance(name, str) for name in names):
        raise unsupported(f"a {kind.__qualname__} is a tuple without a name for every item: return a plain tuple")
    return list(names)


def loads(text: str, tensor: Callable[[int], Any], where: str) -> Any:
    """The outputs again; `tensor` gives the leaf of an index. Raises FoundryError(kind="corrupt") naming `where`."""
    if len(text) > MAX_TEXT:
        raise corrupt(f"the outputs of {where} take {len(text)} bytes of text, more than {MAX_TEXT}")
    try:
        return _decode(json.loads(text), tensor, 0)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError) as problem:
        raise corrupt(f"the outputs of {where} cannot be read ({problem}); save the archive anew") from None


def _decode(node: Any, tensor: Callable[[int], Any], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if not isinstance(node, list) or not node or not isinstance(node[0], str):
        raise ValueError("a node is not a list that starts with its kind")
    kind, rest = node[0], node[1:]

    def children(items: list[Any]) -> list[Any]:
        return [_decode(item, tensor, depth + 1) for item in items]

    if kind == "tensor":
        (index,) = rest
        if type(index) is not int or index < 0:
            raise ValueError(f"{index!r} is no index of a tensor")
        return tensor(index)
    if kind == "none" and not rest:
        return None
    if kind == "value":
        (value,) = rest
        if type(value) not in (bool, int, str):
            raise ValueError("a value is no truth value, integer or text")
        return value
    if kind == "float":
        return _float(*rest)
    if kind == "complex":
        real, imaginary = rest
        return complex(_float(real), _float(imaginary))
    if kind == "tuple":
        return tuple(children(rest))
    if kind == "list":
        return children(rest)
    if kind == "dict":
        return dict(children(pair) for pair in rest)
    if kind == "named":
        name, fields, *items = rest
        return _named(name, tuple(fields))(*children(items))
    raise ValueError(f"unknown kind {kind!r}")


def _float(text: Any) -> float:
    value = float.fromhex(text)
    return math.nan if math.isnan(value) else value


@lru_cache(maxsize=256)
def _named(name: str, fields: tuple[str, ...]) -> Callable[..., Any]:
    # namedtuple() refuses whatever is no identifier.
    return namedtuple(name, fields)
