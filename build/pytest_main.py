"""Runs pytest for one Bazel test target, and writes its cases where Bazel expects the XML report."""

from __future__ import annotations

import os
import sys

import pytest


def main(arguments: list[str]) -> int:
    options = [
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "-ra",
        "--strict-markers",
        "-W",
        "error::pytest.PytestUnraisableExceptionWarning",
    ]
    report = os.environ.get("XML_OUTPUT_FILE")
    if report:
        options.append(f"--junitxml={report}")
    wanted = os.environ.get("TESTBRIDGE_TEST_ONLY")  # bazel test --test_filter=...
    if wanted:
        options += ["-k", wanted]
    os.environ.setdefault(
        "HYPOTHESIS_STORAGE_DIRECTORY", os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "hypothesis")
    )
    # Children that tests start import the same packages.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    return int(pytest.main([*options, "-c", os.devnull, "--rootdir=.", *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
