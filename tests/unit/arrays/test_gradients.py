"""Gradients of expressions as users write them, and expressions without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from arrays import GRID, check
from engines import current
from magmath.errors import (
    DTypeError,
    MagmathError,
    ShapeError,
)
from magmath.graph.provenance import recent_array_cache
from magmath.runtime import Pool


def test_gradients_of_known_functions(every_pool: Pool) -> None:
    data = np.array([0.5, -1.5, 2.0])
    x = mm.asarray(data)
    check(mm.grad(mm.sum(x**3), x), 3 * data**2)
    check(mm.grad(mm.sum(mm.exp(x) * x), x), np.exp(data) * (1 + data))
    check(mm.grad(mm.sum(mm.relu(x)), x), (data > 0).astype(float))
    check(mm.grad(mm.sum(mm.softmax(x) * data), x), _softmax_slope(data))
    check(mm.grad(mm.sum(mm.where(x > 0, x * x, x)), x), np.where(data > 0, 2 * data, 1))
    check(mm.grad(mm.mean(x), x), np.full(3, 1 / 3))
    check(mm.grad(x[1] * x[1], x), np.array([0, 2 * data[1], 0]))


def _softmax_slope(data: Any) -> Any:
    p = np.exp(data) / np.exp(data).sum()
    return p * (data - (p * data).sum())


def test_gradients_of_gradients() -> None:
    data = np.array([0.5, -1.5, 2.0])
    x = mm.asarray(data)
    slopes = [mm.sin(x) * x]
    for _ in range(4):
        slopes.append(mm.grad(mm.sum(slopes[-1]), x))
    check(slopes[1], np.cos(data) * data + np.sin(data))
    check(slopes[2], -np.sin(data) * data + 2 * np.cos(data))
    check(slopes[3], -np.cos(data) * data - 3 * np.sin(data))
    check(slopes[4], np.sin(data) * data - 4 * np.cos(data))


def test_gradient_by_several_and_by_what_it_does_not_depend_on() -> None:
    a, b = mm.asarray(GRID[0]), mm.asarray(GRID[1, 0])
    y = mm.sum(a * b)
    slopes = mm.grad(y, [a, b, mm.ones((2, 2), dtype="float64")])
    check(slopes[0], np.broadcast_to(GRID[1, 0], (5, 3)))
    check(slopes[1], GRID[0].sum(0))
    check(slopes[2], np.zeros((2, 2)))
    part = a * 2
    check(mm.grad(mm.sum(part * part), part), GRID[0] * 4)


def test_what_is_written_anew_is_another_array(every_pool: Pool) -> None:
    """The result depends on x and not on `x[0]`, which is made when `grad` is called."""
    x, w = mm.asarray(GRID[0]), mm.variable("w", GRID[1])
    y = mm.sum(x * x * w)
    for source in (lambda: x[0], lambda: w[1], lambda: x * w, lambda: mm.exp(x[0, 0])):
        with pytest.raises(
            MagmathError, match=r"grad: .*a new array each time.*mm\.grad\(y, x\)\[0\]"
        ):
            mm.grad(y, source())
        part = source()
        mm.evaluate(part)
        with pytest.raises(MagmathError, match=r"a new array each time"):
            mm.grad(y, part)
        check(mm.grad(y + mm.sum(part), part), np.ones(part.shape))
    mm.evaluate(y)
    with pytest.raises(MagmathError, match=r"a new array each time"):
        mm.grad(y, x[0])
    free = mm.stop_gradient(x)[0]
    check(mm.grad(mm.sum(x), free), np.zeros(free.shape))
    slope = mm.grad(mm.sum(x * 3), x)
    check(mm.grad(mm.sum(slope), x), np.zeros(x.shape))


def test_gradients_that_are_numbers(every_pool: Pool) -> None:
    """A program may have nothing to compute but a constant."""
    x, v = mm.asarray(np.array(3.0)), mm.variable("v", 2.0)
    part = mm.exp(x)
    for source in (x, v, part):
        check(mm.grad(source, source), np.ones((), source.dtype.name))
        check(mm.grad(source + 1, source), np.ones((), source.dtype.name))
        check(mm.grad(mm.sum(source * 3), source), np.full((), 3, source.dtype.name))
    slopes = mm.compile(lambda z: (mm.grad(z, z), z + 1, mm.grad(z, z)))
    for _ in range(3):
        assert [float(y) for y in slopes(x)] == [1, 4, 1]


def test_gradient_stops_where_it_is_told_to() -> None:
    x = mm.asarray([2.0, 3.0])
    check(mm.grad(mm.sum(x * mm.stop_gradient(x)), x), np.array([2, 3], np.float32))


LOOKS: dict[str, Callable[[mm.Array], object]] = {
    "print": str,
    "evaluate": mm.evaluate,
    "numpy": np.asarray,
    "layout": lambda y: y.layout,
    "float": lambda y: float(mm.sum(y)) and str(y),
}


@pytest.mark.parametrize("look", LOOKS)
def test_gradients_go_through_what_was_computed(every_pool: Pool, look: str) -> None:
    x, w = mm.asarray(np.array([1.0, 2.0, 3.0])), mm.asarray(np.array([2.0, 0.5, 1.0]))
    y = x * x * 2
    LOOKS[look](y)
    result = mm.sum(y * w)
    check(mm.grad(result, x), np.array([8.0, 4.0, 12.0]))
    LOOKS[look](result) if look != "layout" else None
    check(mm.grad(result, x), np.array([8.0, 4.0, 12.0]))
    check(mm.grad(result, w), np.array([2.0, 8.0, 18.0]))
    check(mm.grad(result, y), w.numpy())
    check(mm.grad(mm.sum(x * mm.stop_gradient(y)), x), y.numpy())
    slope = mm.grad(result, x)
    LOOKS[look](slope)
    check(mm.grad(mm.sum(slope), x), 4 * w.numpy())


def test_gradients_through_arrays_that_are_gone(every_pool: Pool) -> None:
    """Intermediate values are computed again, from operands that exist; else it is refused."""
    x = mm.asarray(np.array([1.0, 2.0]))
    y = x
    for _ in range(700):
        y = y * 1.001
        mm.evaluate(y)
    check(mm.grad(mm.sum(y), x), np.full(2, 1.001**700))
    w = mm.variable("w", np.array([3.0, 4.0]))
    z = mm.sum(x * w)
    print(z)
    check(mm.grad(z, w), x.numpy())
    w -= mm.grad(z, w)
    check(mm.grad(z, w), x.numpy())
    w += 1.0
    with pytest.raises(MagmathError, match=r"grad: .*test_gradients\.py.*a variable .* assigned"):
        mm.grad(z, w)


@pytest.mark.parametrize("look", [float, str, mm.evaluate], ids=["float", "str", "evaluate"])
@pytest.mark.parametrize("compiled", [False, True], ids=["array", "compiled"])
def test_gradients_after_a_look_at_a_loss_whose_batch_has_no_other_reference(
    every_pool: Pool, look: Callable[[Any], object], compiled: bool
) -> None:
    random = np.random.default_rng(1)
    w = mm.asarray(random.normal(size=40))

    def mean_square(w: Any, x: Any) -> Any:
        return mm.mean((x @ w) ** 2)

    function = mm.compile(mean_square) if compiled else mean_square
    for rows in (10, 3000):
        data = random.normal(size=(rows, 40))

        def loss(data: Any = data) -> Any:
            return function(w, mm.asarray(data))

        value = loss()
        look(value)
        expected = 2 / rows * data.T @ (data @ w.numpy())
        np.testing.assert_allclose(mm.grad(value, w).numpy(), expected, rtol=1e-12)


def test_a_gradient_that_needs_an_array_that_does_not_exist_is_an_error(
    every_pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_array_cache, "MAX_BYTES", 0)
    x = mm.asarray(np.array([1.0, 2.0]))
    factor = mm.asarray(np.ones((50_000, 2)))
    z = mm.sum(x * factor)
    print(z)
    del factor
    with pytest.raises(MagmathError, match=r"grad: .*does not exist any more"):
        mm.grad(z, x)


@pytest.mark.parametrize("compiled", [False, True], ids=["array", "compiled"])
def test_a_list_of_losses_keeps_a_limited_number_of_batches(
    every_pool: Pool, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    nbytes = 40 * 1000 * 8
    monkeypatch.setattr(recent_array_cache, "MAX_BYTES", 8 * nbytes)
    monkeypatch.setattr(recent_array_cache, "MAX_OLDER_BYTES", 5 * nbytes)
    w = mm.ones(40, dtype="float64")

    def mean_square(x: Any) -> Any:
        return mm.mean((x @ w) ** 2)

    function = mm.compile(mean_square) if compiled else mean_square
    losses, before = [], every_pool.array_bytes
    for step in range(40):
        losses.append(function(mm.asarray(np.full((1000, 40), float(step)))))
        float(losses[-1])
    assert every_pool.array_bytes - before < 10 * nbytes
    expected = 2 * 39.0**2 * 40 * np.ones(40)
    np.testing.assert_allclose(mm.grad(losses[-1], w).numpy(), expected)
    with pytest.raises(MagmathError, match="does not exist any more"):
        mm.grad(losses[0], w)
    losses.clear()
    mm.evaluate(w, wait=True)
    assert every_pool.array_bytes - before < 2 * nbytes


def test_gradients_by_variables_count_all_their_values(every_pool: Pool) -> None:
    v = mm.variable("v", np.array([1.0, 2.0]))
    first = mm.sum(v * v)
    v += 1
    both = first + mm.sum(v * v * v)
    check(mm.grad(both, v), np.array([2.0 + 12, 4.0 + 27]))
    check(mm.grad(mm.grad(first, v)[0], v), np.array([2.0, 0.0]))


def test_copies_in_other_layouts_have_gradients(every_pool: Pool) -> None:
    x = mm.asarray(np.array([1.0, 2.0, 3.0]))
    copy, moved = x.replicate(), x.redistribute(mm.Layout.split(0))
    check(mm.grad(mm.sum(moved), x), np.ones(3))
    mm.evaluate(moved)
    for y in (copy, moved):
        check(mm.grad(mm.sum(y * y), x), 2 * x.numpy())


def test_gradients_through_loops() -> None:
    x, w = mm.asarray([1.0, 2.0, 3.0]), mm.variable("w", [2.0, 0.5, 1.0])
    y = mm.fori_loop(0, 3, lambda i, z: z * w, x)
    check(mm.grad(mm.sum(y), x), np.float32([8, 0.125, 1]))
    check(mm.grad(mm.sum(y), w), 3 * x.numpy() * np.float32([4, 0.25, 1]))
    check(mm.grad(mm.sum(y * x), y), x.numpy())


@pytest.mark.parametrize(
    "function",
    [
        mm.power, mm.maximum, mm.minimum, lambda x, p: mm.maximum(p, x), lambda x, p: p**x,
        lambda x, p: mm.clip(x, p, None), lambda x, p: mm.clip(x, None, p), mm.multiply, mm.arctan2,
    ],
)  # fmt: skip
@pytest.mark.parametrize("number", [2.5, np.float32(2.5), np.float64(2.5)])
def test_numbers_among_the_arguments_of_compiled_functions(function: Any, number: Any) -> None:
    """An argument has a gradient, also if it is a number."""

    def slope(x: Any, p: Any) -> Any:
        p = mm.asarray(p)
        return mm.grad(mm.sum(function(x, p) * x), p)

    x = mm.asarray(np.array([1.0, 2.5, 3.0], np.float32))
    expected = slope(x, number)
    assert float(expected) != 0
    check(mm.compile(slope)(x, number), expected.numpy())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: mm.astype(x, mm.int32) * 1.0, [0, 0, 0]),
        (lambda x: mm.astype(x, mm.bool) * 1.0, [0, 0, 0]),
        (lambda x: mm.astype(x, mm.int8) * x, [1, 2, 3]),
        (lambda x: mm.where(x > 2, mm.astype(x, mm.int16), 0) * 2.0, [0, 0, 0]),
        (lambda x: mm.remat(lambda y: mm.astype(y, mm.int8))(x) * x, [1, 2, 3]),
        (lambda x: mm.cond(x[0] > 0, lambda y: mm.astype(y, mm.int8) * 1.0, lambda y: y, x), 0),
        (lambda x: mm.scan(_summed, mm.asarray(2, dtype=mm.int8), x)[1], [2, 3, 5]),
        (lambda x: mm.scan(_summed, mm.asarray(2, dtype=mm.int8), x)[0] * 1.0, [0, 0, 0]),
    ],
)
def test_integers_have_no_gradients(function: Callable[[Any], Any], expected: Any) -> None:
    slope = mm.grad(lambda x: mm.sum(function(x)))
    x = mm.asarray([1.5, 2.5, 3.5])
    for actual in slope(x), mm.compile(slope)(x), mm.vmap(slope)(mm.stack([x, x]))[1]:
        check(actual, np.broadcast_to(expected, 3).astype(np.float32))


def _summed(total: Any, x: Any) -> Any:
    return total + mm.astype(x, mm.int8), x * total


def test_gradients_through_compiled_functions() -> None:
    x, w = mm.asarray([1.0, 2.0, 3.0]), mm.variable("w", [2.0, 0.5, 1.0])
    function = mm.compile(lambda z, k: (z * w * k, z + 1))
    y, _ = [function(x, 1.0 * k) for k in range(4)][-1]
    check(mm.grad(mm.sum(y * y), x), 2 * 9 * np.float32([4, 0.5, 3]))
    check(mm.grad(mm.sum(y), w), 3 * x.numpy())


OF_NUMBERS: dict[str, Callable[[mm.Array, Any], mm.Array]] = {
    "product": lambda x, p: x * p,
    "power": lambda x, p: x**p,
    "base": lambda x, p: p**x,
    "maximum": mm.maximum,
    "minimum": lambda x, p: mm.minimum(p, x),
    "relu": lambda x, p: mm.maximum(p, 0) * x,
    "least": lambda x, p: mm.clip(x, p, 2.5),
    "most": lambda x, p: mm.clip(x, 1.5, p),
    "selection": lambda x, p: mm.where(x > 1, p, x),
    "filled": lambda x, p: mm.full((3,), p) * x,
    "branch": lambda x, p: mm.cond(mm.sum(x) > 0, lambda: x * p, lambda: x),
    "recomputed": lambda x, p: mm.remat(lambda x: mm.sin(x * p))(x),
    "recomputed without arguments": lambda x, p: mm.remat(lambda: mm.sin(x * p))(),
    "argument of a recomputed function": lambda x, p: mm.remat(lambda x, p: mm.sin(x * p))(x, p),
    "loop": lambda x, p: mm.scan(lambda c, r: (c + mm.sin(r * p), None), x, mm.ones((40, 3)))[0],
    "batch": lambda x, p: mm.vmap(lambda x: x * p * p)(x),
}


@pytest.mark.parametrize("form", OF_NUMBERS)
def test_gradients_by_arguments_that_are_numbers(form: str) -> None:
    """The same as by a 0-d array."""

    def gradient(x: mm.Array, p: Any) -> mm.Array:
        p = mm.asarray(p)
        return mm.grad(mm.sum(OF_NUMBERS[form](x, p)), p)

    x = mm.asarray(np.array([1.0, 2.0, 3.0], np.float32))
    expected = gradient(x, mm.asarray(np.float32(2))).numpy()
    assert expected != 0
    function = mm.compile(gradient)
    for argument in (np.float32(2), 2.0):
        check(function(x, argument), expected, 1e-6)


def test_gradient_with_respect_to_what_was_computed_later(every_pool: Pool) -> None:
    """An expression of an array that had no value yet, and one of the value."""
    w = mm.asarray(np.array([1.0, 2.0]))
    x = w * 3
    y = mm.sum(x * x)
    mm.evaluate(x)
    check(mm.grad(y, x), np.array([6.0, 12.0]))
    check(mm.grad(y, w), np.array([18.0, 36.0]))
    check(mm.grad(y + mm.sum(x), x), np.array([7.0, 13.0]))


@settings(max_examples=40)
@given(data=st.data())
def test_gradients_do_not_depend_on_when_values_are_asked_for(data: st.DataObject) -> None:
    """An expression of existing arrays has its gradient, even after its intermediates were
    computed."""
    with current("inline"):
        values = [np.array([0.3, -0.7]), np.array([1.1, 0.2])]
        arrays, kept = [mm.asarray(v) for v in values], [mm.asarray(v) for v in values]
        reached = [{0}, {1}]  # the arrays that each was computed from, itself included
        for _ in range(data.draw(st.integers(1, 12))):
            i, j = (data.draw(st.integers(0, len(arrays) - 1)) for _ in range(2))
            if data.draw(st.integers(0, 2)) == 0:
                LOOKS[data.draw(st.sampled_from(["print", "evaluate", "layout"]))](arrays[i])
            else:
                for actual in (arrays, kept):
                    actual.append(mm.sin(actual[i]) * actual[j] + 1)
                reached.append(reached[i] | reached[j] | {len(reached)})
        result = mm.sum(arrays[-1])
        for x, (array, counterpart) in enumerate(zip(arrays, kept, strict=True)):
            if x not in reached[-1] and not reached[x].isdisjoint(reached[-1]):
                with pytest.raises(MagmathError, match="a new array each time"):
                    mm.grad(result, array)
            else:
                expected = mm.grad(mm.sum(kept[-1]), counterpart).numpy()
                np.testing.assert_allclose(mm.grad(result, array).numpy(), expected, atol=1e-12)


def test_gradients_of_functions_without_one_are_errors() -> None:
    x = mm.asarray([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"grad: needs a 0-d result.*\(2,\); sum it first"):
        mm.grad(x * 2, x)
    with pytest.raises(DTypeError, match="needs a real floating point result, was given int64"):
        mm.grad(mm.sum(mm.asarray([1, 2])), x)
    with pytest.raises(DTypeError, match="needs a real floating point result, was given complex"):
        mm.grad(mm.sum(mm.asarray([1j])), x)
    with pytest.raises(DTypeError, match="grad: needs floating point, was given int64"):
        mm.grad(mm.sum(x), mm.asarray([1, 2]))


@pytest.mark.parametrize("extent", [10, 5_000, 20_000, 100_000])
def test_gradients_after_values_were_read(every_pool: Pool, extent: int) -> None:
    """They do not depend on the sizes of masks, indices and numbers that have no other names."""
    values = np.linspace(-1, 2, extent)
    x = mm.asarray(values)
    y = mm.where(x > 0, x * 2, x)
    assert np.isfinite(float(mm.sum(y)))
    check(mm.grad(mm.sum(y), x), np.where(values > 0, 2.0, 1.0))
    y = mm.exp(x)
    y[x > 0] = 0.0
    y[x < -0.5] *= 3.0
    y.tolist()
    expected = np.where(values > 0, 0, np.exp(values) * np.where(values < -0.5, 3, 1))
    check(mm.grad(mm.sum(y), x), expected)
    for function in (lambda: mm.median(x) * x, lambda: mm.convolve(x, x[:3])):
        y = function()
        y.numpy()
        before = mm.grad(mm.sum(function()), x).numpy()
        check(mm.grad(mm.sum(y), x), before)
    total = mm.asarray(np.array(0.0))
    for i in range(3):
        total = total + mm.mean(mm.sin(x * i) ** 2)
        assert np.isfinite(float(total))
    expected = sum(2 * np.sin(values * i) * np.cos(values * i) * i / extent for i in range(3))
    check(mm.grad(total, x), expected)


@pytest.mark.parametrize("extent", [40, 20_000])
@pytest.mark.parametrize("base", ["zeros", "values", "expression"])
def test_gradients_through_writes_and_views_that_are_read(
    every_pool: Pool, base: str, extent: int
) -> None:
    """Of elements and slices, into memory of former values, with updates of all elements between."""
    values = np.arange(float(extent)) / extent
    x = mm.asarray(values)
    if base == "zeros":
        y, counterpart, slope = mm.zeros(extent, dtype=mm.float64), 0 * values, 0 * values
    elif base == "values":
        y, counterpart, slope = mm.asarray(values + 1), values + 1, 0 * values
    else:
        y, counterpart, slope = x * 3, values * 3, 0 * values + 3
    for i in range(12):
        y[i] = x[i] * x[i]
        counterpart[i], slope[i] = values[i] ** 2, 2 * values[i]
        assert float(y[i]) == counterpart[i]
    y *= 0.5
    view = y[5:15]
    view *= 2
    counterpart, slope = counterpart * 0.5, slope * 0.5
    counterpart[5:15] *= 2
    slope[5:15] *= 2
    assert np.isfinite(float(mm.sum(y)))
    y[3:6] = x[3:6] ** 3
    counterpart[3:6], slope[3:6] = values[3:6] ** 3, 3 * values[3:6] ** 2
    np.testing.assert_allclose(y.numpy(), counterpart)
    np.testing.assert_allclose(
        mm.grad(mm.sum(y * y), x).numpy(), 2 * counterpart * slope, atol=1e-12
    )


@pytest.mark.parametrize("extent", [10, 6_000, 20_000])
@pytest.mark.parametrize("is_read", [False, True])
def test_gradients_that_need_overwritten_values(
    every_pool: Pool, extent: int, is_read: bool
) -> None:
    """They are right where the values still exist, and otherwise an error: never zero, and never
    computed from the memory of another value."""
    values = np.arange(float(extent))

    def or_error(y: mm.Array, x: mm.Array, expected: Any) -> None:
        actual, reason = None, ""
        try:
            actual = mm.grad(y, x).numpy()
        except MagmathError as error:
            reason = str(error)
        if actual is None:
            assert not (every_pool.is_inline and extent == 10), "small operands are kept"
            assert "cannot be computed again" in reason or "was updated in place" in reason
        else:
            np.testing.assert_allclose(actual, expected)

    x, y = mm.asarray(np.ones(extent)), mm.asarray(values)
    scale = mm.asarray(np.array(1.0))
    if is_read:
        assert float(y.sum()) == values.sum()
    by_x, by_scale = (y * x).sum(), (y * scale).sum()
    mm.evaluate(by_x, by_scale)
    y[0] = 5.0
    assert float(y.sum()) == values.sum() + 5
    or_error(by_x, x, values)
    or_error(by_scale, scale, values.sum())
    y = mm.asarray(values)
    y[0] = x[0] * 3
    assert np.isfinite(float(mm.sum(y)))
    y = y * y
    assert np.isfinite(float(mm.sum(y)))
    or_error(mm.sum(y), x, np.where(values == 0, 18.0, 0.0))
