"""Tensors by address: described for an archive, made over existing memory, pointed elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from foundry import _core
from foundry.errors import invalid, unsupported


def describe(tensor: torch.Tensor) -> _core.Tensor:
    """Address, shape and storage. Raises FoundryError(kind="unsupported") for what is not plain device memory."""
    problem = _no_memory(tensor)
    if problem:
        raise unsupported(f"a tensor of shape {list(tensor.shape)} {problem}: Foundry keeps plain CUDA tensors")
    storage = tensor.untyped_storage()
    return _core.Tensor(
        name="",
        dtype=str(tensor.dtype).removeprefix("torch."),
        item_bytes=tensor.element_size(),
        address=tensor.data_ptr(),
        sizes=list(tensor.size()),
        strides=list(tensor.stride()),
        storage_address=storage.data_ptr(),
        storage_bytes=storage.nbytes(),
    )


def _no_memory(tensor: torch.Tensor) -> str:
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if is_traceable_wrapper_subclass(tensor):
        return f"is a {type(tensor).__name__}, a wrapper around other tensors"
    if tensor.layout != torch.strided or tensor.is_nested:
        return f"has the layout {tensor.layout}{' and is nested' if tensor.is_nested else ''}"
    if tensor.is_quantized:
        return "is quantized by PyTorch's own quantizer"
    if tensor.is_conj() or tensor.is_neg():
        return "is a lazily conjugated or negated view"
    if not _on_device(tensor):
        return f"is on {tensor.device}"
    return ""


def host_span(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and bytes of a contiguous CPU tensor. Raises FoundryError(kind="invalid") for any other."""
    if tensor.device.type != "cpu":
        raise invalid(f"a tensor of shape {list(tensor.shape)} is on {tensor.device}: register it with register()")
    if not tensor.is_contiguous():
        raise invalid(f"a tensor of shape {list(tensor.shape)} and strides {list(tensor.stride())} is not contiguous")
    return tensor.data_ptr(), tensor.nbytes


def _on_device(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cuda)


def named_tensors(module: Any) -> Iterable[tuple[str, torch.Tensor, bool]]:
    """(qualified name, tensor, constant) of every parameter and buffer on the device, aliases under all their names."""
    if not isinstance(module, torch.nn.Module):
        raise invalid(f"a {type(module).__name__} is no torch.nn.Module: register its tensors one by one")
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        if _on_device(tensor):
            yield name, tensor, True


class DeviceBytes:
    """Existing device memory for PyTorch to wrap; what PyTorch makes of it keeps this object, and so the owner."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "stream": None,
        }


def over_memory(address: int, nbytes: int, device: int, owner: object) -> torch.UntypedStorage:
    """A storage over existing memory."""
    wrapped = torch.as_tensor(DeviceBytes(address, nbytes, owner), device=torch.device("cuda", device))
    storage = wrapped.untyped_storage()
    if storage.data_ptr() != address:
        raise unsupported(f"PyTorch copied the memory at {address:#x} instead of wrapping it")
    return storage


def adopt(tensor: _core.Tensor, device: int, owner: object) -> torch.Tensor:
    """A tensor whose storage is the recorded one."""
    if tensor.nbytes == 0:
        where = torch.device("cuda", device)
        return torch.empty_strided(tensor.sizes, tensor.strides, dtype=_dtype(tensor.dtype), device=where)
    storage = over_memory(tensor.storage_address, tensor.storage_bytes, device, owner)
    return _view(tensor, storage)


def alias(tensor: _core.Tensor, base: torch.Tensor) -> torch.Tensor:
    """A tensor at its recorded address in the storage of `base`, which must hold it."""
    return _view(tensor, base.untyped_storage())


def _view(tensor: _core.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
    offset = tensor.address - storage.data_ptr()
    if offset < 0 or offset + tensor.nbytes > storage.nbytes() or offset % tensor.item_bytes:
        raise invalid(
            f"an output at {tensor.address:#x} ({tensor.nbytes} bytes) does not lie in the memory at "
            f"{storage.data_ptr():#x} ({storage.nbytes()} bytes) that it shared on SAVE"
        )
    return _set(storage, _dtype(tensor.dtype), offset // tensor.item_bytes, tensor.sizes, tensor.strides)


def _set(
    storage: torch.UntypedStorage, dtype: torch.dtype, offset: int, sizes: Iterable[int], strides: Iterable[int]
) -> torch.Tensor:
    empty = torch.empty(0, dtype=dtype, device=storage.device)
    with torch.no_grad():
        return empty.set_(storage, offset, tuple(sizes), tuple(strides))


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(dtype, torch.dtype):
        raise unsupported(f"this PyTorch ({torch.__version__}) has no dtype {name!r}")
    return dtype


def point_to(tensor: torch.Tensor, storage: torch.UntypedStorage) -> None:
    """Makes the same tensor object (a parameter, a buffer) a view of another storage, at the same offset."""
    moved = _set(storage, tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride())
    # Not set_(): it is refused for views and bumps the version that autograd checks.
    tensor.data = moved
