"""Tensors that share the storages of given ones."""

from __future__ import annotations

import gc

import torch

from foundry.torch import tensors


def find(storages: list[list[torch.Tensor]]) -> list[tuple[list[torch.Tensor], int]]:
    """For the known tensors of each storage: all that Python has, the known ones first, and how many users are left.

    PyTorch counts the users of a storage but does not list them. Python's tensors are searched for only where there are
    more than known; that takes some 100 ms for a million objects.
    """
    groups = [list({id(tensor): tensor for tensor in known}.values()) for known in storages]
    if any(_unknown(group) for group in groups):
        by_storage = {group[0].untyped_storage().data_ptr(): group for group in groups}
        known = {id(tensor) for group in groups for tensor in group}
        for candidate in gc.get_objects():
            if not issubclass(type(candidate), torch.Tensor) or id(candidate) in known:
                continue
            group = by_storage.get(_storage_address(candidate))
            if group is not None:
                group.append(candidate)
    return [(group, _unknown(group)) for group in groups]


def _unknown(group: list[torch.Tensor]) -> int:
    storage = group[0].untyped_storage()
    return max(0, int(torch._C._storage_Use_Count(storage._cdata)) - 1 - len(group))


def _storage_address(tensor: torch.Tensor) -> int:
    """0 for what has no memory of its own on the device, or cannot be pointed elsewhere."""
    try:
        return 0 if tensors._no_memory(tensor) else tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError, TypeError):
        return 0  # a subclass that forbids to ask
