"""Random functions with branches and loops, for magmath and, with Python's control flow, for NumPy.

A function takes an array of 3 numbers and a variable, and returns an array of 3 numbers. Its branches
are often undefined where they are not taken: roots and logarithms of negative numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import magmath as mm

Function = Callable[[Any, Any, Any], Any]
"""(xp, x, w) → an array of the shape of x."""


class ByPython:
    """NumPy, with Python's control flow. `taken` records the decisions."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def cond(self, predicate: Any, first: Any, second: Any, *operands: Any) -> Any:
        """Call one of two functions."""
        self.taken.append(bool(predicate))
        return (first if predicate else second)(*operands)

    def fori_loop(self, lower: int, upper: int, body: Any, value: Any) -> Any:
        """Loop over numbers."""
        for i in range(lower, upper):
            value = body(i, value)
        return value

    def scan(self, f: Any, init: Any, xs: Any, reverse: bool = False) -> Any:
        """Loop over rows."""
        ys: list[Any] = []
        for x in xs[::-1] if reverse else xs:
            init, y = f(init, x)
            ys.append(y)
        return init, np.stack(ys[::-1] if reverse else ys)

    def while_loop(self, cond: Any, body: Any, value: Any) -> Any:
        """Loop while a condition is true."""
        while cond(value):
            self.taken.append(True)
            value = body(value)
        return value

    def remat(self, f: Any) -> Any:
        """Return the function."""
        return f


def _simple(draw: np.random.Generator) -> Function:
    c = float(draw.normal())
    i = int(draw.integers(3))
    choices: Sequence[Function] = [
        lambda xp, x, w: xp.sin(x * w + c),
        lambda xp, x, w: xp.tanh(x) * c + w,
        lambda xp, x, w: x * x[i] / 4 + xp.cos(w),
        lambda xp, x, w: xp.flip(x) - c * w,
        lambda xp, x, w: (
            xp.cumsum(x) / 3 + w * c if xp is not mm else mm.cumulative_sum(x) / 3 + w * c
        ),
        lambda xp, x, w: xp.where(x > c, x * w, c - x),
        lambda xp, x, w: x,
    ]
    return choices[draw.integers(len(choices))]


def _predicated(draw: np.random.Generator, depth: int, loops: bool) -> Function:
    """Return a branch whose other side may be undefined."""
    f, g = random_function(draw, depth - 1, loops), random_function(draw, depth - 1, loops)
    c, kind = float(draw.normal()) / 2, draw.integers(5)
    lists_operands, turned = draw.random() < 0.5, draw.random() < 0.5

    def function(xp: Any, x: Any, w: Any) -> Any:
        y = x * 1
        tests = [
            lambda: xp.min(y) > 0, lambda: xp.min(y) > c, lambda: xp.sum(y) > c,
            lambda: y[0] > 0, lambda: xp.sum(w) > c,
        ]  # fmt: skip
        hostile = [
            lambda x: xp.sqrt(x) * w, lambda x: xp.log(x - c) / 3, lambda x: f(xp, x, w),
            lambda x: xp.sqrt(x[0]) * f(xp, x, w), lambda x: f(xp, x, w) * w,
        ]  # fmt: skip
        first, second = hostile[kind], (lambda x: g(xp, x, w))
        predicate = tests[kind]()
        if turned:
            predicate, first, second = ~predicate if xp is mm else not predicate, second, first
        if lists_operands:
            return xp.cond(predicate, first, second, y)
        return xp.cond(predicate, lambda: first(y), lambda: second(y))

    return function


def _with_own_gradient(xp: Any, f: Any) -> Any:
    """Return the function with its derived gradient as one of its own."""
    return mm.custom_gradient(lambda x, w: mm.vjp(f, x, w)) if xp is mm else f


def _loop(draw: np.random.Generator, depth: int, loops: bool) -> Function:
    f, kind, steps = random_function(draw, depth - 1), draw.integers(4), draw.integers(1, 4)
    reverse = bool(draw.random() < 0.5)

    def function(xp: Any, x: Any, w: Any) -> Any:
        if kind == 0:
            return xp.fori_loop(0, int(steps), lambda i, y: f(xp, y, w) / 2 + i * x / 4, x)
        if kind == 1:
            rows = xp.stack([x, x * w, w])
            last, ys = xp.scan(lambda c, r: (f(xp, c, r) / 2, c * r), w, rows, reverse=reverse)
            return last + xp.sum(ys, axis=0) / 3
        if (kind == 2 or not loops) and reverse:
            return _with_own_gradient(xp, lambda x, w: f(xp, x, w))(x, w)
        if kind == 2 or not loops:
            return xp.remat(lambda y: f(xp, y, w))(x)
        grown = xp.while_loop(
            lambda s: xp.sum(s[0]) < 4, lambda s: (s[0] * 2 + 1, s[1] * 0.75), (x * x, x)
        )
        return grown[1] + f(xp, grown[0] / 8, w)

    return function


def random_function(draw: np.random.Generator, depth: int, loops: bool = False) -> Function:
    """Return a random function. `loops`: it may contain `while_loop`."""
    kind = draw.random()
    if depth == 0 or kind < 0.1:
        return _simple(draw)
    if kind < 0.55:
        return _predicated(draw, depth, loops)
    if kind < 0.8:
        return _loop(draw, depth, loops)
    f, g = random_function(draw, depth - 1, loops), random_function(draw, depth - 1, loops)
    return lambda xp, x, w: f(xp, g(xp, x, w), w) + x / 8


def numpy_value(f: Function, x: Any, w: Any) -> tuple[Any, list[Any]]:
    """Return the value by NumPy, and the decisions on the way."""
    xp = ByPython()
    with np.errstate(all="ignore"):
        return f(xp, x, w), xp.taken


def numpy_gradient(f: Function, x: Any, w: Any, step: float = 1e-5) -> list[Any] | None:
    """Return the gradients of the sum by central differences; None if a decision changes nearby."""
    result, (_, taken) = [], numpy_value(f, x, w)
    for part in (0, 1):
        slope = np.zeros(3)
        for i in range(3):
            sides = []
            for sign in (1, -1):
                moved = [x.copy(), w.copy()]
                moved[part][i] += sign * step
                value, decisions = numpy_value(f, *moved)
                if decisions != taken:
                    return None
                sides.append(value.sum())
            slope[i] = (sides[0] - sides[1]) / (2 * step)
        result.append(slope)
    return result
