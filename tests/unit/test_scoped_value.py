"""Values that blocks replace: the value before is back, also if Ctrl-C strikes between two lines."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

import magmath as mm
from engines import current
from magmath.core.precision_state import PRECISION
from magmath.core.scoped_value import ScopedValue
from magmath.engine.lifetimes.kept_expressions import KEPT
from magmath.engine.traces.tracing import TRACE


def test_blocks_nest() -> None:
    value = ScopedValue(0)
    with value.replaced(1), value.replaced(2):
        assert value.value == 2
    assert value.value == 0
    with pytest.raises(ZeroDivisionError), value.replaced(3):
        raise ZeroDivisionError
    assert value.value == 0


def test_a_block_that_is_closed_late_does_not_restore_a_value_of_a_block_around_it() -> None:
    value = ScopedValue(0)
    with value.replaced(1):
        inner = value.replaced(2)
        inner.__enter__()
    assert value.value == 0
    del inner  # Python closes its generator
    assert value.value == 0


def test_a_block_that_is_closed_late_ends_the_blocks_in_it() -> None:
    value = ScopedValue(0)
    outer, inner = value.replaced(1), value.replaced(2)
    outer.__enter__()
    inner.__enter__()
    del outer
    assert value.value == 0
    with value.replaced(3):
        del inner
        assert value.value == 3
    assert value.value == 0


class _Interrupts:
    """Raises KeyboardInterrupt at a chosen entry or exit of a context manager."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.countdown = 0
        manager: Any = contextlib._GeneratorContextManager
        enter, leave = manager.__enter__, manager.__exit__

        def entering(manager: Any) -> Any:
            result = enter(manager)
            self._count()
            return result

        def leaving(manager: Any, *error: Any) -> Any:
            self._count()
            return leave(manager, *error)

        monkeypatch.setattr(manager, "__enter__", entering)
        monkeypatch.setattr(manager, "__exit__", leaving)

    def _count(self) -> None:
        self.countdown -= 1
        if self.countdown == 0:
            raise KeyboardInterrupt


def test_traces_end_wherever_an_interrupt_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, struck = random.Random(0), 0
    with current("inline"):
        w = mm.variable("w", [1.0, 2.0])

        @mm.custom_gradient
        def cube(x: mm.Array) -> Any:
            return x**3, lambda slope: slope * 3 * x**2

        def loss(x: mm.Array) -> mm.Array:
            with mm.nn.precision("mixed-bfloat16"):
                inner = mm.remat(lambda y: mm.sum(cube(y) * w))(x)
            return inner + mm.cond(inner > 0, lambda: mm.sum(w), lambda: mm.sum(w) * 2)

        with monkeypatch.context() as patched:
            interrupts = _Interrupts(patched)
            for _ in range(300):
                interrupts.countdown = chosen.randrange(1, 100)
                try:
                    mm.compile(mm.grad(loss))(mm.asarray([1.0, 3.0]))
                except KeyboardInterrupt:
                    struck += 1
                assert TRACE.value is None
                assert KEPT.value is None
                assert PRECISION.value.compute is None
        assert struck > 100
        assert mm.compile(mm.grad(loss))(mm.asarray([1.0, 3.0])).tolist() == [3.0, 54.0]
