"""Random programs of ordinary NumPy functions, which run with NumPy and with magmath, and random
sequences of assignments to variables."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import magmath as mm

Program = Callable[[Any, Any, Any], list[Any]]
"""Computes arrays and numbers from two matrices of one shape with a library, NumPy or magmath."""

RULES = [
    None,
    mm.Layout.replicated(),
    mm.Layout.split(0),
    mm.Layout.split(1),
    mm.Layout.cyclic(0),
    mm.Layout.cyclic(1),
]


def _identity(lib: Any, m: int) -> Any:
    return lib.eye(m, dtype="float64")


def _updated(lib: Any, x: Any, y: Any, first: int, last: int) -> Any:
    out = lib.array(x, copy=True)
    out[first:last] = y[first:last] * 0.5 - x[first:last]
    out[-1] += y[0]
    return out


def _added(lib: Any, x: Any, y: Any, key: Any) -> Any:
    groups = lib.argsort(key[:, 0]) % 5
    sums = lib.bincount(groups, weights=y[:, -1], minlength=5)
    return x + sums[groups][:, None]


STEPS: dict[str, Callable[..., Any]] = {
    # (library, x, y, key, axis, k): x and y have been computed, the key has distinct given numbers,
    # so that rounding changes no order; k is a position between the first row and the last
    "mix": lambda lib, x, y, key, axis, k: x * 0.5 - y * y + 1.0,
    "where": lambda lib, x, y, key, axis, k: lib.where(key > 0, x, lib.abs(y) * 0.5),
    "exp": lambda lib, x, y, key, axis, k: lib.exp(-lib.abs(x)) * y,
    "centre": lambda lib, x, y, key, axis, k: x - y.mean(axis=axis, keepdims=True),
    "extrema": lambda lib, x, y, key, axis, k: x - y.max(axis=axis, keepdims=True) - y.min(),
    "scan": lambda lib, x, y, key, axis, k: lib.cumsum(x, axis=axis) - y,
    "sort": lambda lib, x, y, key, axis, k: lib.sort(x, axis=axis) - y,
    "order": lambda lib, x, y, key, axis, k: lib.take_along_axis(
        x, lib.argsort(key, axis=axis), axis
    ),
    "rows": lambda lib, x, y, key, axis, k: x[lib.argsort(key[:, 0])] - y,
    "roll": lambda lib, x, y, key, axis, k: lib.roll(x, k, axis=axis) - y,
    "product": lambda lib, x, y, key, axis, k: x @ (y.T @ x),
    "update": lambda lib, x, y, key, axis, k: _updated(lib, x, y, k // 2, k),
    "concatenate": lambda lib, x, y, key, axis, k: lib.concatenate([x[k:], y[:k]]),
    "reshape": lambda lib, x, y, key, axis, k: x - lib.reshape(y, (y.shape[1], y.shape[0])).T,
    "solve": lambda lib, x, y, key, axis, k: (
        lib.linalg.solve(_identity(lib, x.shape[1]) + y.T @ y, x.T).T
    ),
    "inverse": lambda lib, x, y, key, axis, k: (
        x * 2.0 @ lib.linalg.inv(_identity(lib, x.shape[1]) + x.T @ x)
    ),
    "factor": lambda lib, x, y, key, axis, k: (
        y * 0.5 - x @ lib.linalg.cholesky(_identity(lib, x.shape[1]) + y.T @ y)
    ),
    "spectrum": lambda lib, x, y, key, axis, k: lib.linalg.eigvalsh(x.T @ x) + y * x - 1.0,
    "fourier": lambda lib, x, y, key, axis, k: lib.real(
        lib.fft.ifft(lib.fft.fft(x, axis=axis) * 0.5)
    ),
    "median": lambda lib, x, y, key, axis, k: x - lib.median(y, axis=axis, keepdims=True),
    "mask": lambda lib, x, y, key, axis, k: x - y[key[:, 0] > key[0, 0]].sum(axis=0),
    "groups": lambda lib, x, y, key, axis, k: _added(lib, x, y, key),
    "search": lambda lib, x, y, key, axis, k: (
        y + lib.searchsorted(lib.sort(key[:, 0]), key[:, -1])[:, None] * x
    ),
    "flip": lambda lib, x, y, key, axis, k: lib.flip(x, axis=axis) - lib.diff(y, axis=0)[:1],
}
UNTRACEABLE = frozenset({"mask", "groups"})
"""Steps in which shapes or errors depend on values, which a compiled function does not know."""


def random_program(choice: Random, steps: int = 6) -> tuple[Program, list[str]]:
    """Return a program of random steps, and their names."""
    plan = [
        (choice.choice([*STEPS]), choice.randrange(2), choice.random(), choice.random() < 0.5)
        for _ in range(steps)
    ]

    def run(lib: Any, x: Any, y: Any) -> list[Any]:
        result, key = [], y
        for name, axis, where, swaps in plan:
            k = 1 + int(where * (x.shape[0] - 2))
            z = STEPS[name](lib, x, y, key, axis, k)
            z = z / (1.0 + lib.abs(z).max())
            result.append(z.sum())
            x, y = (y, z) if swaps else (z, x)
        return [x, y, *result]

    return run, [name for name, *_ in plan]


def operands(seed: int, choice: Random, most: int = 60) -> tuple[Any, Any]:
    """Two matrices of one random shape."""
    shape = choice.randint(3, most), choice.randint(1, 9)
    values = np.random.default_rng(seed)
    return values.standard_normal(shape), values.standard_normal(shape)


def placed(choice: Random, *arrays: Any) -> list[mm.Array]:
    """The arrays in random layouts."""
    return [mm.asarray(x, layout=choice.choice(RULES)) for x in arrays]


def numbers(result: list[Any]) -> list[Any]:
    """The results as NumPy arrays."""
    return [np.asarray(x) for x in result]


UPDATES: dict[str, Callable[..., Any]] = {
    # (library, x, y) → the next value of the variable x, from its value and that of another one
    "copy": lambda lib, x, y: y,
    "mean": lambda lib, x, y: 0.9 * x + 0.1 * y,
    "product": lambda lib, x, y: lib.tanh(x @ (y.T @ y)),
    "rows": lambda lib, x, y: lib.concatenate([x[:2], y[2:] * 0.5]),
    "flip": lambda lib, x, y: lib.flip(y, axis=0) - 0.5,
    "centre": lambda lib, x, y: x - y.mean(axis=0),
    "where": lambda lib, x, y: lib.where(y > 0, x, y + 1.0),
}
Assignments = Callable[[Any, dict[str, Any], Callable[..., Any]], list[Any]]
"""Assigns variables, given by name, with a library and its `compile`; returns what it has read."""


def random_assignments(choice: Random, shape: tuple[int, int], steps: int = 16) -> Assignments:
    """Return random assignments to the variables "a", "b" and "c", some of them in compiled
    functions that are called repeatedly, such as training steps with a target network."""
    rows = np.random.default_rng(choice.randrange(10**6)).standard_normal(shape)
    layouts = [choice.choice(RULES) for _ in range(steps)]

    def drawn(count: int) -> list[tuple[str, str, str]]:
        return [(choice.choice([*UPDATES]), *choice.sample("abc", 2)) for _ in range(count)]

    functions = [drawn(choice.randint(1, 3)) for _ in range(2)]
    plan = [(choice.choice(["call", "call", "assign", "keep"]), *drawn(1)[0]) for _ in range(steps)]

    def run(lib: Any, variables: dict[str, Any], compiled: Callable[..., Any]) -> list[Any]:
        def assign(updates: list[tuple[str, str, str]]) -> None:
            for kind, name, other in updates:
                value = UPDATES[kind](lib, variables[name], variables[other])
                if lib is np:
                    variables[name] = value
                else:
                    variables[name].assign(value)

        def calling(updates: list[tuple[str, str, str]]) -> Callable[..., Any]:
            def function(x: Any) -> Any:
                read = [x * variables[name] for name in "abc"]
                assign(updates)
                return read

            return compiled(function)

        calls, result = [calling(updates) for updates in functions], []
        for layout, (action, kind, name, other) in zip(layouts, plan, strict=True):
            if action == "call":
                x = rows if lib is np else mm.asarray(rows, layout=layout)
                result += calls[kind < "m"](x)
            elif action == "keep":  # a reader of the former value keeps its memory from reuse
                result.append(variables[name] + 0.0)
            else:
                assign([(kind, name, other)])
        return [*result, *[variables[name] + 0.0 for name in "abc"]]

    return run
