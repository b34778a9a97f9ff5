"""The stack of phases: nesting, re-entering, threads, captures, errors."""

from __future__ import annotations

import threading

import pytest

from foundry.phases import PhaseStack


class Recorder:
    """A runtime that writes down what begins and ends, and refuses two zones at once."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current: int | None = None
        self.refuse: int | None = None

    def begin_zone(self, slot: int) -> None:
        assert self.current is None
        if slot == self.refuse:
            raise MemoryError
        self.current = slot
        self.log.append(f"+{slot}")

    def pause_zone(self, slot: int) -> None:
        assert self.current == slot
        self.current = None
        self.log.append(f"({slot}")

    def resume_zone(self, slot: int) -> None:
        assert self.current is None
        self.current = slot
        self.log.append(f"{slot})")

    def end_zone(self, slot: int) -> None:
        assert self.current == slot
        self.current = None
        self.log.append(f"-{slot}")


@pytest.fixture
def runtime() -> Recorder:
    return Recorder()


@pytest.fixture
def stack(runtime: Recorder) -> PhaseStack:
    return PhaseStack(runtime)  # type: ignore[arg-type]


def test_outer_ends_before_inner_begins(stack: PhaseStack, runtime: Recorder) -> None:
    with stack.phase(1), stack.phase(2):
        assert stack.current == 2
    with stack.phase(1):
        pass
    assert runtime.log == ["+1", "-1", "+2", "-2", "+1", "-1", "+1", "-1"]


def test_same_zone_nested_stays(stack: PhaseStack, runtime: Recorder) -> None:
    with stack.phase(1), stack.phase(1):
        pass
    assert runtime.log == ["+1", "-1"]


def test_phase_without_zone_suspends(stack: PhaseStack, runtime: Recorder) -> None:
    with stack.phase(1), stack.phase(None):
        assert runtime.current is None
    assert runtime.log == ["+1", "-1", "+1", "-1"]


def test_suspended(stack: PhaseStack, runtime: Recorder) -> None:
    with stack.phase(1):
        with stack.suspended():
            assert runtime.current is None
            with stack.suspended(), stack.phase(2):
                assert runtime.current is None
        assert runtime.current == 1
    assert runtime.log == ["+1", "(1", "1)", "-1"]


def test_a_phase_that_ends_while_suspended_ends_afterwards(stack: PhaseStack, runtime: Recorder) -> None:
    with stack.phase(1):
        with stack.suspended():
            stack.end_all()
            assert runtime.current is None
        assert runtime.current is None
    assert runtime.log == ["+1", "(1", "1)", "-1"]


def test_exceptions_end_phases(stack: PhaseStack, runtime: Recorder) -> None:
    with pytest.raises(ValueError), stack.phase(1), stack.phase(2):
        raise ValueError
    assert runtime.current is None and stack.current is None


def test_begin_that_fails_leaves_the_outer_phase_usable(stack: PhaseStack, runtime: Recorder) -> None:
    runtime.refuse = 2
    with stack.phase(1):
        with pytest.raises(MemoryError), stack.phase(2):
            raise AssertionError
        with stack.phase(3):
            assert runtime.current == 3
        assert runtime.current == 1
    assert runtime.current is None


def test_blocks_of_threads_may_cross(stack: PhaseStack, runtime: Recorder) -> None:
    """Thread 2 enters inside thread 1's block and leaves after it."""
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with stack.phase(2):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with stack.phase(1):
        thread.start()
        assert entered.wait(10)
        assert stack.current == 2
    assert stack.current == 2
    leave.set()
    thread.join()
    assert runtime.log == ["+1", "-1", "+2", "-2"]


def test_end_all(stack: PhaseStack, runtime: Recorder) -> None:
    with stack.phase(1), stack.phase(2):
        stack.end_all()
        assert runtime.current is None
    assert runtime.current is None
