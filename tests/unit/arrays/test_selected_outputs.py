"""`out=` with `where=`: elements that are not selected keep their values in every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current

TYPES = ("bool", "int8", "uint8", "int32", "int64", "float32", "float64", "complex64", "complex128")
FUNCTIONS: dict[str, Any] = {
    "add": lambda np, x, **options: np.add(x, x, **options),
    "multiply": lambda np, x, **options: np.multiply(x, 3, **options),
    "sqrt": lambda np, x, **options: np.sqrt(x, **options),
    "greater": lambda np, x, **options: np.greater(x, 1, **options),
    "maximum": lambda np, x, **options: np.maximum(x, 2, **options),
    "negative": lambda np, x, **options: np.negative(x, **options),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_elements_keep_their_values(name: str, kind: str, workers: int) -> None:
    checked = 0
    with current(kind, workers):
        for operand in TYPES:
            for result in TYPES:
                x = np.asarray([1, 2, 3, 0]).astype(operand)
                out = np.asarray([0.5, 1000.25, 1e5 + 0.1, -7]).astype(result)
                mask = np.asarray([True, False, True, False])
                expected = out.copy()
                try:
                    FUNCTIONS[name](np, x, out=expected, where=mask)
                except TypeError:
                    continue
                actual = mm.asarray(out)
                try:
                    FUNCTIONS[name](mm, mm.asarray(x), out=actual, where=mm.asarray(mask))
                except TypeError:  # magmath refuses what would lose more than NumPy's rule says
                    continue
                np.testing.assert_array_equal(actual.numpy()[~mask], out[~mask])
                np.testing.assert_allclose(actual, expected, rtol=1e-3)  # roots of int8 are float16
                checked += 1
    assert checked >= 15


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("planned", 1), ("shared", 2)])
@pytest.mark.parametrize(
    "exponent", ["bool", "int32", "float32", "float64", "complex64", "complex128"]
)
def test_powers_of_complex_zeros(kind: str, workers: int, exponent: str) -> None:
    """Also where the exponent is converted, and its memory is that of the result."""
    for size in (3, 20_000):
        z = np.resize(np.asarray([0, 0, 1 + 1j, 0]), size)
        n = np.resize(np.asarray([2, 0, 2, 1]), size).astype(exponent)
        with np.errstate(all="ignore"):
            expected = z**n
        with current(kind, workers):
            np.testing.assert_allclose(mm.asarray(z) ** mm.asarray(n), expected, atol=1e-12)
            compiled = mm.compile(lambda a, b: abs(a**b) ** 2)
            np.testing.assert_allclose(
                compiled(mm.asarray(z), mm.asarray(n)), abs(expected) ** 2, atol=1e-12
            )
