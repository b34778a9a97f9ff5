"""flake.nix evaluates: every output, with a stub in nixpkgs' place, and without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

OUTPUTS = {
    "packages": {"default", "vendor", "wheel"},
    "devShells": {"default"},
    "checks": {"lint", "quickstart"},
}


class Nix:
    """Nix with a store of its own, over a copy of the flake (a store takes no links)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.flake = folder / "flake"
        (self.flake / "third_party").mkdir(parents=True)
        shutil.copyfile(os.environ["FLAKE"], self.flake / "flake.nix")
        shutil.copyfile(os.environ["VENDOR_HASH"], self.flake / "third_party/vendor_hash.nix")
        (folder / "stub").mkdir()
        shutil.copyfile(os.environ["STUB"], folder / "stub/flake.nix")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*program(), "--extra-experimental-features", "nix-command flakes"]
        place = ["--store", str(self.folder / "store"), "--no-write-lock-file"]
        stub = ["--override-input", "nixpkgs", f"path:{self.folder / 'stub'}"]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "NIX_CONF_DIR": str(self.folder)}
        return subprocess.run([*command, *arguments, *place, *stub], text=True, capture_output=True, env=env)

    def eval(self, attribute: str, *arguments: str) -> object:
        done = self.run("eval", "--json", f"path:{self.flake}#{attribute}", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def program() -> list[str]:
    """The host's nix, else the one of Debian's packages, started by the loader that came with it."""
    found = shutil.which("nix")
    if found:
        return [found]
    root = Path(os.environ["NIX_ROOT"]).resolve()
    reason = (root / "unavailable.txt").read_text()
    if reason:
        pytest.skip(f"there is no nix: {reason}")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    path = f"{libraries}:{root / 'usr/lib/nix'}"
    return [str(libraries / "ld-linux-x86-64.so.2"), "--library-path", path, str(root / "usr/bin/nix")]


@pytest.fixture
def nix(tmp_path: Path) -> Nix:
    return Nix(tmp_path)


def test_flake_check(nix: Nix) -> None:
    done = nix.run("flake", "check", "--no-build", f"path:{nix.flake}")
    assert done.returncode == 0, done.stderr
    for kind, names in OUTPUTS.items():
        for name in names:
            assert f"{kind}.x86_64-linux.{name}" in done.stderr


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_are_derivations(nix: Nix, kind: str) -> None:
    apply = "outputs: builtins.mapAttrs (name: output: output.drvPath) outputs"
    paths = nix.eval(f"{kind}.x86_64-linux", "--apply", apply)
    assert isinstance(paths, dict) and set(paths) == OUTPUTS[kind]
    assert all(path.startswith("/nix/store/") and path.endswith(".drv") for path in paths.values())


def test_vendor_is_pinned(nix: Nix) -> None:
    """Only a derivation with a fixed content may use the network."""
    value = nix.eval("packages.x86_64-linux.vendor.outputHash")
    assert isinstance(value, str) and re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", value)
    assert value != "sha256-" + "A" * 43 + "="


def test_a_name_that_nixpkgs_lacks_is_an_error(nix: Nix) -> None:
    text = (nix.flake / "flake.nix").read_text()
    (nix.flake / "flake.nix").write_text(text.replace("p.shellcheck", "p.shellchek"))
    done = nix.run("flake", "check", "--no-build", f"path:{nix.flake}")
    assert done.returncode != 0 and "shellchek" in done.stderr
