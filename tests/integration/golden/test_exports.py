"""Exports of the mini engine: the persistent output that only forwards create."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.golden.support import command, start


@pytest.mark.parametrize("device", ["h100", "a100-40gb"])
def test_hidden_states_come_back_with_their_content(tmp_path: Path, device: str) -> None:
    archive = tmp_path / "a"
    save = start("save", archive, device)
    assert save["outcome"] == "saved" and not save["left_out"] and not save["export"]["zero"]
    load = start("load", archive, device)
    assert load["outcome"] == "restored"
    # Same memory, same content, and it is what graphs write to.
    assert load["export"] == save["export"] and load["export"]["same"]
    assert load["tokens"] == save["tokens"] == load["eager"]
    assert load["hidden_after"] == save["hidden_after"] != load["export"]["content"]
    document = json.loads(command("inspect", "--json", str(archive), device=device).stdout)
    assert [(e["name"], e["address"]) for e in document["exports"]] == [("hidden_states", save["export"]["address"])]
