"""Operations on matrices of 3 × 3 numbers, for random expressions of small arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import magmath as mm

UNARY: list[Callable[[Any], Any]] = [
    lambda x: x * 0.5 + 1,
    lambda x: mm.tanh(x),
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: x - x.mean(axis=0),
    lambda x: mm.where(x > 0, x, 0.1 * x),
    lambda x: x / (1 + x.std()),
    lambda x: mm.concat([x[1:], x[:1]]),
    lambda x: x.sum(axis=1, keepdims=True) + x * 0,
    lambda x: mm.max(x, axis=0) * x,
    lambda x: mm.stop_gradient(x) * x,
    lambda x: mm.cumulative_sum(x, axis=0) / 3,
    lambda x: mm.linalg.matrix_transpose(x) * 1,
    lambda x: x.astype(mm.float32).astype(mm.float64),
]
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x * y,
    lambda x, y: x - y / 2,
    lambda x, y: x @ y,
    lambda x, y: x @ y.T,
    lambda x, y: x.T @ y,
    lambda x, y: mm.maximum(x, y),
    lambda x, y: x * y[0],
    lambda x, y: mm.einsum("ij,kj->ik", x, y),
]


def appended(arrays: list[Any], choices: Sequence[tuple[int, int, int]]) -> None:
    """Append results of operations on earlier arrays: each choice has the numbers of the operation
    and of its operands, taken modulo how many there are."""
    for kind, first, second in choices:
        a, b = arrays[first % len(arrays)], arrays[second % len(arrays)]
        if kind < len(UNARY):
            arrays.append(UNARY[kind](a))
        else:
            arrays.append(BINARY[(kind - len(UNARY)) % len(BINARY)](a, b))
