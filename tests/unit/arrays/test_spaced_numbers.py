"""`linspace`, `logspace` and `geomspace` between numbers and arrays, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import magmath as mm

ENDS: list[tuple[Any, Any]] = [
    (-2.5, 2.5),
    (1, 5j),
    (np.array([1.0, 2.0]), 3.0),
    (2.0, np.array([[1.0, 7.0], [2, 3]])),
    ([1, 2], [5, 8]),
    (-1, -8),
    (np.array([1.0, 2.0]), np.array([5.0, -3.0])),
]


def check(name: str, *given: Any, **options: Any) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*given, **options)
    actual = getattr(mm, name)(*given, **options)
    if not isinstance(expected, tuple):
        expected, actual = (expected,), (actual,)
    for one, other in zip(expected, actual, strict=True):
        values = other.numpy() if isinstance(other, mm.Array) else np.asarray(other)
        assert values.shape == np.shape(one)
        np.testing.assert_allclose(values, one, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("number", [0, 1, 2, 5])
@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("ends", ENDS, ids=repr)
def test_as_numpy(ends: tuple[Any, Any], endpoint: bool, number: int) -> None:
    given = {"num": number, "endpoint": endpoint}
    ndim = max(np.ndim(x) for x in ends)
    for name in ("linspace", "logspace", "geomspace"):
        check(name, *ends, **given)
        for axis in range(-ndim - 1, ndim + 1):
            check(name, *ends, axis=axis, **given)
    check("linspace", *ends, retstep=True, **given)
    if not isinstance(ends[1], complex):
        check("linspace", *ends, dtype=int, **given)  # rounded down


def test_a_base_for_each_column() -> None:
    check("logspace", 0, 2, 3, base=np.array([2.0, 10.0]), axis=-1)
    for base in ([2.0, 3.0, 4.0], [2.0, 3.0], np.array([[2.0], [3.0]])):
        check("logspace", 0, 2, 3, base=base)
        check("logspace", [0, 1], 2, 3, base=np.reshape(base, (-1, 1)))


def test_powers_are_computed_in_double_precision() -> None:
    assert mm.logspace(0, 12, 13, dtype=int).tolist() == [10**k for k in range(13)]
    np.testing.assert_allclose(mm.logspace(0, 40, 3, dtype="float64").numpy(), [1, 1e20, 1e40])


def test_between_arguments_of_compiled_functions() -> None:
    x = mm.asarray([0.0, 1.0])
    between = mm.compile(lambda x: mm.linspace(x, 4, 3))(x)
    np.testing.assert_allclose(between.numpy(), np.linspace([0, 1], 4, 3))
    total = mm.grad(lambda x: mm.sum(mm.linspace(x, 4, 3)))(x)
    np.testing.assert_allclose(total.numpy(), 1.5)


def test_zero_has_no_constant_multiples() -> None:
    with pytest.raises(mm.errors.RangeError, match="geomspace: start and stop must not be 0"):
        mm.geomspace([1.0, 0.0], 2.0)
