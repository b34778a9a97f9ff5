"""Rewrites Debian's list of Bazel's jars so that it names the ones below a prefix.

usage: bazel_classpath.py PREFIX EXTRA_JAR...

Debian's list holds the direct jars only and relies on the Class-Path of their manifests, with
absolute paths; those are followed here.
"""

from __future__ import annotations

import posixpath
import sys
import zipfile
from pathlib import Path


def manifest_class_path(jar: Path) -> list[str]:
    """The entries of a jar's Class-Path, as written."""
    with zipfile.ZipFile(jar) as archive:
        if "META-INF/MANIFEST.MF" not in archive.namelist():
            return []
        text = archive.read("META-INF/MANIFEST.MF").decode()
    for line in text.replace("\r\n", "\n").replace("\n ", "").split("\n"):
        if line.startswith("Class-Path:"):
            return line[len("Class-Path:") :].split()
    return []


def main(prefix: str, *extra: str) -> None:
    listing = Path(prefix, "usr/share/bazel/bazel_classpath_debian_depends.txt")
    todo = [jar for line in listing.read_text().splitlines() for jar in line.split(":") if jar]
    seen: list[str] = []
    while todo:
        jar = todo.pop(0)
        path = prefix + jar
        if path in seen or not Path(path).exists():
            continue
        seen.append(path)
        for entry in manifest_class_path(Path(path)):
            entry = entry.removeprefix("file://")
            if not entry.startswith("/"):
                entry = posixpath.normpath(posixpath.join(posixpath.dirname(jar), entry))
            todo.append(entry)
    listing.write_text("\n".join([*seen, *extra]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
