"""Random programs as users write them, compared with the same programs in NumPy.

Reads, writes, updates in place, gradients, optimizer steps, copies, compiled calls and loops, in
any order, with values read at any time: an expression means the values at the line that wrote it,
and a variable has the value of its last assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import MagmathError

EXTENT = 3
RATE = 0.125
Values = np.ndarray[Any, Any]

EXPRESSIONS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x * y + 1,
    lambda x, y: x - y / 2,
    lambda x, y: x[::-1] * y[0],
    lambda x, y: (x + 0) * (y + 0),
]


@dataclass
class Loss:
    """sum(v·v·c/4 + v): a function of a variable and of something else."""

    array: mm.Array
    counterpart: float
    variable: int
    factor: int | None  # a variable, or
    constant: Values | None
    slope: Values  # at the line that wrote it
    is_asked: bool = False


class Program:
    """Arrays and variables, each with its counterpart in NumPy."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.draw = draw
        values = np.random.default_rng(draw(100)).uniform(-1, 1, (4, EXTENT))
        self.variables = [mm.variable(f"v{i}", values[i]) for i in range(2)]
        self.present = [value.copy() for value in values[:2]]
        self.arrays = [mm.asarray(value.copy()) for value in values[2:]]
        self.counterparts = [value.copy() for value in values[2:]]
        self.losses: list[Loss] = []
        self.optimizer = mm.optim.GradientDescent(RATE)
        self.captured = mm.asarray(np.ones(EXTENT))
        self.captured_counterpart = np.ones(EXTENT)
        self.assigned = [mm.compile(self._assigning(v)) for v in self.variables]
        self.reading = mm.compile(lambda x, k: x * self.variables[0] + self.captured * k)
        self.updating = mm.compile(self._update)

    @staticmethod
    def _assigning(v: mm.Variable) -> Callable[[mm.Array, float], mm.Array]:
        def assigning(x: mm.Array, k: float) -> mm.Array:
            former = v * k
            v.assign(v * 0.5 + x)
            return former + v

        return assigning

    @staticmethod
    def _update(x: mm.Array, k: float) -> mm.Array:
        y = x * 2
        x += k
        return y + x

    def any(self) -> tuple[Any, Values]:
        """An array or a variable."""
        which = self.draw(len(self.arrays) + 2)
        if which < 2:
            return self.variables[which], self.present[which]
        return self.arrays[which - 2], self.counterparts[which - 2]

    def keep(self, array: Any, counterpart: Any) -> None:
        self.arrays.append(array)
        self.counterparts.append(np.array(counterpart))

    def step(self) -> None:
        STEPS[self.draw(len(STEPS))](self)

    def express(self) -> None:
        (x, a), (y, b) = self.any(), self.any()
        expression = EXPRESSIONS[self.draw(len(EXPRESSIONS))]
        self.keep(expression(x, y), expression(a, b))

    def copy(self) -> None:
        """A copy, or of a plain array a view: a write into one of the two is seen in the other."""
        x, a = self.any()
        kind = self.draw(3)
        if kind == 2 and not isinstance(x, mm.Variable):
            self.arrays.append(x[::-1])
            self.counterparts.append(a[::-1])
        else:
            self.keep(mm.asarray(x, copy=True) if kind else +x, a)

    def update(self) -> None:
        """In place: a plain array, which is one object here and there, or a variable."""
        y, b = self.any()
        which, k = self.draw(len(self.arrays) + 2), 0.5
        if which < 2:
            self.variables[which] += y * k
            self.present[which] = self.present[which] + b * k
        else:
            self.arrays[which - 2] += y * k
            self.counterparts[which - 2] += b * k

    def write(self) -> None:
        y, b = self.any()
        which, place = self.draw(len(self.arrays) + 2), self.draw(EXTENT)
        if which < 2:
            self.variables[which][place] = y[0]
            self.present[which] = self.present[which].copy()
            self.present[which][place] = b[0]
        else:
            self.arrays[which - 2][place] = y[0]
            self.counterparts[which - 2][place] = b[0]

    def assign(self) -> None:
        y, b = self.any()
        which = self.draw(2)
        self.variables[which].assign(y)
        self.present[which] = b.copy()

    def write_loss(self) -> None:
        v, other = self.draw(2), self.draw(2)
        factor = 1 - v if other else None
        c: Any
        x, a = self.variables[v], self.present[v]
        if factor is None:
            b = self.counterparts[0].copy()
            c = mm.asarray(b.copy())  # independent of the variables
        else:
            c, b = self.variables[factor], self.present[factor]
        array = mm.sum(x * x * c / 4 + x)
        counterpart = float(np.sum(a * a * b / 4 + a))
        constant = None if factor is not None else b
        self.losses.append(Loss(array, counterpart, v, factor, constant, a * b / 2 + 1))

    def differentiate(self) -> None:
        if self.losses:
            loss = self.losses[self.draw(len(self.losses))]
            with suppress(MagmathError):  # where a value that it has read is gone
                self.keep(mm.grad(loss.array, self.variables[loss.variable]), loss.slope)

    def minimize(self) -> None:
        if self.losses:
            loss = self.losses[self.draw(len(self.losses))]
            v, steps = loss.variable, 1 + self.draw(2)
            value = self.optimizer.minimize(loss.array, [self.variables[v]], steps=steps)
            for _ in range(steps):
                a = self.present[v]
                b = loss.constant if loss.factor is None else self.present[loss.factor]
                assert b is not None
                expected = np.sum(a * a * b / 4 + a)
                self.present[v] = a - RATE * (a * b / 2 + 1)
            np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)

    def call(self) -> None:
        x, a = self.any()
        kind, k = self.draw(4), float(self.draw(3))
        if kind < 2:
            former = self.present[kind]
            self.keep(self.assigned[kind](x, k), former * k + (former * 0.5 + a))
            self.present[kind] = former * 0.5 + a
        elif kind == 2:
            self.keep(self.reading(x, k), a * self.present[0] + self.captured_counterpart * k)
        else:
            which = self.draw(len(self.arrays))
            array, counterpart = self.arrays[which], self.counterparts[which]
            self.keep(self.updating(array, k), counterpart * 2 + counterpart + k)
            counterpart += k

    def change_captured(self) -> None:
        self.captured += 1
        self.captured_counterpart = self.captured_counterpart + 1

    def loop(self) -> None:
        (x, a), which = self.any(), self.draw(2)
        v = self.variables[which]

        def body(i: Any, z: mm.Array) -> mm.Array:
            v.assign(v * 0.5 + z)
            return z * 0.5 + v

        self.keep(mm.fori_loop(0, 2, body, x), a)
        for _ in range(2):
            self.present[which] = self.present[which] * 0.5 + self.counterparts[-1]
            self.counterparts[-1] = self.counterparts[-1] * 0.5 + self.present[which]

    def look(self) -> None:
        x, a = self.any()
        np.testing.assert_allclose(np.asarray(x), a, rtol=1e-9, atol=1e-9)
        if self.losses:
            loss = self.losses[self.draw(len(self.losses))]
            np.testing.assert_allclose(float(loss.array), loss.counterpart, rtol=1e-9, atol=1e-9)

    def drop(self) -> None:
        if len(self.arrays) > 2:
            which = 1 + self.draw(len(self.arrays) - 1)
            del self.arrays[which], self.counterparts[which]

    def check(self) -> None:
        pairs = zip(self.variables + self.arrays, self.present + self.counterparts, strict=True)
        for array, counterpart in pairs:
            np.testing.assert_allclose(np.asarray(array), counterpart, rtol=1e-9, atol=1e-9)
        for loss in self.losses:
            np.testing.assert_allclose(float(loss.array), loss.counterpart, rtol=1e-9, atol=1e-9)


STEPS = [
    Program.express, Program.copy, Program.update, Program.write, Program.assign,
    Program.write_loss, Program.differentiate, Program.minimize, Program.call,
    Program.change_captured, Program.loop, Program.look, Program.look, Program.drop,
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "workers"),
    [("inline", 1), ("planned", 1), ("shared", 2), ("eager", 2), ("messages", 4)],
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_programs_do_what_they_say(kind: str, workers: int, data: st.DataObject) -> None:
    with current(kind, workers):
        program = Program(lambda most: data.draw(st.integers(0, most - 1)))
        for _ in range(data.draw(st.integers(1, 16))):
            program.step()
        program.check()
