"""Facts of the model that need no driver: attention's split, arrays, argument layouts, weights."""

from __future__ import annotations

import ctypes
import gc
from typing import Any, cast

import pytest

from foundry.recipes.mini_engine.arrays import DeviceArray, Storage
from foundry.recipes.mini_engine.attention import AttentionParams, AttentionShape, split_count
from foundry.recipes.mini_engine.driver import SIGNATURES, _LaunchAttribute, _LaunchConfig, _pack
from foundry.recipes.mini_engine.model import KvShape, ModelConfig, ScaleArgs
from foundry.recipes.mini_engine.rng import PhiloxState


@pytest.mark.parametrize(("sm_count", "largest"), [(108, 21), (132, 26)])
def test_splits_start_at_the_batch_that_leaves_the_gpu_idle(sm_count: int, largest: int) -> None:
    counts = {batch: split_count(batch * 8, sm_count, 16) for batch in range(1, 65)}
    assert max(batch for batch, splits in counts.items() if splits > 1) == largest
    assert all(splits > 1 for batch, splits in counts.items() if batch <= largest)


def test_split_count_grows_with_the_longest_sequence() -> None:
    assert split_count(8, 108, 1) == 1
    assert split_count(8, 108, 4) == 4
    assert split_count(8, 108, 16) == 16
    # 168 of 216 places: up to 4 splits fill 78 % of their waves, 6 fill 4.67 of 5 (93 %), 16 fill 12.44 of 13 (96 %);
    # 5 would leave the parts of 4 and an empty one.
    assert split_count(21 * 8, 108, 16) == 6
    assert split_count(21 * 8, 108, 4) == 1


def test_fixed_splits_hide_the_gpu() -> None:
    shape = AttentionShape(32, 8, 8, 16, 16, 128, fixed_splits=4)
    assert {shape.splits(batch, sm, 256) for batch in (1, 21, 64) for sm in (108, 132)} == {4}


def test_argument_structs_have_the_kernels_layout() -> None:
    # The sizes that the images' records state (tests/unit/sim_image).
    assert ctypes.sizeof(AttentionParams) == 112
    assert ctypes.sizeof(ScaleArgs) == 40
    assert ctypes.sizeof(KvShape) == 16
    assert ctypes.sizeof(PhiloxState) == 24
    assert ctypes.sizeof(_LaunchConfig) == 56
    assert ctypes.sizeof(_LaunchAttribute) == 72


def test_packed_arguments_are_aligned() -> None:
    packed = bytes(_pack([ctypes.c_int(1), ctypes.c_uint64(2), ctypes.c_float(0.0), ScaleArgs(b"b")]))
    assert len(packed) == 4 + 4 + 8 + 4 + 4 + 40
    assert packed[:16] == b"\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
    assert packed[24:25] == b"b"


def test_every_driver_function_is_named_as_exported() -> None:
    assert len(SIGNATURES) == len(set(SIGNATURES))
    assert all(name.startswith("cu") for name in SIGNATURES)


def test_storage_goes_back_once_with_its_last_array() -> None:
    released: list[str] = []
    array = DeviceArray(Storage(cast(Any, None), 4096, 64, lambda: released.append("freed")), (4, 4))
    view = array.rows(1, 3).reshape(8)
    assert view.address == 4096 + 16
    del array
    gc.collect()
    assert released == []
    del view
    gc.collect()
    assert released == ["freed"]


def test_moved_storage_moves_its_views_and_never_frees_the_old_memory() -> None:
    released: list[str] = []
    array = DeviceArray(Storage(cast(Any, None), 4096, 64, lambda: released.append("freed")), (4, 4))
    view = array.rows(1, 3)
    array.storage.move(8192, owner=None)
    assert (array.address, view.address) == (8192, 8192 + 16)
    del array, view
    gc.collect()
    assert released == []


def test_arrays_refuse_views_beyond_their_storage() -> None:
    array = DeviceArray(Storage(cast(Any, None), 0, 64, None), (4, 4))
    with pytest.raises(IndexError):
        array.rows(2, 5)
    with pytest.raises(ValueError, match="does not fit"):
        DeviceArray(array.storage, (4, 5))
    with pytest.raises(ValueError, match="cannot view"):
        array.reshape(15)
    assert DeviceArray(array.storage, (4, 2), strides=(4, 1)).nbytes == 4 * (1 + 3 * 4 + 1)


def test_weights_are_the_same_in_every_process() -> None:
    config = ModelConfig()
    assert config.weight_values("layers.0.qkv") == ModelConfig().weight_values("layers.0.qkv")
    assert config.weight_values("layers.0.qkv") != config.weight_values("layers.1.qkv")
    shapes = config.weight_shapes()
    # Weights of equal size are what a changed order of loading can confuse.
    assert shapes["layers.0.qkv"] == shapes["layers.1.qkv"]
