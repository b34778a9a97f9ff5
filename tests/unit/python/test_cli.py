"""The command line: arguments, environment of the started program, exit codes, what is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_core
import pytest
from session_world import World
from typer.testing import CliRunner, Result

from foundry import launches
from foundry.cli import cleaning, doctor, hook, probe, run
from foundry.cli.app import app

ROOT = Path(__file__).parents[3]
HOPPER = {
    "gpu_name": "Fake GPU",
    "compute_capability": "9.0",
    "sm_count": 132,
    "total_memory": 1 << 30,
    "driver_version": 13000,
}


def device(major: int = 9, minor: int = 0, **fields: Any) -> probe.Device:
    return probe.Device(0, "Fake GPU", (major, minor), {**HOPPER, **fields})


def foundry(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "foundry", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **(env or {})},
    )


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hook that exists, as far as files go."""
    path = tmp_path / "libcuda_hook.so"
    path.touch()
    monkeypatch.setenv("FOUNDRY_HOOK_LIBRARY", str(path))
    return path


def answer(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> list[dict[str, str] | None]:
    """Puts an answer in place of the child's; returns the environments it was asked with."""
    asked: list[dict[str, str] | None] = []

    def ask(env: dict[str, str] | None = None, zone: bool = False, framework: bool = False) -> probe.Answer:
        asked.append(env)
        return probe.Answer(**{"problem": None, "devices": [device()], **fields})

    monkeypatch.setattr(probe, "ask", ask)
    return asked


# ---- run


def test_run_tells_the_program_to_save_compactly() -> None:
    show = ("--", "sh", "-c", 'echo "${FOUNDRY_COMPACT-unset}"')
    assert foundry("run", "--off", *show).stdout == "unset\n"
    assert foundry("run", "--off", "--compact", *show).stdout == "1\n"


def test_exit_code_and_arguments_are_the_programs() -> None:
    done = foundry("run", "--off", "--", "sh", "-c", 'echo "$0 $1 $FOUNDRY_MODE"; exit 7', "--save", "-x")
    assert (done.returncode, done.stdout) == (7, "--save -x off\n")
    # Without the separator options after the program are the program's too.
    assert foundry("run", "--off", "sh", "-c", "exit 9").returncode == 9


def test_signals_pass_through() -> None:
    assert foundry("run", "--off", "--", "sh", "-c", "kill -TERM $$").returncode == -15


def test_load_preloads_nothing() -> None:
    done = foundry(
        "run",
        "--load",
        "--archive",
        "some/where",
        "--",
        "sh",
        "-c",
        'echo "$FOUNDRY_MODE|$FOUNDRY_ARCHIVE|${LD_PRELOAD-unset}"',
    )
    assert done.stdout == f"load|{os.getcwd()}/some/where|unset\n"


def test_programs_that_do_not_start(tmp_path: Path) -> None:
    assert foundry("run", "--off", "--", "no-such-program").returncode == 127
    text = tmp_path / "text"
    text.touch()
    done = foundry("run", "--off", "--", str(text))
    assert done.returncode == 126 and "cannot be started" in done.stderr


def test_save_without_a_hook_is_125_and_a_sentence(tmp_path: Path) -> None:
    done = foundry(
        "run", "--save", "--", "true", env={"FOUNDRY_SM": "90", "FOUNDRY_HOOK_LIBRARY": str(tmp_path / "none.so")}
    )
    assert done.returncode == 125
    assert done.stderr.startswith("foundry: ") and "none.so does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["run"], ["run", "--save", "--load", "--", "true"], ["run", "--never", "--", "true"], ["nonsense"]]
)
def test_wrong_arguments_are_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2


@pytest.mark.parametrize("arguments", [[], ["--"], ["--save"], ["--auto", "--"]])
def test_run_without_a_program_says_how_to_name_one(arguments: list[str]) -> None:
    result = invoke("run", *arguments)
    assert result.exit_code == 2 and "foundry run --auto -- python serve.py" in result.stderr


def test_what_follows_archive_must_be_a_folder() -> None:
    """`--archive -- CMD` would run CMD, with an archive named "--"."""
    for value in ("--", ""):
        result = invoke("run", "--off", "--archive", value, "true")
        assert result.exit_code == 2 and f"{value!r} is no folder" in result.stderr


def test_save_environment(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    asked = answer(monkeypatch)
    env = {"FOUNDRY_HOOK_LIBRARY": str(library), "LD_PRELOAD": "a.so b.so:c.so", "X": "1"}
    made = run.environment("save", "arch", env)
    assert made["LD_PRELOAD"] == f"{library}:a.so:b.so:c.so"
    assert made["FOUNDRY_MODE"] == "save" and made["FOUNDRY_ARCHIVE"] == os.path.abspath("arch") and made["X"] == "1"
    # The child that asks must not take part.
    assert asked[0] is not None and asked[0]["FOUNDRY_MODE"] == "off" and "FOUNDRY_ARCHIVE" not in asked[0]


def test_hook_is_not_preloaded_twice(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    answer(monkeypatch)
    env = {
        "FOUNDRY_HOOK_LIBRARY": str(library),
        "LD_PRELOAD": "/old/libcuda_hook.so:x.so",
        "XDG_CACHE_HOME": str(library.parent),
    }
    assert run.environment("save", None, env)["LD_PRELOAD"] == f"{library}:x.so"


@pytest.mark.parametrize(
    ("capability", "target"), [((8, 0), 80), ((8, 6), 80), ((9, 0), 90), ((10, 0), 80), ((12, 0), 80)]
)
def test_build_fits_the_device(capability: tuple[int, int], target: int) -> None:
    assert hook.target_for([device(*capability)], {}) == target


def test_build_by_environment() -> None:
    assert hook.target_for([device(8, 0)], {"FOUNDRY_SM": "90"}) == 90
    assert hook.target_for([], {"FOUNDRY_SM": "sm_80"}) == 80
    for devices, env, words in (
        ([device()], {"FOUNDRY_SM": "70"}, "there are builds for 80 and 90"),
        ([device(7, 5)], {}, "needs 8.0 or later"),
        ([], {}, "no CUDA device"),
    ):
        with pytest.raises(hook.NoHook, match=words):
            hook.target_for(devices, env)


def test_path_that_ld_preload_cannot_express(tmp_path: Path) -> None:
    path = tmp_path / "a b.so"
    path.touch()
    with pytest.raises(hook.NoHook, match="blank or a colon"):
        hook.hook_library(90, {"FOUNDRY_HOOK_LIBRARY": str(path)})


def test_default_place_of_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hook.library_folder().name == "lib" and hook.library_folder().parent.name == "foundry"
    monkeypatch.setattr(hook, "library_folder", lambda: tmp_path)
    with pytest.raises(hook.NoHook, match=r"sm_80/libcuda_hook.so does not exist.* no hook for sm_80"):
        hook.hook_library(80, {})
    (tmp_path / "sm_80").mkdir()
    (tmp_path / "sm_80" / "libcuda_hook.so").touch()
    assert hook.hook_library(80, {}) == tmp_path / "sm_80" / "libcuda_hook.so"


def test_auto_loads_what_served_the_same_start_and_hooks_otherwise(
    world: World, monkeypatch: pytest.MonkeyPatch, library: Path
) -> None:
    env = {"FOUNDRY_HOOK_LIBRARY": str(library), "XDG_CACHE_HOME": str(world.archive.parent)}
    answer(monkeypatch)
    path, command = str(world.archive), ["serve", "--model", "a"]

    def auto(*, archive: str | None = path, command: list[str] = command) -> dict[str, str]:
        return run.environment("auto", archive, env, command)

    first = auto()
    assert "LD_PRELOAD" in first  # nothing there yet
    world.save()
    assert "LD_PRELOAD" in auto()  # it is not known what for
    launches.record(path, first["FOUNDRY_LAUNCH"], True)
    made = auto()
    assert "LD_PRELOAD" not in made and made["FOUNDRY_MODE"] == "auto"
    assert "LD_PRELOAD" in auto(archive=None)  # the default place has none
    assert "LD_PRELOAD" in auto(command=["serve", "--model", "b"])
    answer(monkeypatch, devices=[device(sm_count=108)])
    assert "LD_PRELOAD" in auto()
    # One that auto saved beside it counts.
    answer(monkeypatch)
    world.archive.rename(f"{path}-0123abcd")
    os.rename(f"{path}.launches", f"{path}-0123abcd.launches")
    assert "LD_PRELOAD" not in auto()


def test_without_a_name_archives_lie_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, library: Path, tmp_path: Path
) -> None:
    answer(monkeypatch)
    cache = tmp_path / "c"
    env = {"FOUNDRY_HOOK_LIBRARY": str(library), "XDG_CACHE_HOME": str(cache), "HOME": "/h"}
    assert run.environment("load", None, env)["FOUNDRY_ARCHIVE"] == f"{cache}/foundry/archive"
    assert run.environment("load", None, {"HOME": "/h"})["FOUNDRY_ARCHIVE"] == "/h/.cache/foundry/archive"
    assert run.environment("save", None, {**env, "FOUNDRY_ARCHIVE": "/mine"})["FOUNDRY_ARCHIVE"] == "/mine"
    assert "FOUNDRY_ARCHIVE" not in run.environment("off", None, env)
    assert not cache.exists()
    # SAVE wants a folder to put its archive into.
    assert run.environment("auto", None, env)["FOUNDRY_ARCHIVE"] == f"{cache}/foundry/archive"
    assert (cache / "foundry").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    # Where there can be none, none is named: the program names its own or is told to.
    assert "FOUNDRY_ARCHIVE" not in run.environment("save", None, {**env, "XDG_CACHE_HOME": str(tmp_path / "file")})


def test_no_driver(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    answer(monkeypatch, problem="libcuda.so.1 was not found", devices=[])
    env = {"FOUNDRY_HOOK_LIBRARY": str(library), "XDG_CACHE_HOME": str(library.parent)}
    assert "LD_PRELOAD" not in run.environment("auto", None, env)
    with pytest.raises(hook.NoHook, match=r"libcuda.so.1 was not found; `foundry doctor` .*quickstart"):
        run.environment("save", None, env)
    # Whoever names the target knows what they do (the program may set up the driver itself).
    assert "LD_PRELOAD" in run.environment("save", None, {**env, "FOUNDRY_SM": "90"})


def test_probe_survives_a_child_that_dies(tmp_path: Path) -> None:
    broken = tmp_path / "foundry" / "cli"
    broken.mkdir(parents=True)
    (tmp_path / "foundry" / "__init__.py").touch()
    (broken / "__init__.py").touch()
    (broken / "probe.py").write_text("import os; os.kill(os.getpid(), 11)")
    found = probe.ask({**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"})
    assert found.devices == [] and "ended with code -11" in (found.problem or "")


# ---- inspect


def test_inspect_json(world: World) -> None:
    world.save()
    result = invoke("inspect", str(world.archive), "--json", "--pointers")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert [g["name"] for g in document["graphs"]] == ["decode/8", "decode/16", "decode/32"]
    assert document["nodes_by_type"] == {"kernel": 6}
    assert {z["name"]: z["kind"] for z in document["zones"]} == {
        "graphs": "graphs",
        "ambient": "ambient",
        "weights": "rebuilt",
        "inputs": "rebuilt",
    }
    assert [(a["name"], a["mutable"]) for a in document["anchors"]] == [
        ("model.w0", False),
        ("model.w1", False),
        ("x", True),
    ]
    assert document["fingerprint"]["gpu_name"] == {"value": "Fake GPU", "rule": "exact"}
    assert document["pointers"] == [] and document["bytes"] == document["files"][0]["bytes"] > 0


def test_inspect_text(world: World) -> None:
    world.save()
    result = invoke("inspect", str(world.archive))
    assert result.exit_code == 0
    for word in ("3 graphs", "decode/16", "weights", "rebuilt", "sm_count", "132", "must be equal", "(all)"):
        assert word in result.stdout, word


@pytest.mark.parametrize("what", ["missing", "manifest", "file"])
def test_inspect_refuses_in_one_sentence(world: World, what: str) -> None:
    if what != "missing":
        world.save()
        target = world.archive / ("foundry.json" if what == "manifest" else "rank_0/all.json")
        target.write_text(target.read_text()[:-20])
    result = CliRunner().invoke(app, ["inspect", str(world.archive)])
    assert result.exit_code == 1
    assert result.stdout == "" and result.stderr.startswith("foundry: ") and len(result.stderr.splitlines()) == 1


# ---- doctor


def examine(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str] | None = None, archive: str | None = None, **fields: Any
) -> dict[str, list[doctor.Check]]:
    answer(monkeypatch, **{"zone": "", "framework": "torch 2.11.0", "owner": "hook", "sm_target": 90, **fields})
    found: dict[str, list[doctor.Check]] = {}
    for check in doctor.examine(env if env is not None else dict(os.environ), archive):
        found.setdefault(check.name, []).append(check)
    return found


def test_healthy_machine(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    found = examine(monkeypatch)
    assert {check.status for checks in found.values() for check in checks} == {"ok"}
    assert set(found) == {"driver", "gpu", "torch", "addresses", "hook", "interposers"}
    result = invoke("doctor", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["healthy"] is True
    assert "132 multiprocessors" in invoke("doctor").stdout


@pytest.mark.parametrize(
    ("fields", "name", "words"),
    [
        ({"problem": "libcuda.so.1 was not found", "devices": []}, "driver", "libcuda.so.1 was not found"),
        ({"devices": []}, "gpu", "sees no GPU"),
        ({"devices": [device(7, 0)]}, "gpu", "8.0 is needed"),
        ({"framework": "PyTorch's expandable segments do not go"}, "torch", "expandable"),
        ({"zone": "0x100000000000 is taken by /lib/x.so"}, "addresses", "is taken"),
        ({"owner": "core"}, "hook", "does not answer"),
    ],
)
def test_problems(
    monkeypatch: pytest.MonkeyPatch, library: Path, fields: dict[str, Any], name: str, words: str
) -> None:
    found = examine(monkeypatch, **fields)
    assert found[name][0].status == "problem" and words in found[name][0].sentence
    result = invoke("doctor")
    assert result.exit_code == 1 and words in result.stdout


def test_no_driver_says_what_to_do(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    monkeypatch.delenv("FOUNDRY_HOOK_LIBRARY")
    found = examine(monkeypatch, problem="no CUDA driver: libcuda.so.1 cannot be opened", devices=[])
    assert "install NVIDIA's driver" in found["driver"][0].sentence and "quickstart" in found["driver"][0].sentence
    assert found["hook"][0] == doctor.Check("hook", "skipped", "there is no GPU to choose the build for")
    # Foundry's own extension is another matter.
    found = examine(monkeypatch, problem="Foundry's extension cannot be loaded: no _core", devices=[])
    assert "NVIDIA" not in found["driver"][0].sentence


def test_no_torch_and_interposers_are_warnings(monkeypatch: pytest.MonkeyPatch, library: Path) -> None:
    env = {"FOUNDRY_HOOK_LIBRARY": str(library), "LD_PRELOAD": f"/x/jemalloc.so:{library}"}
    found = examine(monkeypatch, env, framework="none", diagnoses=["an image could not be copied"])
    assert found["torch"][0].status == found["interposers"][0].status == "warning"
    assert "/x/jemalloc.so" in found["interposers"][0].sentence and str(library) not in found["interposers"][0].sentence
    assert [check.status for check in found["hook"]] == ["ok", "warning"]
    assert doctor.healthy([check for checks in found.values() for check in checks])


def test_doctor_checks_an_archive(monkeypatch: pytest.MonkeyPatch, world: World, library: Path) -> None:
    world.save()
    assert examine(monkeypatch, archive=str(world.archive))["archive"][0].status == "ok"
    found = examine(monkeypatch, archive=str(world.archive), devices=[device(sm_count=108)])["archive"][0]
    assert found.status == "problem" and "sm_count 132 there, 108 here" in found.sentence
    assert examine(monkeypatch, archive=str(world.archive / "none"))["archive"][0].status == "problem"


# ---- gc


def test_gc_finds_archives_with_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.fdry", "b.fdry", "a.fdry.tmp-12-x1", "c.fdry.old-9-zz", "d.tmp-x", "e.tmp-3"):
        (tmp_path / name).mkdir()
    assert cleaning.archives_with_leftovers(str(tmp_path)) == [str(tmp_path / "a.fdry"), str(tmp_path / "c.fdry")]
    assert cleaning.archives_with_leftovers(str(tmp_path / "a.fdry")) == [str(tmp_path / "a.fdry")]
    assert cleaning.archives_with_leftovers(str(tmp_path / "b.fdry")) == []
    assert cleaning.archives_with_leftovers(str(tmp_path / "c.fdry")) == [str(tmp_path / "c.fdry")]


def test_gc_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.fdry.tmp-12-x1").mkdir()
    (tmp_path / "c.fdry.old-9-zz").mkdir()
    asked: list[tuple[str, str]] = []

    def stale(name: str) -> Any:
        def act(archive: str) -> list[Any]:
            asked.append((name, os.path.basename(archive)))
            kind = type("Stale", (), {})
            made = kind()
            made.path, made.pid, made.bytes, made.restorable = archive + ".x", 12, 2048, archive.endswith("c.fdry")
            return [made]

        return act

    monkeypatch.setattr(fake_core, "list_stale", stale("list"), raising=False)
    monkeypatch.setattr(fake_core, "remove_stale", stale("remove"), raising=False)
    result = invoke("gc", str(tmp_path))
    assert result.exit_code == 0 and asked == [("remove", "a.fdry"), ("remove", "c.fdry")]
    assert "removed: " in result.stdout and "put back: " in result.stdout and "2.0 KiB" in result.stdout
    asked.clear()
    assert "would be removed" in invoke("gc", str(tmp_path), "--dry-run").stdout
    assert {name for name, _ in asked} == {"list"}
    (tmp_path / "empty").mkdir()
    assert invoke("gc", str(tmp_path / "empty")).stdout == "nothing to remove\n"
    # Whoever mistyped the folder sees it.
    assert invoke("gc", str(tmp_path / "none")).stdout == f"nothing to remove: there is no {tmp_path / 'none'}\n"


def test_help_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for command, words in (
        ([], ["SAVE", "LOAD", "run", "inspect", "doctor", "gc"]),
        (["run"], ["LD_PRELOAD", "125", "FOUNDRY_SM", "--archive"]),
        (["inspect"], ["fingerprint", "--pointers", "Exit code"]),
        (["doctor"], ["Nothing is changed", "Exit code"]),
        (["gc"], ["--dry-run", "Exit code"]),
    ):
        result = invoke(*command, "--help")
        assert result.exit_code == 0
        for word in words:
            assert word in result.stdout, (command, word)


def test_version() -> None:
    assert invoke("--version").stdout == f"foundry {fake_core.VERSION}\n"
