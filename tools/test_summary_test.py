"""test_summary counts what really ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools import test_summary

GOOGLETEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" failures="1" disabled="1" errors="0" name="AllTests"><testsuite name="S" tests="4">
<testcase name="Good" status="run" result="completed" classname="S" />
<testcase name="Bad" status="run" result="completed" classname="S"><failure message="m" type=""/><failure message="n"/></testcase>
<testcase name="Skipped" status="run" result="skipped" classname="S"><skipped message="no GPU"/></testcase>
<testcase name="DISABLED_Off" status="notrun" result="suppressed" classname="S" />
</testsuite></testsuites>"""
PYTEST = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" errors="1" failures="0" tests="3">
<testcase classname="t" name="test_a" time="0.1"/><testcase classname="t" name="test_b"><error message="e">x</error></testcase>
<testcase classname="t" name="test_c"><skipped type="pytest.skip" message="s">x</skipped></testcase></testsuite></testsuites>"""
ALL_GOOD = '<testsuites><testsuite><testcase name="a"/><testcase name="b"/></testsuite></testsuites>'
END = {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": "SUCCESS"}}}


def result(folder: Path, label: str, status: str, xml: str | None, shard: int = 1, attempt: int = 1) -> dict[str, Any]:
    outputs = [{"name": "test.log", "uri": "file:///nowhere"}]
    if xml is not None:
        path = folder / f"{label.strip('/').replace(':', '_')} {shard}.{attempt}.xml"
        path.write_text(xml)
        outputs.append({"name": "test.xml", "uri": path.as_uri()})
    return {
        "id": {"testResult": {"label": label, "run": 1, "shard": shard, "attempt": attempt}},
        "testResult": {"status": status, "testActionOutput": outputs},
    }


def test_reports_of_googletest_and_pytest() -> None:
    counts = test_summary.count_report(GOOGLETEST, "//a:t")
    assert (counts.passed, counts.failed, counts.skipped) == (1, 1, 2)
    assert counts.failures == ["//a:t: S.Bad"]
    counts = test_summary.count_report(PYTEST, "//a:p")
    assert (counts.passed, counts.failed, counts.skipped) == (1, 1, 1)


def test_targets_and_shards_add_up(tmp_path: Path) -> None:
    events = [result(tmp_path, "//a:t", "PASSED", ALL_GOOD, shard) for shard in (1, 2)]
    counts = test_summary.summarize([*events, result(tmp_path, "//b:t", "FAILED", GOOGLETEST), END])
    assert counts.line() == "5 passed, 1 failed, 2 skipped"


def test_last_attempt_counts(tmp_path: Path) -> None:
    first = result(tmp_path, "//a:t", "FAILED", GOOGLETEST, attempt=1)
    second = result(tmp_path, "//a:t", "PASSED", ALL_GOOD, attempt=2)
    assert test_summary.summarize([second, first, END]).line() == "2 passed, 0 failed"


@pytest.mark.parametrize("xml", [None, "<testsuites", ALL_GOOD])
def test_crash_and_timeout_count_as_failed(tmp_path: Path, xml: str | None) -> None:
    counts = test_summary.summarize([result(tmp_path, "//a:t", "TIMEOUT", xml), END])
    assert counts.failed == 1


@pytest.mark.parametrize("xml", [None, "<testsuites"])
def test_passed_without_report_is_a_failure(tmp_path: Path, xml: str | None) -> None:
    assert test_summary.summarize([result(tmp_path, "//a:t", "PASSED", xml), END]).failed == 1


def test_what_was_not_built_counts_once() -> None:
    events = [
        {"id": {"targetCompleted": {"label": "//a:t"}}, "completed": {"success": False}},
        {
            "id": {"configuredLabel": {"label": "//a:t"}},
            "aborted": {"reason": "ANALYSIS_FAILURE", "description": "no such target"},
        },
        {"id": {"targetCompleted": {"label": "//b:lib"}}, "completed": {"success": True}},
        {"id": {"targetCompleted": {"label": "//c:skipped"}}, "aborted": {"reason": "SKIPPED"}},
        {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": "BUILD_FAILURE"}}},
    ]
    counts = test_summary.summarize(events)
    assert counts.failures == ["//a:t: failed to build"]
    assert counts.not_run == ["//c:skipped"]


def test_failure_of_bazel_itself_is_not_lost() -> None:
    assert test_summary.summarize([]).failed == 1
    end = {"id": {"buildFinished": {}}, "finished": {"exitCode": {"name": "COMMAND_LINE_ERROR"}}}
    assert test_summary.summarize([end]).failures == ["bazel ended with COMMAND_LINE_ERROR"]


def test_exit_status_and_last_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = tmp_path / "events.json"
    events.write_text("\n".join(map(json.dumps, [result(tmp_path, "//a:t", "PASSED", ALL_GOOD), END])))
    assert test_summary.main([str(events)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"
    skipped = {"id": {"targetCompleted": {"label": "//c:gpu"}}, "aborted": {"reason": "SKIPPED"}}
    events.write_text("\n".join(map(json.dumps, [skipped, result(tmp_path, "//a:t", "PASSED", ALL_GOOD), END])))
    assert test_summary.main([str(events)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("not run: //c:gpu ") and last == "2 passed, 0 failed"
    events.write_text(json.dumps(END) + "\n" + json.dumps(END)[:5])
    assert test_summary.main([str(events)]) == 1  # nothing ran
    assert test_summary.main([str(tmp_path / "missing.json")]) == 1
