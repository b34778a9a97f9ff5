"""The quickstart and the mini engine with a session, in processes of their own on the simulated driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foundry.recipes import simulated

DEVICES = {"h100": 90, "a100-40gb": 80}


def python(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=120, check=False, env=env
    )


def decode(folder: Path, device: str, mode: str, *arguments: str, **env: str) -> tuple[int, dict[str, Any], str]:
    """mini_decode in one mode: exit code, results, output."""
    results = folder / f"{mode}.json"
    results.unlink(missing_ok=True)
    launcher = ["foundry", "run", "--save", "--", sys.executable, "-m"] if mode == "save" else []
    done = python(
        *launcher, "foundry.recipes.mini_decode", f"--{mode}", "--archive", str(folder / "a"), "--json", str(results),
        *arguments, env={**simulated.environment(os.environ, device), **env},
    )  # fmt: skip
    found = json.loads(results.read_text()) if results.exists() else {}
    return done.returncode, found, done.stdout + done.stderr


@pytest.mark.parametrize("device", DEVICES)
def test_quickstart(tmp_path: Path, device: str) -> None:
    done = python("foundry.recipes.quickstart", "--simulated", "--device", device, "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every graph was restored and computes the same." in done.stdout
    assert "18 of 18" in done.stdout and "9 restored" in done.stdout
    loaded = json.loads((tmp_path / "load.json").read_text())
    assert loaded["preload"] == "" and loaded["reseated"]


@pytest.fixture(scope="module", params=DEVICES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("saved")
    code, results, output = decode(folder, request.param, "save")
    assert code == 0, output
    assert f"sm_{DEVICES[request.param]}/libcuda_hook.so" in results["preload"]
    return folder, request.param, results


@pytest.mark.parametrize("drift", [[], ["--drift"]], ids=["same", "drift"])
def test_restored_graphs_compute_the_same(saved: tuple[Path, str, dict[str, Any]], drift: list[str]) -> None:
    folder, device, save = saved
    code, load, output = decode(folder, device, "load", *drift)
    assert code == 0, output
    assert load["outcome"] == "restored" and load["restored"] == load["graphs"] == save["graphs"]
    assert load["outputs"] == save["outputs"]
    for key in ("tokens", "sampled"):
        assert load[key] == save[key] == load[f"{key}_eager"]
    assert bool(load["reseated"]) is bool(drift)


def test_native_engine_computes_the_same(saved: tuple[Path, str, dict[str, Any]]) -> None:
    folder, device, save = saved
    code, native, output = decode(folder, device, "native")
    assert code == 0, output
    assert native["outputs"] == save["outputs"] and native["sampled"] == save["sampled"]


def test_another_gpu_is_refused_and_captures_natively(saved: tuple[Path, str, dict[str, Any]]) -> None:
    folder, device, _ = saved
    other = next(name for name in DEVICES if name != device)
    code, load, output = decode(folder, other, "load")
    assert code == 1 and load["outcome"] == "native" and load["restored"] == 0
    assert "sm_count" in output and "compute_capability" in output
    assert load["tokens"] == load["tokens_eager"]
    assert output.count("differ)") == 1  # said once
    code, load, output = decode(folder, other, "load", "--on-mismatch", "fail")
    assert code == 1 and load == {} and "sm_count" in output
    code, load, output = decode(folder, other, "load", FOUNDRY_ON_MISMATCH="fail")
    assert code == 1 and load == {} and "sm_count" in output


@pytest.mark.parametrize("name", ["foundry.json", "rank_0/graphs.fdry", "rank_0/memory.fdry"])
def test_damaged_archive_is_refused(saved: tuple[Path, str, dict[str, Any]], name: str) -> None:
    folder, device, _ = saved
    path = folder / "a" / name
    whole = path.read_bytes()
    try:
        for damaged in (whole[: len(whole) // 2], whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]):
            path.write_bytes(damaged)
            code, load, output = decode(folder, device, "load")
            assert code == 1 and load["outcome"] == "native" and load["tokens"] == load["tokens_eager"], output
            assert name.split("/")[-1] in output
            assert python("foundry", "inspect", str(folder / "a")).returncode == 1
    finally:
        path.write_bytes(whole)


def test_inspect(saved: tuple[Path, str, dict[str, Any]]) -> None:
    folder, _, save = saved
    done = python("foundry", "inspect", "--json", "--pointers", str(folder / "a"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["graphs"]) == save["graphs"]
    assert sum(document["nodes_by_type"].values()) == save["nodes"]
    assert {zone["name"] for zone in document["zones"]} == {"graphs", "ambient", "weights", "kv_cache", "buffers"}
    assert {pointer["graph"] for pointer in document["pointers"]} == {graph["name"] for graph in document["graphs"]}


def test_save_without_the_hook_names_the_launcher(tmp_path: Path) -> None:
    env = simulated.environment(os.environ, "h100")
    done = python("foundry.recipes.mini_decode", "--save", "--archive", str(tmp_path / "a"), env=env)
    assert done.returncode == 1 and "foundry run --save -- python" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_ends_save_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("not an archive")
    code, results, output = decode(tmp_path, "h100", "save")
    assert code == 1 and results == {} and "Choose another path for the archive" in output
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_without_the_simulated_driver_mini_decode_says_how_to_find_it(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    folder = python("foundry.recipes.simulated", env=env).stdout.strip()
    done = python("foundry.recipes.mini_decode", "--native", env={**env, "LD_LIBRARY_PATH": folder})
    assert done.returncode == 0, done.stdout + done.stderr
    if (probed := python("foundry", "doctor", "--json", env=env)).returncode == 0:
        pytest.skip(f"this machine has a driver: {probed.stdout}")
    done = python("foundry.recipes.mini_decode", "--native", env=env)
    assert done.returncode == 1 and "Set LD_LIBRARY_PATH to the simulated driver" in done.stderr


def test_every_device_that_the_quickstart_offers_is_simulated() -> None:
    found = set()
    for device in simulated.DEVICES:
        done = python("foundry", "doctor", "--json", env=simulated.environment(os.environ, device))
        found |= {check["sentence"] for check in json.loads(done.stdout)["checks"] if check["name"] == "gpu"}
    assert len(found) == len(simulated.DEVICES)


@pytest.mark.parametrize("device", DEVICES)
def test_doctor(device: str) -> None:
    done = python("foundry", "doctor", "--json", env=simulated.environment(os.environ, device))
    document = json.loads(done.stdout)
    checks = {check["name"]: check for check in document["checks"]}
    for name in ("driver", "gpu", "addresses", "hook", "interposers"):
        assert checks[name]["status"] == "ok", checks[name]
    assert f"sm_{DEVICES[device]}" in checks["hook"]["sentence"]


def test_a_compact_archive_is_smaller_and_restores_the_same(
    saved: tuple[Path, str, dict[str, Any]], tmp_path: Path
) -> None:
    folder, device, save = saved
    code, compact, output = decode(tmp_path, device, "save", FOUNDRY_COMPACT="1")
    assert code == 0, output
    code, load, output = decode(tmp_path, device, "load")
    assert code == 0, output
    assert load["outcome"] == "restored" and load["restored"] == load["graphs"] == save["graphs"]
    assert load["outputs"] == compact["outputs"] == save["outputs"]
    name = "a/rank_0/graphs.fdry"
    assert (tmp_path / name).stat().st_size < (folder / name).stat().st_size / 2
    done = python("foundry", "inspect", str(tmp_path / "a"), "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["graphs"]) == save["graphs"]
