"""Compiled kernels in an engine's start: SAVE keeps what was used, LOAD puts it, and nothing stops because of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_caches import FakeTriton, FakeTvm, key, mapped
from test_starting import Engine

from foundry import _core
from foundry.engines.common import kernel_file
from foundry.engines.common.kernel_file import Folder, StoredCache, pack


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Of an engine that has compiled kernels of both kinds, and one before it began."""
    triton, tvm = FakeTriton(monkeypatch, tmp_path / "save" / "triton"), FakeTvm(monkeypatch, tmp_path)
    triton.kernel("early", "before the session")
    engine = Engine(monkeypatch, "save", hook=True)
    engine.start.begin({"engine": "1.0"})
    engine.load()
    triton.kernel("splits", "source of splits")
    mapped(monkeypatch, tmp_path, tvm.load("clamp"))
    engine.capture()
    engine.start.end()
    assert triton.knobs.compilation.listener is None
    triton.kernel("late", "after the session")
    assert engine.start.report is not None and engine.start.report.outcome == "saved"
    assert engine.start.report.kernel_caches["triton"]["stored"] == 1
    assert any("Triton in the archive: 1 folder" in line for line in engine.said)
    return tmp_path / "engine.fdry"


def file_of(archive: Path) -> Path:
    return archive / "rank_0" / "attached.kernels.json"


def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Engine, FakeTriton, FakeTvm]:
    (tmp_path / "load").mkdir()
    caches = FakeTriton(monkeypatch, tmp_path / "load" / "triton"), FakeTvm(monkeypatch, tmp_path / "load")
    engine = Engine(monkeypatch, "load")
    assert engine.states() == ["load", "load", "load"], engine.said
    engine.check()
    return engine, *caches


def relisted(archive: Path) -> None:
    """foundry.json knows the file as it is now."""
    path = archive / "foundry.json"
    document = json.loads(path.read_text())
    for entry in document["inventory"]:
        if entry["name"].endswith("kernels.json"):
            entry["bytes"] = file_of(archive).stat().st_size
    path.write_text(json.dumps(document))


def test_load_compiles_nothing_that_save_used(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine, triton, tvm = start(monkeypatch, tmp_path)
    triton.kernel("splits", "source of splits")
    tvm.load("clamp")
    assert (triton.compiled, tvm.built) == ([], [])
    triton.kernel("late", "after the session")
    assert triton.compiled == ["late"]
    report = engine.start.report
    assert report is not None and report.warnings == []
    assert (report.kernel_caches["triton"]["put"], report.kernel_caches["tvm_ffi"]["put"]) == (1, 1)
    assert f"compiled kernels of Triton: 1 put into {triton.cache}" in engine.said
    assert any("1 will be put into" in line for line in engine.said)


def test_a_damaged_file_is_named_and_the_start_goes_on(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = file_of(archive)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    engine, triton, tvm = start(monkeypatch, tmp_path)
    (warning,) = engine.start.report.warnings  # type: ignore[union-attr]
    assert "not used" in warning and "kernels.json" in warning and "hash is wrong" in warning
    assert any(warning in line for line in engine.said)
    assert not triton.cache.exists()
    tvm.load("clamp")
    assert tvm.built == ["clamp_0123abcd"]


def test_a_file_of_another_length_is_not_used(archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file_of(archive).write_text(file_of(archive).read_text() + " ")
    engine, triton, _ = start(monkeypatch, tmp_path)
    assert "foundry.json lists" in engine.start.report.warnings[0]  # type: ignore[union-attr]
    assert not triton.cache.exists()


def test_one_wrong_folder_is_named_and_others_are_put(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caches = kernel_file.loads(file_of(archive).read_text(), "here")
    wrong = Folder(key("wrong"), (pack("a.py", b"print()"),))
    caches["triton"] = StoredCache("3.6.0", (wrong, *caches["triton"].folders))
    caches["another"] = caches["triton"]
    file_of(archive).write_text(kernel_file.dumps(caches))
    relisted(archive)
    engine, triton, _ = start(monkeypatch, tmp_path)
    warnings = engine.start.report.warnings  # type: ignore[union-attr]
    assert len(warnings) == 2 and wrong.name in warnings[0] and "'another'" in warnings[1]
    assert "1 put into" in " ".join(engine.said) and "1 refused" in " ".join(engine.said)
    assert not (triton.cache / wrong.name).exists()


def test_an_archive_that_others_can_write_puts_nothing(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A cache outlives the process."""
    monkeypatch.setattr(_core, "archive_warnings", lambda path: [f"{path} can be written by everybody."])
    engine, triton, _ = start(monkeypatch, tmp_path)
    assert any("not used: " in line and "everybody" in line for line in engine.start.report.warnings)  # type: ignore[union-attr]
    assert not triton.cache.exists()


def test_kernels_of_another_triton_are_left_and_tvms_used(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file_of(archive).write_text(file_of(archive).read_text())
    (tmp_path / "load").mkdir()
    triton = FakeTriton(monkeypatch, tmp_path / "load" / "triton", version="3.7.0")
    tvm = FakeTvm(monkeypatch, tmp_path / "load")
    engine = Engine(monkeypatch, "load")
    engine.run()
    assert engine.start.state == "load"
    assert "3.7.0" in engine.start.report.warnings[0]  # type: ignore[union-attr]
    tvm.load("clamp")
    assert not triton.cache.exists() and tvm.built == []


def test_a_program_without_kernels_attaches_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.setattr("foundry.engines.common.tvm_modules._version", lambda: "")
    engine = Engine(monkeypatch, "save", hook=True).run()
    assert engine.start.report is not None and engine.start.report.outcome == "saved"
    assert not file_of(tmp_path / "engine.fdry").exists()
    loaded = Engine(monkeypatch, "load").run()
    assert loaded.start.state == "load" and loaded.start.report.warnings == []  # type: ignore[union-attr]


def test_what_is_too_large_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel_file, "MAX_CONTENT", 10)
    triton = FakeTriton(monkeypatch, tmp_path / "save")
    mapped(monkeypatch, tmp_path)
    engine = Engine(monkeypatch, "save", hook=True)
    engine.start.begin({"engine": "1.0"})
    engine.load()
    triton.kernel("splits", "source of splits")
    engine.capture()
    engine.start.end()
    report = engine.start.report
    assert report is not None and report.outcome == "saved"
    assert any("too large" in line and key("source of splits") in line for line in report.warnings)


@pytest.mark.parametrize("failing", ["begin", "capture"])
def test_a_start_that_fails_leaves_tritons_listener_as_it_was(
    failing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    triton = FakeTriton(monkeypatch, tmp_path / "save")
    engine = Engine(monkeypatch, "auto", hook=True)
    engine.start.begin({"engine": "1.0"})
    if failing == "capture":
        engine.load()
    assert triton.knobs.compilation.listener is not None
    engine.start.give_up(RuntimeError("the engine failed"))
    assert triton.knobs.compilation.listener is None


def test_kernels_cannot_be_found_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeTriton(monkeypatch, tmp_path / "save")
    monkeypatch.setattr("foundry.engines.common.folders._MAPS", str(tmp_path / "nothing"))
    engine: Any = Engine(monkeypatch, "save", hook=True).run()
    assert engine.start.report.outcome == "saved"
    assert any("are not in the archive" in line for line in engine.start.report.warnings)
