"""Counts the test cases of one `bazel test`, from its build event file.

usage: test_summary.py EVENTS.json

The file is what `bazel test --build_event_json_file=EVENTS.json` wrote. Every pytest and GoogleTest case
counts once, by the XML report of its target; a target that was not built, crashed, timed out or left
no report counts as one failed case. Targets that cannot run on this machine are named as not run. The last line is `N passed, N failed[, N skipped]`; the exit status
is 1 if anything failed or nothing ran.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


@dataclass
class Counts:
    """Numbers of cases, and a sentence for each failure."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.not_run += other.not_run

    def fail(self, sentence: str) -> None:
        self.failed += 1
        self.failures.append(sentence)

    def line(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def count_report(text: str, label: str) -> Counts:
    """Counts the cases of one XML report (JUnit's form, as pytest, GoogleTest and Bazel write it).

    Raises ElementTree.ParseError if the text is no XML.
    """
    counts = Counts()
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = f"{label}: {case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            counts.fail(name)
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def count_result(label: str, result: dict[str, Any]) -> Counts:
    """Counts one run of one test target (one shard)."""
    counts = Counts()
    status = result.get("status", "NO_STATUS")
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml" and output.get("uri", "").startswith("file:"):
            path = Path(unquote(urlparse(output["uri"]).path))
            try:
                counts = count_report(path.read_text(errors="replace"), label)
            except (OSError, ElementTree.ParseError) as error:
                counts.fail(f"{label}: its report cannot be read ({error})")
            break
    else:
        if status == "PASSED":
            counts.fail(f"{label}: passed without a report")
    if status != "PASSED" and not counts.failed:
        counts.fail(f"{label}: {status}")
    return counts


def summarize(events: Iterable[dict[str, Any]]) -> Counts:
    """Counts all targets of one invocation."""
    results: dict[tuple[str, int, int], tuple[int, dict[str, Any]]] = {}
    broken: dict[str, str] = {}
    not_run: set[str] = set()
    exit_name = "no end was recorded"
    for event in events:
        identity = event.get("id", {})
        if "testResult" in identity:
            key = identity["testResult"]
            attempt = key.get("attempt", 1)
            run = (key["label"], key.get("run", 1), key.get("shard", 1))
            if "testResult" in event and attempt >= results.get(run, (0, {}))[0]:
                results[run] = (attempt, event["testResult"])
        for kind in ("targetCompleted", "targetConfigured", "configuredLabel", "unconfiguredLabel"):
            label = identity.get(kind, {}).get("label")
            if label and kind == "targetCompleted" and event.get("aborted", {}).get("reason") == "SKIPPED":
                not_run.add(label)
            elif label and "aborted" in event and event["aborted"].get("reason") != "SKIPPED":
                broken.setdefault(
                    label, event["aborted"].get("description") or event["aborted"].get("reason", "aborted")
                )
            elif kind == "targetCompleted" and label and "completed" in event and not event["completed"].get("success"):
                broken.setdefault(label, "failed to build")
        if "finished" in event:
            exit_name = event["finished"].get("exitCode", {}).get("name", "no exit code")
    counts = Counts(not_run=sorted(not_run))
    ran = set()
    for (label, _, _), (_, result) in sorted(results.items()):
        ran.add(label)
        counts.add(count_result(label, result))
    for label, reason in sorted(broken.items()):
        if label not in ran:
            counts.fail(f"{label}: {reason}")
    if exit_name != "SUCCESS" and not counts.failed:
        counts.fail(f"bazel ended with {exit_name}")
    return counts


def read_events(path: Path) -> list[dict[str, Any]]:
    """Reads the event file; a cut-off last line (Bazel was killed) is left out."""
    events = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return events


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    counts = summarize(read_events(Path(arguments[0])))
    for failure in counts.failures:
        print(f"FAILED {failure}")
    for label in counts.not_run:
        print(f"not run: {label} does not fit this machine (a test of tag gpu needs --config=gpu)")
    print(counts.line())
    return 1 if counts.failed or not counts.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
