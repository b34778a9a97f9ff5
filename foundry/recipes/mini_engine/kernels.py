"""The two code images: one loaded as the CUDA runtime does, one as Triton does; kernels are looked up on first use."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from foundry.recipes.mini_engine import driver as cuda
from foundry.recipes.mini_engine.device import argument

if TYPE_CHECKING:
    from foundry.recipes.mini_engine.device import Device

# Kernel names by what the model calls them.
DECODE = {
    "embedding": "_ZN4mini9embeddingEPfPKfS2_PKiS4_i",
    "add": "_ZN4mini3addEPfPKfi",
    "silu_mul": "_ZN4mini8silu_mulEPfPKfi",
    "write_kv": "_ZN4mini8write_kvEPfS0_PKfPKiNS_7KvShapeE",
    "rms_norm": "_ZN4mini8rms_normEPfPKfS2_if",
    "rms_norm_cluster": "_ZN4mini16rms_norm_clusterEPfPKfS2_if",
    "gemm": "_ZN4mini4gemmILi16EEEvPfPKfS3_ii",
    "gemm_large": "_ZN4mini4gemmILi256EEEvPfPKfS3_ii",
    "attention": "_ZN4mini9attentionILb0EEEvNS_15AttentionParamsE",
    "attention_split": "_ZN4mini9attentionILb1EEEvNS_15AttentionParamsE",
    "attention_combine": "_ZN4mini17attention_combineENS_15AttentionParamsE",
    "argmax": "_ZN4mini6argmaxEPiPKfi",
    "sample": "_ZN4mini6sampleEPiPKfifNS_11PhiloxStateE",
}
ASSORTED = {
    "grouped_gemv": "_ZN4mini12grouped_gemvEPfPKPKfS2_iii",
    "scale_bias": "_ZN4mini10scale_biasENS_9ScaleArgsE",
    "count_step": "count_step",
}

DEFAULT_SHARED_LIMIT = 48 << 10
WRAPPER_MAGIC = 0x466243B1


class Kernels:
    """Loads the images on first use and launches their kernels on the current stream.

    `images` is a folder with decode.fatbin and assorted.fatbin (see csrc/sim/image). The decode image goes through
    cuLibraryLoadData inside a fatbin wrapper, its kernels are launched as CUkernel; the assorted one goes through
    cuModuleLoadData.
    """

    def __init__(self, device: Device, images: Path) -> None:
        self._device = device
        self._bytes = {name: (images / f"{name}.fatbin").read_bytes() for name in ("decode", "assorted")}
        self._keep: list[object] = []  # images stay where they are for as long as they are loaded
        self._library = 0
        self._module = 0
        self._handles: dict[str, int] = {}
        self._shared_limits: dict[str, int] = {}

    @property
    def library(self) -> int:
        """The decode image, a CUlibrary."""
        if self._library == 0:
            wrapped = struct.pack("<IIQQ", WRAPPER_MAGIC, 1, self._host_copy(self._bytes["decode"]), 0)
            self._library = self._device.driver.library_load(self._host_copy(wrapped))
        return self._library

    @property
    def module(self) -> int:
        """The assorted image, a CUmodule."""
        if self._module == 0:
            self._module = self._device.driver.module_load(self._host_copy(self._bytes["assorted"]))
        return self._module

    def set_logit_scale(self, value: float) -> None:
        """Writes the __constant__ variable of the assorted image."""
        address, _ = self._device.driver.module_global(self.module, "logit_scale")
        self._device.driver.upload(address, struct.pack("<f", value))

    def step_count(self) -> int:
        """Reads its __device__ counter."""
        address, nbytes = self._device.driver.module_global(self.module, "step_counter")
        self._device.synchronize()
        return int.from_bytes(self._device.driver.download(address, nbytes), "little")

    def launch(
        self,
        name: str,
        grid: cuda.Dim3,
        block: int,
        *arguments: object,
        shared_bytes: int = 0,
        cluster: int = 1,
        packed: bool = False,
    ) -> None:
        """Launches a kernel by its short name. Arguments as device.argument takes them."""
        handle = self._handle(name)
        if shared_bytes > max(DEFAULT_SHARED_LIMIT, self._shared_limits.get(name, 0)):
            function = self._device.driver.kernel_function(handle) if name in DECODE else handle
            self._device.driver.set_function_attribute(function, cuda.FUNC_MAX_DYNAMIC_SHARED, shared_bytes)
            self._shared_limits[name] = shared_bytes
        self._device.driver.launch(
            handle,
            grid,
            (block, 1, 1),
            [argument(a) for a in arguments],
            self._device.stream,
            shared_bytes,
            cluster,
            packed,
        )

    def _handle(self, name: str) -> int:
        handle = self._handles.get(name)
        if handle is None:
            if name in DECODE:
                handle = self._device.driver.library_kernel(self.library, DECODE[name])
            else:
                handle = self._device.driver.module_function(self.module, ASSORTED[name])
            self._handles[name] = handle
        return handle

    def _host_copy(self, data: bytes) -> int:
        buffer = ctypes.create_string_buffer(data, len(data))
        self._keep.append(buffer)
        return ctypes.addressof(buffer)
