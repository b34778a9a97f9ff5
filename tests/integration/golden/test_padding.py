"""Stale words in arguments: freed memory is poisoned, and graphs that do not depend on it are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.golden.support import command, start

WHERE = ("inactive", "quarantined", "released")
DECODE = {"decode/1", "decode/4"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    archive = tmp_path_factory.mktemp("padding") / "a"
    stale = [f"{what}-{where}" for where in WHERE for what in ("unused", "read", "written")]
    return archive, start("save", archive, stale=stale)


def test_words_that_no_kernel_uses_keep_their_graph(saved: tuple[Path, dict[str, Any]]) -> None:
    archive, save = saved
    assert save["outcome"] == "saved", save
    assert set(save["saved"]) == DECODE | {f"unused-{where}" for where in WHERE}
    document = json.loads(command("inspect", "--json", "--pointers", str(archive)).stdout)
    for where in WHERE:
        classes = {p["pointer_class"] for p in document["pointers"] if p["graph"] == f"unused-{where}"}
        assert "padding" in classes and "dangling" not in classes


@pytest.mark.parametrize("where", WHERE)
def test_graphs_that_use_freed_memory_are_left_out(saved: tuple[Path, dict[str, Any]], where: str) -> None:
    left_out = saved[1]["left_out"]
    read, written = " ".join(left_out[f"read-{where}"]), " ".join(left_out[f"written-{where}"])
    assert f"graph read-{where}, node" in read and "scale_bias" in read and "a kernel reads it" in read
    assert "a replay writes to that memory" in written or "a kernel reads it" in written


def test_nothing_of_the_test_remains(saved: tuple[Path, dict[str, Any]]) -> None:
    _, save = saved
    assert save["intact"] and save["tokens"] == save["eager"]


def test_kept_graphs_are_restored(saved: tuple[Path, dict[str, Any]]) -> None:
    archive, save = saved
    load = start("load", archive, stale=[f"unused-{where}" for where in WHERE])
    assert load["outcome"] == "restored" and not load["fell_back"]
    assert load["computed"] == save["computed"] and len(load["computed"]) == 3
    assert load["tokens"] == save["tokens"]
