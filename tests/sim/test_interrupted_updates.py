"""Ctrl-C at any call during an update in place leaves the former or the new value, in all arrays that
share the elements."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
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


def _value(array: Any) -> Any:
    """Return the value of an array, before which a deferred interrupt may be delivered."""
    try:
        return np.asarray(array)
    except KeyboardInterrupt:
        return np.asarray(array)


def _check_interrupted(
    prepare: Callable[[], tuple[list[Any], Callable[[], None]]], candidates: list[list[Any]]
) -> None:
    """Assert that an update, interrupted at any of its calls, gives all arrays the values of one of
    the candidates; `prepare` returns the arrays and the update."""
    calls = 0
    for call in (sys.maxsize, *range(1, CALLS + 1)):
        position = call if calls == 0 else call * calls // CALLS
        arrays, update = prepare()
        with suppress(KeyboardInterrupt), _Interrupt(position) as interrupt:
            update()
        calls = calls or call - interrupt.calls_left
        results = [_value(array) for array in arrays]
        assert any(all(map(np.array_equal, results, values)) for values in candidates), (
            f"interrupted at call {position} of {calls}"
        )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# Python ignores exceptions in generators that it closes: such an interrupt has no effect.
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("shape", [(5, 3), (120, 200), (200, 200)])
@pytest.mark.parametrize("name", UPDATES)
def test_an_interrupted_update_changes_all_arrays_or_none(
    kind: str, workers: int, shape: tuple[int, int], name: str
) -> None:
    update, numpys = UPDATES[name]
    values = np.random.default_rng(0).uniform(size=shape)
    expected = values.copy()
    numpys(expected)

    def prepare() -> tuple[list[Any], Callable[[], None]]:
        x = mm.asarray(values) * 1.0
        mm.evaluate(x)
        return [x, x.T, x[1:3]], lambda: update(x)

    with current(kind, workers):
        _check_interrupted(prepare, [[a, a.T, a[1:3]] for a in (values, expected)])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("assigns", [True, False])
@pytest.mark.parametrize("shape", [(5, 3), (120, 200), (200, 200)])
def test_an_interrupted_call_updates_all_arguments_and_variables_or_none(
    shape: tuple[int, int], assigns: bool
) -> None:
    values = np.random.default_rng(0).uniform(size=shape)
    total = mm.variable("total", np.zeros(shape))

    @mm.compile
    def step(x: mm.Array, y: mm.Array) -> mm.Array:
        if assigns:
            total.assign(total + x)
        x += 1.0
        y *= 0.5
        return mm.sum(x)

    def prepare() -> tuple[list[Any], Callable[[], None]]:
        total.assign(np.zeros(shape))
        x, y = mm.asarray(values), mm.asarray(values)
        mm.evaluate(x, y, total)
        return [x, y, total], lambda: step(x, y)

    with current("inline"):
        new_total = values if assigns else np.zeros(shape)
        new = [values + 1.0, values * 0.5, new_total]
        _check_interrupted(prepare, [[values, values, np.zeros(shape)], new])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_steps_after_an_interrupted_one_draw_the_next_random_numbers(
    kind: str, workers: int
) -> None:
    shape, calls = (200, 150), 0
    with current(kind, workers):
        mm.random.seed(3)
        noise = [mm.random.normal(size=shape, dtype="float64").numpy() for _ in range(6)]

        def new_step() -> tuple[Any, Callable[[], object]]:
            mm.random.seed(3)
            w, optimizer = mm.variable("w", np.zeros(shape)), mm.optim.GradientDescent(0.25)
            normal = partial(mm.random.normal, size=shape, dtype="float64")
            return w, lambda: optimizer.minimize(mm.sum(mm.square(w - normal())), [w])

        for call in (sys.maxsize, *range(1, CALLS + 1)):
            w, step = new_step()
            step()
            position = call if calls == 0 else call * calls // CALLS
            with suppress(KeyboardInterrupt), _Interrupt(position) as interrupt:
                step()
            calls = calls or call - interrupt.calls_left
            for _ in range(2):
                former, following = _value(w), int(mm.random.get_state()["next"])
                step()
                np.testing.assert_allclose(_value(w), (former + noise[following]) / 2, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_an_interrupted_call_with_a_loop_changes_everything_or_nothing(
    kind: str, workers: int
) -> None:
    """Variables, arguments, and generators from which loops draw."""
    shape = (120, 200)
    values, total = np.zeros(shape), mm.variable("total", np.zeros(shape))

    @mm.compile
    def step(x: mm.Array) -> mm.Array:
        y = mm.while_loop(lambda s: s < 3, lambda s: s + mm.random.uniform(1.0, 1.5), mm.zeros(()))
        total.assign(total + 1.0)
        x += 1.0
        return y

    def prepare() -> tuple[list[Any], Callable[[], None]]:
        total.assign(values)
        mm.random.seed(3)
        x = mm.asarray(values)
        mm.evaluate(x, total)
        return [x, total, _Drawn()], lambda: step(x)

    class _Drawn:
        """The number of streams that were drawn, as an array."""

        def __array__(self, *_: Any, **__: Any) -> Any:
            return np.asarray(int(mm.random.get_state()["next"]))

    with current(kind, workers):
        arrays, call = prepare()
        before = int(np.asarray(arrays[2]))
        call()
        after = int(np.asarray(arrays[2]))
        assert after > before
        former, new = [values, values, before], [values + 1.0, values + 1.0, after]
        _check_interrupted(prepare, [former, new])
