"""What pip calls to build Foundry from its sources: wheels by Bazel, source archives from git's list of files."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from tools import version

ROOT = Path(__file__).resolve().parents[1]


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Builds //:wheel for the running interpreter (PEP 517). Ends with one sentence if Bazel cannot."""
    bazel = [str(ROOT / "tools/bazelw")]
    env = {**os.environ, "FOUNDRY_PYTHON": sys.executable}
    for key in ("PYTHONPATH", "PYTHONHOME", "PIP_BUILD_TRACKER", "PIP_REQUIRE_VIRTUALENV"):  # of pip's isolation
        env.pop(key, None)
    if subprocess.run([*bazel, "build", "--noshow_progress", "//:wheel"], cwd=ROOT, env=env).returncode:
        raise SystemExit(
            "Foundry was not built: Bazel could not run or failed, as said above. Install Bazel "
            f"{(ROOT / '.bazelversion').read_text().strip()} (or bazelisk), or install a ready wheel of Foundry instead."
        )
    files = [*bazel, "cquery", "--output=files", "--noshow_progress", "//:wheel"]
    listed = subprocess.run(files, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, check=True).stdout.split()
    (wheel,) = [ROOT / name for name in listed if name.endswith(".whl")]
    shutil.copyfile(wheel, Path(wheel_directory, wheel.name))
    return wheel.name


def source_files() -> list[str]:
    """Files of the source archive: what git tracks, or (in an unpacked archive) all but what Bazel links in."""
    try:
        git = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files"]
        listed = subprocess.run(git, text=True, capture_output=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [name for name in folders if not name.startswith((".git", "bazel-", "__pycache__"))]
            listed += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name != "PKG-INFO"]
    return sorted(name for name in listed if (ROOT / name).is_file())


def write_sdist(out: io.BufferedIOBase, names: list[str]) -> None:
    """Writes the source archive: the same bytes for the same files, whoever makes it and when."""
    source = version.read(ROOT)
    top = f"foundry-{source.version}"
    head = (ROOT / "tools/wheel_metadata.txt").read_text().splitlines()
    head = ["Metadata-Version: 2.4", "Name: foundry", f"Version: {source.version}", *(x for x in head if x[:1] != "#")]
    with (
        gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=9, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):

        def add(name: str, data: bytes, executable: bool = False) -> None:
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = len(data)
            entry.mode = 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(data))

        add("PKG-INFO", ("\n".join(head) + "\n").encode())
        add(version.ARCHIVAL, version.archival(source).encode())
        for name in names:
            if name == version.ARCHIVAL:
                continue
            data = (ROOT / name).read_bytes()
            add(name, data, executable=data[:2] == b"#!")


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """Writes foundry-VERSION.tar.gz (PEP 517)."""
    try:
        name = f"foundry-{version.read(ROOT).version}.tar.gz"
    except version.VersionError as error:
        raise SystemExit(str(error)) from None
    with Path(sdist_directory, name).open("wb") as out:
        write_sdist(out, source_files())
    return name


def main() -> None:
    """`tools/bazelw run //:sdist -- FOLDER`: the folder is dist/ of the checkout if none is named."""
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), *sys.argv[1:2] or ["dist"])
    folder.mkdir(parents=True, exist_ok=True)
    print(folder / build_sdist(str(folder)))


if __name__ == "__main__":
    main()
