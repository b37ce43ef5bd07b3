"""Ctrl-C at any call during an update in place leaves the former or the new value, in all arrays that
share the elements."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current


def _set_rows(x: Any) -> None:
    x[2:4] = 0.25


def _set_through_view(x: Any) -> None:
    x[1:][1] = x[0]


def _add(x: Any) -> None:
    x += 1.0


def _scale_through_view(x: Any) -> None:
    view = x[1:3]
    view *= 0.5


def _shift(x: Any) -> None:
    x[1:] = x[:-1]


_compiled = mm.compile(_shift)
UPDATES: dict[str, tuple[Callable[[Any], None], Callable[[Any], None]]] = {
    "rows": (_set_rows, _set_rows),
    "a row, through a view": (_set_through_view, _set_through_view),
    "all elements": (_add, _add),
    "some rows, through a view": (_scale_through_view, _scale_through_view),
    "a compiled update": (_compiled, lambda x: x.__setitem__(slice(1, None), x[:-1].copy())),
}


CALLS = 25
"""Calls during an update at which it is interrupted, evenly distributed."""


class _Interrupt:
    """Sends SIGINT at one of the calls in a block."""

    def __init__(self, call: int) -> None:
        self.calls_left = call

    def _count(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            self.calls_left -= 1
            if self.calls_left == 0:
                signal.raise_signal(signal.SIGINT)

    def __enter__(self) -> _Interrupt:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# Python ignores exceptions in generators that it closes: such an interrupt has no effect.
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("shape", [(5, 3), (120, 200)])
@pytest.mark.parametrize("name", UPDATES)
def test_an_interrupted_update_changes_all_arrays_or_none(
    kind: str, workers: int, shape: tuple[int, int], name: str
) -> None:
    update, numpys = UPDATES[name]
    values = np.random.default_rng(0).uniform(size=shape)
    expected = values.copy()
    numpys(expected)
    views = [(a, a.T, a[1:3]) for a in (values, expected)]
    with current(kind, workers):
        calls = 0
        for call in (sys.maxsize, *range(1, CALLS + 1)):
            position = call if calls == 0 else call * calls // CALLS
            x = mm.asarray(values) * 1.0
            mm.evaluate(x)
            turned, rows = x.T, x[1:3]
            with suppress(KeyboardInterrupt), _Interrupt(position) as interrupt:
                update(x)
            calls = calls or call - interrupt.calls_left
            results = [np.asarray(array) for array in (x, turned, rows)]
            assert any(all(map(np.array_equal, results, candidates)) for candidates in views), (
                f"interrupted at call {position} of {calls}"
            )
