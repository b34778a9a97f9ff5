"""The 28-layer decoder: 67 graphs saved under the hook, restored in a fresh process, equal in every bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Done

PROGRAM = ["-m", "foundry.recipes.torch_decode"]
GRAPHS = 67
MIB = 1 << 20


def test_save(saved: Done) -> None:
    assert saved.code == 0, saved.output
    results = saved.results
    assert results["graphs"] == GRAPHS and results["outcome"] == "saved"
    assert results["report"]["left_out"] == {}
    assert "libcuda_hook.so" in results["preload"]
    assert results["report"]["nodes"] >= 28 * 8 * GRAPHS
    print(saved.output)


def test_native_replays_repeat_bit_for_bit(saved: Done) -> None:
    """Else comparing bits with restored ones would mean nothing."""
    assert saved.results["not_repeatable"] == []


def test_archive_is_small(saved: Done) -> None:
    assert saved.results["archive_bytes"] <= 40 * MIB


def test_load_restores_everything_without_preload(loaded: Done) -> None:
    assert loaded.code == 0, loaded.output
    results = loaded.results
    assert results["preload"] == "" and results["outcome"] == "restored"
    assert results["report"]["restored"] == GRAPHS and results["not_restored"] == []
    assert results["report"]["reseated"] == []
    print(loaded.output)


def test_every_output_is_equal(loaded: Done) -> None:
    assert loaded.results["different"] == []
    assert loaded.results["compared"] == GRAPHS * 2 * 2


def test_steps_were_timed_against_native(loaded: Done) -> None:
    """Restored and native graphs of one process, timed in turns; the figures are for people, not for a limit."""
    assert [row["batch"] for row in loaded.results["step_ms"]] == [1, 8, 64, 256, 512]
    for row in loaded.results["step_ms"]:
        print(row)
