"""What an engine's log says of a start: every fact once, whatever handlers the engine has given the root logger."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import foundry
from foundry.engines.common.starting import EngineStart
from foundry.report import Report

log = logging.getLogger("foundry")


class Session:
    """Stands in for a session: logs as one does, and does nothing."""

    def __init__(self, outcome: str, fail: str = "") -> None:
        self.report = Report("a.fdry", "load", "off")
        self._outcome, self._fail = outcome, fail

    def begin(self) -> Session:
        self.report.outcome = self._outcome
        if self._outcome == "native":
            self.report.reason = "there is no archive"
            log.warning("%s", self.report)
        return self

    def attached(self, name: str) -> None:
        return None

    def restored(self, name: str) -> None:
        if self._fail:
            raise OSError(self._fail)
        self.report.fell_back[name] = "images/ab: its hash is wrong"

    def wait(self) -> None:
        self.report.outcome = "restored"

    def end(self, problem: BaseException | None = None) -> None:
        if problem is not None:
            self.report.outcome = "failed"
        elif self.report.outcome == "restored":
            log.warning("%s", self.report)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the engine's log has; the root logger writes there too, as SGLang's does."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Handler(logging.INFO)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    monkeypatch.delenv("FOUNDRY_ON_MISMATCH", raising=False)
    monkeypatch.setenv("FOUNDRY_MODE", "load")
    return lines


def start(monkeypatch: pytest.MonkeyPatch, said: list[str], session: Session) -> EngineStart:
    monkeypatch.setattr(foundry, "session", lambda **_: session, raising=False)

    def say(line: str) -> None:
        logging.getLogger("engine").info("%s", line)

    made = EngineStart(say, lambda module: False)
    made.begin({})
    return made


def test_an_account_is_said_once_with_its_reasons(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    made = start(monkeypatch, said, Session("loading"))
    for size in (4, 2, 1):
        assert made.restored(f"decode/{size}") is None
    made.end()
    text = "\n".join(said)
    assert said[0] == "restoring from a.fdry"
    assert text.count("restored 0 of 3 graphs from a.fdry") == 1
    assert text.count("its hash is wrong") == 1
    assert "captured natively: decode/4, decode/2, decode/1: images/ab: its hash is wrong" in text


def test_a_native_start_says_why_once(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    made = start(monkeypatch, said, Session("native"))
    assert said == ["serving natively: there is no archive"]
    assert made.report is not None and made.report.outcome == "native"


def test_a_failure_says_why_once_and_keeps_its_account(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    made = start(monkeypatch, said, Session("loading", fail="the disk is gone"))
    assert made.restored("decode/1") is None
    assert made.state == "native"
    made.end()
    assert said == ["restoring from a.fdry", "serving natively: graph decode/1: the disk is gone"]
    assert made.report is not None and made.report.outcome == "failed"


def test_the_log_is_as_before_when_a_start_is_over(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    before: tuple[Any, ...] = (list(log.handlers), log.level, log.propagate)
    for session in (Session("loading"), Session("loading", fail="the disk is gone"), Session("native")):
        made = start(monkeypatch, said, session)
        made.restored("decode/1")
        made.end()
        assert (list(log.handlers), log.level, log.propagate) == before
