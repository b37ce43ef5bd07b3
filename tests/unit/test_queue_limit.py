"""The limit of unanswered commands follows the speed of the workers."""

from __future__ import annotations

import pytest

from magmath.runtime.queue_limit import MAX_COMMANDS, MIN_COMMANDS, QueueLimit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "commands"),
    [(1e-5, MAX_COMMANDS), (0.01, 100), (0.025, 40), (0.5, MIN_COMMANDS), (20, MIN_COMMANDS)],
)
def test_as_many_commands_as_a_second_has(seconds: float, commands: int) -> None:
    clock = Clock()
    limit = QueueLimit(clock)
    for _ in range(round(5 / seconds) + 2):
        clock.now += seconds
        limit.count_reply()
    assert abs(limit.commands - commands) <= commands * 0.05


def test_the_limit_recovers_from_a_long_command_and_counts_no_pause() -> None:
    clock = Clock()
    limit = QueueLimit(clock)
    clock.now += 60
    limit.count_reply()
    assert limit.commands == MIN_COMMANDS
    for _ in range(200):
        clock.now += 1e-3
        limit.count_reply()
    assert limit.commands == MAX_COMMANDS
    clock.now += 60  # nothing was pending
    limit.restart()
    for _ in range(200):
        clock.now += 1e-3
        limit.count_reply()
    assert limit.commands == MAX_COMMANDS
