"""Functions composed of several operations, in random layouts on several workers, against NumPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
import operation_bodies as bodies
from engines import current, engine_of
from magmath.errors import DTypeError, ShapeError

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]
thorough = settings(max_examples=25, suppress_health_check=list(HealthCheck))


class Drawn:
    """A random NumPy array, the same on the workers of a pool in a random layout, and choices."""

    def __init__(self, data: st.DataObject, kind: tuple[str, int], least: int, most: int) -> None:
        self.draw = data.draw
        self.kind = kind
        shape = tuple(self.draw(st.lists(st.integers(0, 4), min_size=least, max_size=most)))
        self.random = np.random.default_rng(self.draw(st.integers(0, 1 << 20)))
        self.values = self.numbers(shape)
        self.array = self.placed(self.values)

    def numbers(self, shape: tuple[int, ...], low: int = -3) -> Any:
        return np.asarray(self.random.integers(low, 4, shape))

    def placed(self, values: Any) -> mm.Array:
        tensor = torch.from_numpy(values)
        layout = self.draw(bodies.placements(tensor, engine_of(*self.kind)))
        return mm.asarray(tensor).redistribute(layout)

    def axis(self) -> int:
        ndim = self.values.ndim
        return self.draw(st.integers(-ndim, ndim - 1))

    def axes(self) -> tuple[int, ...]:
        ndim = self.values.ndim
        return tuple(self.draw(st.lists(st.integers(0, ndim - 1), unique=True))) if ndim else ()


Pair = tuple[Any, Any]  # what magmath gives and what NumPy gives


def flipped(d: Drawn) -> Pair:
    axis = d.draw(st.none() | st.just(d.axes()))
    return mm.flip(d.array, axis=axis), np.flip(d.values, axis)


def rolled(d: Drawn) -> Pair:
    if d.draw(st.booleans()):
        shift = d.draw(st.integers(-9, 9))
        return mm.roll(d.array, shift), np.roll(d.values, shift)
    axes = d.axes()
    shifts = tuple(d.draw(st.integers(-5, 5)) for _ in axes)
    return mm.roll(d.array, shifts, axis=axes), np.roll(d.values, shifts, axes)


def tiled(d: Drawn) -> Pair:
    counts = d.draw(st.lists(st.integers(0, 3), max_size=4))
    return mm.tile(d.array, counts), np.tile(d.values, counts)


def repeated(d: Drawn) -> Pair:
    count = d.draw(st.integers(0, 3))
    axis = d.draw(st.none() | st.just(d.axis()))
    return mm.repeat(d.array, count, axis=axis), np.repeat(d.values, count, axis)


def repeated_by_counts(d: Drawn) -> Pair:
    axis = d.axis()
    counts = d.numbers((d.values.shape[axis],), 0)
    return mm.repeat(d.array, d.placed(counts), axis=axis), np.repeat(d.values, counts, axis)


def moved(d: Drawn) -> Pair:
    source = d.axes()
    places = d.draw(st.permutations(range(d.values.ndim)))
    to = tuple(places[: len(source)])
    return mm.moveaxis(d.array, source, to), np.moveaxis(d.values, source, to)


def expanded(d: Drawn) -> Pair:
    ndim = d.values.ndim + 2
    axes = tuple(d.draw(st.lists(st.integers(0, ndim - 1), min_size=2, max_size=2, unique=True)))
    return mm.expand_dims(d.array, axis=axes), np.expand_dims(d.values, axes)


def unstacked(d: Drawn) -> Pair:
    axis = d.axis()
    parts = mm.unstack(d.array, axis=axis)
    theirs = np.unstack(d.values, axis=axis)
    assert isinstance(parts, tuple)
    return (mm.stack(parts), np.stack(theirs)) if parts else (d.array, d.values)


def differences(d: Drawn) -> Pair:
    axis, n = d.axis(), d.draw(st.integers(0, 2))
    ours = mm.diff(d.array, axis=axis, n=n, append=d.array)
    return ours, np.diff(d.values, n, axis, append=d.values)


def running_products(d: Drawn) -> Pair:
    axis, initial = d.axis(), d.draw(st.booleans())
    return (mm.cumulative_prod(d.array, axis=axis, include_initial=initial),
            np.cumulative_prod(d.values, axis=axis, include_initial=initial))  # fmt: skip


def counted(d: Drawn) -> Pair:
    axis, keepdims = d.axes(), d.draw(st.booleans())
    return (mm.count_nonzero(d.array, axis=axis, keepdims=keepdims),
            np.asarray(np.count_nonzero(d.values, axis, keepdims=keepdims)))  # fmt: skip


def joined_flat(d: Drawn) -> Pair:
    other = d.numbers((2,)).astype("int8")
    ours = mm.concat([d.array, d.placed(other)], axis=None)
    return ours, np.concatenate([d.values, other], None)


def limited(d: Drawn) -> Pair:
    low = d.numbers(d.values.shape[-1:], -3)
    return mm.clip(d.array, d.placed(low), 2), np.clip(d.values, low, 2)


@pytest.mark.parametrize(
    "function",
    [flipped, rolled, tiled, repeated, repeated_by_counts, moved, expanded, unstacked, differences,
     running_products, counted, joined_flat, limited],
    ids=lambda function: function.__name__,
)  # fmt: skip
@given(data=st.data(), kind=st.sampled_from(KINDS))
@thorough
def test_functions_agree_with_numpy_in_any_layout(
    function: Callable[[Drawn], Pair], data: st.DataObject, kind: tuple[str, int]
) -> None:
    with current(*kind):
        ours, theirs = function(Drawn(data, kind, 1, 3))
        assert ours.dtype.name == theirs.dtype.name
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(ours.numpy(), theirs)


def test_next_numbers_are_numpys_to_the_last_bit() -> None:
    for dtype in ("float16", "float32", "float64"):
        x = np.array([0, -0.0, 1, -1, 3e4, np.inf, np.nan, 1e-5], dtype)
        for to in (np.inf, -np.inf, 0.0):
            ours = mm.nextafter(mm.asarray(x), to).numpy()
            np.testing.assert_array_equal(ours, np.nextafter(x, np.asarray(to, dtype)))


# gradients through complex numbers ----------------------------------------------------------------


def winding(x: Any, lib: Any) -> Any:
    z = lib.exp(x * 1j) * (2 + 1j) + x
    w = lib.conj(z) * z * x + 1j * z
    return lib.sum(
        lib.real(w * w) * 0.1 + lib.imag(w) + lib.abs(z * x) + lib.real(lib.sign(w) * 1j)
    )


def test_gradients_through_complex_numbers() -> None:
    a = np.array([0.3, -0.7, 1.1])
    x = mm.variable("x", a)
    slope = mm.grad(winding(x, mm), x)
    curvature = mm.grad(mm.sum(slope * slope), x)
    h = 1e-6
    steps = np.eye(3) * h
    differences = [(winding(a + s, np) - winding(a - s, np)) / (2 * h) for s in steps]
    np.testing.assert_allclose(slope.numpy(), differences, rtol=1e-7, atol=1e-7)

    def squares(at: Any) -> float:
        y = mm.variable("y", at)
        result = mm.grad(winding(y, mm), y).numpy()
        return float(np.sum(result * result))

    second = [(squares(a + s) - squares(a - s)) / (2 * h) for s in steps]
    np.testing.assert_allclose(curvature.numpy(), second, rtol=1e-6, atol=1e-6)


def test_slopes_of_running_products_with_zeros() -> None:
    weights = np.arange(1.0, 6.0)
    for a in ([2.0, 0, 3, 0, 5], [0.0, 1, 2, 3, 4], [1.0, 2, 3, 4, 0], [0.0] * 5):
        x = mm.variable("x", np.array(a))
        slope = mm.grad(mm.sum(mm.cumulative_prod(x) * weights), x).numpy()
        h = 1e-6
        expected = [
            (np.cumprod(a + s) @ weights - np.cumprod(a - s) @ weights) / (2 * h)
            for s in np.eye(5) * h
        ]
        np.testing.assert_allclose(slope, expected, atol=1e-7)


def test_axes_and_shapes_may_be_numpys_integers() -> None:
    with current("shared", 2):
        x, one = mm.asarray(np.arange(6).reshape(2, 3)), np.int64(1)
        assert mm.sum(x, axis=one).tolist() == [3, 12]
        assert mm.broadcast_to(x, (one * 2, *map(np.int64, x.shape))).shape == (2, 2, 3)
        assert mm.sum(x > 2).item() == mm.count_nonzero(x > 2).item() == 3
        with pytest.raises(IndexError, match="axis 2 is out of range for an array of 2 dim"):
            mm.sum(x, axis=one * 2)


@pytest.mark.timeout(300)
def test_other_libraries_compute_with_distributed_arrays() -> None:
    script = Path(__file__).parents[1] / "conformance" / "users.py"
    command = [sys.executable, str(script), "0", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: mm.roll(x, (1, 2), axis=(0, 1, 0)), ShapeError, r"roll: 2 shifts \(1, 2\) for 3 "),
        (lambda x: mm.moveaxis(x, (0, 1), 0), ShapeError, "moveaxis: needs as many"),
        (lambda x: mm.moveaxis(x, (0, 0), (0, 1)), ShapeError, "moveaxis: needs as many"),
        (lambda x: mm.repeat(x, mm.asarray([1, 2]), axis=1), ShapeError, "repeat: needs 3 integers"),
        (lambda x: mm.repeat(x, -1), ShapeError, "repeat: counts must be at least 0"),
        (lambda x: mm.repeat(x, mm.asarray([1, -1, 1]), axis=1), ShapeError, "at least 0"),
        (lambda x: mm.tile(x, (2, -1)), ShapeError, "tile: counts must be at least 0"),
        (lambda x: mm.broadcast_shapes((2, 3), (4,)), ShapeError, "broadcast_shapes: shapes"),
        (lambda x: mm.expand_dims(x, axis=5), ShapeError, "expand_dims: axis 5 is out of range"),
        (lambda x: mm.cumulative_prod(x), ShapeError, "cumulative_prod: needs `axis`"),
        (lambda x: mm.signbit(1j * x), DTypeError, "signbit: takes real floating"),
    ],
)  # fmt: skip
def test_invalid_arguments_raise_errors(
    function: Callable[..., Any], error: type, message: str
) -> None:
    with current("inline"), pytest.raises(error, match=message):
        function(mm.ones((2, 3)))


@pytest.mark.parametrize(
    ("window", "axis"), [((2, 3), None), (3, 1), (20, 1), ((2, 2), (1, 1)), (4, 0)]
)
def test_sliding_windows(window: Any, axis: Any) -> None:
    values = np.arange(4 * 30.0).reshape(4, 30)
    view = np.lib.stride_tricks.sliding_window_view
    expected = view(values, window, axis=axis)
    x = mm.asarray(values)
    for actual in (mm.sliding_window_view(x, window, axis), view(x, window, axis=axis)):
        np.testing.assert_array_equal(actual, expected)


def test_windows_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="windows need 1 to 3 elements along axis 0"):
        mm.sliding_window_view(mm.ones(3), 4)
    with pytest.raises(ValueError, match="one extent for each of 2 axes"):
        mm.sliding_window_view(mm.ones((3, 3)), 2)
