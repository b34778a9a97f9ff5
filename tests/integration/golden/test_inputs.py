"""Inputs that nobody registered: memory that forwards create and the program rewrites between replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.golden.lazy import KINDS
from tests.integration.golden.support import start

Saved = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    archive = tmp_path_factory.mktemp("inputs") / "a"
    return archive, start("save", archive, env={"FOUNDRY_JOURNAL": "stacks"}, lazy=True)


LEFT_OUT = {"lazy/rewritten", "lazy/alike"}


def test_graphs_that_read_what_the_program_rewrites_are_left_out(saved: Saved) -> None:
    save = saved[1]
    assert save["outcome"] == "saved", save
    assert set(save["left_out"]) == LEFT_OUT
    assert set(save["saved"]) == {"decode/1", "decode/4"} | {f"lazy/{kind}" for kind in KINDS} - LEFT_OUT


def test_the_sentence_names_the_memory_and_what_to_do(saved: Saved) -> None:
    (sentence,) = saved[1]["left_out"]["lazy/rewritten"]
    assert "it may read 512 B at 0x" in sentence and "(zone ambient" in sentence
    assert "its outputs change with what that memory holds" in sentence
    assert "register it as mutable" in sentence


def test_scratch_that_other_code_uses_too_is_told(saved: Saved) -> None:
    (warning,) = [text for text in saved[1]["warnings"] if "changed after captures" in text]
    assert " of 512 B at 0x" in warning and "scratch memory that they share" in warning


def test_nothing_of_the_replays_remains(saved: Saved) -> None:
    save = saved[1]
    assert save["tokens"] == save["eager"]
    assert save["lazy"]["rewritten"] == save["lazy"]["output"] == [3.0, 5.0]


def test_restored_graphs_compute_the_same_and_those_left_out_follow_their_input(saved: Saved) -> None:
    archive, save = saved
    load = start("load", archive, lazy=True)
    assert load["outcome"] == "restored"
    assert set(load["fell_back"]) == LEFT_OUT
    assert load["lazy"] == save["lazy"]


def test_replays_find_indices_as_captures_left_them(tmp_path: Path) -> None:
    """SAVE replays for all its reasons, golden runs as well, while buffers hold what would lead kernels anywhere."""
    archive = tmp_path / "a"
    save = start("save", archive, lazy=True, spoil=True, golden=True, stale=["unused-inactive", "read-quarantined"])
    assert save["outcome"] == "saved", save
    assert set(save["left_out"]) == LEFT_OUT | {"read-quarantined"}
    assert save["golden"] == save["saved"]
    # They are put back: the program finds what it has written.
    expected = start("save", tmp_path / "b", spoil=True)
    assert save["inputs"] == expected["inputs"]
    load = start("load", archive, env={"FOUNDRY_VERIFY": "1"}, lazy=True, stale=["unused-inactive", "read-quarantined"])
    assert {verdict for _, verdict, _ in load["verdicts"]} == {"equal"}
    assert [graph for graph, _, _ in load["verdicts"]] == save["saved"]
    assert load["tokens"] == save["tokens"] == save["eager"]


def test_an_input_may_be_given_other_memory_between_captures(tmp_path: Path) -> None:
    """What it had is another tensor's then: no replay writes to it, and golden runs do not name it."""
    archive = tmp_path / "a"
    save = start("save", archive, move=True, golden=True)
    assert save["outcome"] == "saved", save
    assert save["left_out"] == {} and save["golden"] == save["saved"]
    assert set(save["constant"]) == {3.0}
    load = start("load", archive, env={"FOUNDRY_VERIFY": "1"}, move=True)
    assert {verdict for _, verdict, _ in load["verdicts"]} == {"equal"}, load
    assert load["tokens"] == save["tokens"] == save["eager"]
