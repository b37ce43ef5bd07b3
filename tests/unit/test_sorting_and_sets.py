"""Sorting, searching and sets: NumPy's results, in any layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.errors import DTypeError, OptionError, ShapeError, TracingError
from operation_bodies import leaf, placements

KINDS = [("inline", 1), ("shared", 3), ("messages", 2)]
DTYPES = ["bool", "int8", "int64", "uint8", "uint16", "uint64", "float32", "float64"]


@st.composite
def arrays(draw: st.DrawFn, least: int = 0, dtypes: list[str] = DTYPES) -> Any:
    """Few different values, NaN, infinities and both zeros among them."""
    shape = draw(hnp.array_shapes(min_dims=least, max_dims=3, min_side=0, max_side=5))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        return random.integers(-3 if dtype.kind == "i" else 0, 4, shape).astype(dtype)
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0], dtype)
    result = random.choice(values, shape)
    return (
        (result + 1j * random.choice(values[3:], shape)).astype(dtype)
        if dtype.kind == "c"
        else result
    )


def placed(data: st.DataObject, values: Any) -> mm.Array:
    """Values as an array in any layout."""
    tensor = torch.from_numpy(np.array(values))
    engine = session.engine()
    layout = data.draw(placements(tensor, engine, partial=False))
    return mm.Array(leaf(engine, tensor, layout))


def check(actual: mm.Array, expected: Any) -> None:
    assert actual.shape == np.shape(expected)
    np.testing.assert_array_equal(actual.numpy(), expected)


every = given(data=st.data(), kind=st.sampled_from(KINDS))


@every
def test_sorting_is_numpys_in_both_directions(data: st.DataObject, kind: tuple[str, int]) -> None:
    values = data.draw(arrays(1))
    axis = data.draw(st.integers(-values.ndim, values.ndim - 1))
    with current(*kind):
        x = placed(data, values)
        check(mm.sort(x, axis=axis), np.sort(values, axis=axis))
        check(mm.argsort(x, axis=axis), np.argsort(values, axis=axis, kind="stable"))
        down = mm.sort(x, axis=axis, descending=True).numpy()
        order = mm.argsort(x, axis=axis, descending=True).numpy()
    np.testing.assert_array_equal(down, np.take_along_axis(values, order, axis))
    down, order = np.moveaxis(down, axis, 0), np.moveaxis(order, axis, 0)
    falls, last = down[:-1] > down[1:], np.isnan(down[1:].astype(float))
    ties = (down[:-1] == down[1:]) | (last & np.isnan(down[:-1].astype(float)))
    assert (falls | last | ties).all()
    assert (order[:-1] < order[1:])[ties].all()


@every
def test_searching_is_numpys(data: st.DataObject, kind: tuple[str, int]) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    values, unsorted = data.draw(arrays(0, [dtype])), data.draw(arrays(1, [dtype])).reshape(-1)
    side = data.draw(st.sampled_from(["left", "right"]))
    order = np.argsort(unsorted, kind="stable")
    with current(*kind):
        x, v = placed(data, unsorted[order]), placed(data, values)
        check(mm.searchsorted(x, v, side=side), np.searchsorted(unsorted[order], values, side))
        result = mm.searchsorted(placed(data, unsorted), v, side=side, sorter=placed(data, order))
        check(result, np.searchsorted(unsorted, values, side, order))


@every
def test_positions_of_what_is_not_zero(data: st.DataObject, kind: tuple[str, int]) -> None:
    values = data.draw(arrays(1, [*DTYPES, "complex64"]))
    with current(*kind):
        for actual, expected in zip(
            mm.nonzero(placed(data, values)), values.nonzero(), strict=True
        ):
            check(actual, expected)


@every
def test_unique_elements_are_numpys(data: st.DataObject, kind: tuple[str, int]) -> None:
    values = data.draw(arrays(0, [*DTYPES, "complex128"]))
    expected = np.unique_all(values)
    with current(*kind):
        x = placed(data, values)
        actual = mm.unique_all(x)
        check(mm.unique_values(x), actual.values.numpy())
        for names, some in ((("values", "counts"), mm.unique_counts(x)),
                            (("values", "inverse_indices"), mm.unique_inverse(x))):  # fmt: skip
            for name in names:
                check(getattr(some, name), getattr(actual, name).numpy())
        for name in ("values", "counts", "indices", "inverse_indices"):
            check(getattr(actual, name), getattr(expected, name))


@every
def test_membership_is_numpys(data: st.DataObject, kind: tuple[str, int]) -> None:
    dtype = data.draw(st.sampled_from([*DTYPES, "complex128"]))
    a, b, invert = (
        data.draw(arrays(0, [dtype])),
        data.draw(arrays(0, [dtype])),
        data.draw(st.booleans()),
    )
    with current(*kind):
        check(
            mm.isin(placed(data, a), placed(data, b), invert=invert), np.isin(a, b, invert=invert)
        )


def test_numbers_are_searched_for() -> None:
    x = mm.asarray([1, 2, 2, 5])
    check(mm.searchsorted(x, 2, side="right"), 3)
    check(mm.isin(x, 2), [False, True, True, False])
    check(mm.isin(5, x), True)


def test_the_parts_of_a_sorted_array_are_searched_where_they_lie() -> None:
    with current("messages", 2):
        x = mm.asarray(np.arange(100000.0), layout=mm.Layout.split(0))
        result = mm.searchsorted(x, mm.asarray([10.5, 99999.0]))
        assert "searchsorted" in str(result.explain())
        check(result, [11, 99999])


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: mm.median(mm.asarray([1j])), DTypeError, "median: takes real numbers.*complex64"),
        (lambda: mm.sort(mm.asarray([1]), axis=1), ShapeError, "axis 1 is out of range"),
        (lambda: mm.nonzero(mm.asarray(1)), ShapeError, "nonzero: needs 1 or more dimensions"),
        (lambda: mm.searchsorted(mm.ones((2, 2)), mm.ones(2)), ShapeError, "1 dimension"),
        (lambda: mm.searchsorted(mm.ones(2), mm.ones(2), side="x"), OptionError, "'left' or 'right'"),
        (lambda: mm.compile(mm.unique_values)(mm.ones(2)), TracingError, "while mm.compile traces"),
        (lambda: mm.compile(mm.nonzero)(mm.ones(2)), TracingError, "while mm.compile traces"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(make: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        make()
