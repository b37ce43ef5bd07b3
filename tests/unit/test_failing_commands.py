"""Which failures of commands end a pool: the grace of slower workers begins with the command."""

from __future__ import annotations

import pytest

from magmath.errors import MemoryLimitError
from magmath.runtime import failing_commands, messages
from magmath.runtime.failing_commands import FailingCommands, Outcome
from magmath.runtime.failures import failure_from
from magmath.runtime.run_handle import PendingCommand


def command(ticket: int) -> PendingCommand:
    return PendingCommand(ticket, range(2), (messages.Done,), {0, 1}, 0, None, False)


def fail(pending: PendingCommand, rank: int) -> None:
    error = MemoryLimitError("allocate: the heap is full")
    pending.add_reply(rank, failure_from(error, pending.ticket, rank, ""), None)


def test_slower_workers_may_execute_earlier_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing_commands, "FAILURE_GRACE", 60.0)
    earlier, failing, later = command(1), command(2), command(3)
    pending, failures = [earlier, failing, later], FailingCommands()
    earlier.add_reply(0, messages.Done(1), None)
    fail(failing, 0)
    failures.add(failing)
    failures.extend_grace(-120.0)  # time passes
    assert failures.outcome(pending) is Outcome.UNKNOWN
    failures.extend_grace(-30.0)
    earlier.add_reply(1, messages.Done(1), None)
    assert failures.outcome([failing, later]) is Outcome.UNKNOWN
    fail(failing, 1)
    assert failures.outcome([later]) is Outcome.RESUMES


def test_a_worker_that_does_not_fail_in_time_is_not_in_step() -> None:
    failing, failures = command(2), FailingCommands()
    fail(failing, 1)
    failures.add(failing)
    assert failures.outcome([failing]) is Outcome.UNKNOWN
    failures.extend_grace(-120.0)
    assert failures.outcome([command(1), failing]) is Outcome.UNKNOWN
    failures.extend_grace(-120.0)
    assert failures.outcome([failing]) is Outcome.ENDS
