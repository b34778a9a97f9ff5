"""Workspaces of cuBLAS: PyTorch keeps one per handle and stream, and a graph goes on using the one of its capture.

Giving them back is safe only while no graph uses one: its memory would become a tensor that replays overwrite.
"""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.cuda.graphs import CUDAGraph

log = logging.getLogger("foundry")


class Workspaces:
    """Knows which graphs may use a workspace that PyTorch keeps. One per process."""

    def __init__(self) -> None:
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        self._private: weakref.WeakSet[Any] = weakref.WeakSet()
        self._capture = threading.local()
        self._searched = not torch.cuda.is_initialized()  # without CUDA there are no graphs yet
        self._watch()

    def _watch(self) -> None:
        """PyTorch has no list of its graphs: their captures are noticed from now on."""
        original = CUDAGraph.capture_begin

        def capture_begin(graph: Any, *arguments: Any, **options: Any) -> None:
            private = getattr(self._capture, "private", False)
            (self._private if private else self._users).add(graph)
            (self._users if private else self._private).discard(graph)
            original(graph, *arguments, **options)

        CUDAGraph.capture_begin = capture_begin

    def _search(self) -> None:
        """Finds graphs that were captured before, once. Takes some 20 ms for a million objects."""
        # Most processes have none: their kinds are looked at first.
        kinds = {kind for kind in set(map(type, gc.get_objects())) if issubclass(kind, CUDAGraph)}
        if kinds:
            self._users.update(o for o in gc.get_objects() if type(o) in kinds and o not in self._private)
        self._searched = True

    def clear(self) -> bool:
        """Gives all workspaces back, unless a graph may use one of them or nobody can tell. Returns whether it did."""
        if not self._searched:
            if gc.get_freeze_count() > 0:
                return False  # frozen objects are not found
            self._search()
        if len(self._users) > 0:
            log.debug("cuBLAS workspaces stay: %d graphs captured without Foundry may use them", len(self._users))
            return False
        torch._C._cuda_clearCublasWorkspaces()
        return True

    @contextmanager
    def private(self) -> Iterator[None]:
        """Workspaces that a graph captured meanwhile uses are allocated in its pool, and by nobody else's call.

        As PyTorch's own CUDA graph trees do. Their content then never matters: the graph writes it before it reads it.
        Where workspaces must stay, the graph shares them with other work, as any graph of PyTorch does.
        """
        if not self.clear():
            yield
            return
        self._capture.private = True
        try:
            yield
        finally:
            self._capture.private = False
            self.clear()
