"""Operands of a concatenation are computed in its buffer, without copies, for any readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import magmath as mm

ROWS, INPUTS, UNITS = 24, 8, 6


@pytest.fixture(params=[0, 2, 4])
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    with mm.init(request.param, launcher="threads", threads=1):
        yield request.param


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def test_a_bias_as_the_first_row_of_the_weights(workers: int) -> None:
    """The layer below writes next to the column of ones; its result is read by others too."""
    h, v, wide = numbers(ROWS, INPUTS), numbers(INPUTS, UNITS), numbers(UNITS + 1, 3)

    def layer(h: Any) -> Any:
        x = mm.relu(h @ mm.asarray(v))
        y = mm.concat([mm.ones((ROWS, 1), dtype=x.dtype), x], axis=1) @ mm.asarray(wide)
        return y, mm.sum(x * x)

    compiled: Any = mm.compile(layer)
    x = np.maximum(h @ v, 0)
    for _ in range(3):
        y, squares = compiled(mm.asarray(h))
        np.testing.assert_allclose(np.asarray(y), x @ wide[1:] + wide[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(float(squares), (x * x).sum(), rtol=1e-12)
    if workers == 0:
        program = compiled.explain()
        (product,) = [line for line in str(program).splitlines() if "activation=relu" in line]
        assert " in %" in product, "the product is stored in the concatenation"
        assert program.temporaries < 2 * 8 * ROWS * (UNITS + 1)


def test_chains_and_branches_in_a_loop(workers: int) -> None:
    """Concatenations of concatenations, operands that repeat, slices of them, over many steps."""
    first, weight = numbers(ROWS, INPUTS), numbers(INPUTS, INPUTS) / 8

    def body(i: Any, x: Any, lib: Any = mm) -> Any:
        a = lib.tanh(x @ weight_of[lib])
        inner = lib.concat([a[:, ::-1], a * 2.0, a[:, 1:3]], axis=1)
        outer = lib.concat([inner, lib.maximum(inner, 0.0), inner], axis=0)
        part = outer[ROWS : 2 * ROWS, 3 : 3 + INPUTS] + outer[:ROWS, :INPUTS]
        return 0.5 * x + 0.1 * part - 0.01 * a

    weight_of = {mm: mm.asarray(weight), np: weight}
    expected = first
    for i in range(40):
        expected = body(i, expected, np)
    actual = mm.fori_loop(0, 40, body, mm.asarray(first))
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9, atol=1e-12)


def test_targets_keep_their_old_value_until_it_is_read(workers: int) -> None:
    start = numbers(ROWS, 4)
    v = mm.variable("v", start)

    @mm.compile
    def rotate() -> Any:
        v.assign(mm.concat([v[:, 1:] * 1.0, v[:, :1] + 1.0], axis=1))
        return mm.sum(v)

    expected = start
    for _ in range(5):
        total = rotate()
        expected = np.concatenate([expected[:, 1:], expected[:, :1] + 1], 1)
        np.testing.assert_allclose(float(total), expected.sum(), rtol=1e-9)
    np.testing.assert_allclose(np.asarray(v), expected, rtol=1e-12)
