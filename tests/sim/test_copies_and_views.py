"""Arrays that were built from another one are written, while views of that one are still read: in
one program, where a part of the built array may be computed in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current

POOLS = [("planned", 1), ("shared", 2), ("messages", 2), ("shared", 3)]


def _filled(xp: Any, a: Any, x: Any) -> Any:
    made = xp.zeros((2 * a.shape[0], a.shape[1]), dtype="float64")
    made[: a.shape[0]] = a
    return made


BUILT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "concat rows": lambda xp, a, x: xp.concatenate([a, x]),
    "concat columns": lambda xp, a, x: xp.concatenate([a, x], axis=1),
    "second": lambda xp, a, x: xp.concatenate([x, a]),
    "nested": lambda xp, a, x: xp.concatenate([xp.concatenate([a, x]), x]),
    "twice": lambda xp, a, x: xp.concatenate([a, a]),
    "part": lambda xp, a, x: xp.concatenate([a[:2], x]),
    "stack": lambda xp, a, x: xp.stack([a, x]),
    "stack last": lambda xp, a, x: xp.stack([a, x], axis=2),
    "pad": lambda xp, a, x: xp.pad(a, ((1, 4), (0, 0))),
    "block": lambda xp, a, x: xp.block([[a, x], [x, x]]),
    "tile": lambda xp, a, x: xp.tile(a, (2, 1)),
    "filled": _filled,
    "copy": lambda xp, a, x: xp.asarray(a, copy=True),
    "repeat": lambda xp, a, x: xp.repeat(a, 2, axis=0),
}


def _set(key: Any, value: float) -> Callable[[Any], None]:
    return lambda c: c.__setitem__(key, value)


def _scale(key: Any) -> Callable[[Any], None]:
    return lambda c: c.__setitem__(key, c[key] * 3)


WRITES: dict[str, Callable[[Any], None]] = {
    "row": _set(0, -1.0),
    "rows": _set([1, 0], -1.0),
    "steps": _set(slice(None, None, 2), 7.0),
    "last axis": _scale((..., 0)),
    "all": _scale(slice(None, None, -1)),
    "update": lambda c: c.__iadd__(1.0),
}
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda xp, a: a,
    "flat": lambda xp, a: a.reshape(-1),
    "transposed": lambda xp, a: a.T,
    "reversed": lambda xp, a: a[::-1],
    "rows": lambda xp, a: a[1:],
    "row": lambda xp, a: a[0],
    "new axis": lambda xp, a: a[None],
    "stretched": lambda xp, a: xp.broadcast_to(a, (2, *a.shape)),
    "half": lambda xp, a: xp.split(a, 2)[0],
}
USES: dict[str, Callable[[Any, Any], Any]] = {
    "function": lambda xp, q: xp.exp(q * 0.1),
    "square": lambda xp, q: q * q,
    "sum": lambda xp, q: q.sum(axis=0),
    "choice": lambda xp, q: xp.where(q > 0, q, 5.0),
}


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: f"{pool[0]}-{pool[1]}")
@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(BUILT)), st.sampled_from(sorted(WRITES)),
    st.lists(st.sampled_from(sorted(VIEWS)), min_size=1, max_size=2),
    st.sampled_from(sorted(USES)), st.booleans(), st.sampled_from([None, 0, 1]),
)  # fmt: skip
def test_views_keep_what_was_built_from_them(
    pool: tuple[str, int], built: str, write: str, views: list[str], use: str,
    is_compiled: bool, split: int | None,
) -> None:  # fmt: skip
    def program(xp: Any, x: Any) -> list[Any]:
        a = xp.tanh(x)
        c = BUILT[built](xp, a, x)
        WRITES[write](c)
        return [c, *[USES[use](xp, VIEWS[view](xp, a)) for view in views]]

    x = np.random.default_rng(0).normal(size=(8, 6))
    with current(*pool):
        given = mm.asarray(x, layout=None if split is None else mm.Layout.split(split))
        if is_compiled:
            result = mm.compile(lambda x: program(mm, x))(given)
        else:
            result = program(mm, given)
            mm.evaluate(*result)
        for one, other in zip(result, program(np, x), strict=True):
            np.testing.assert_allclose(one.numpy(), other, atol=1e-12)


@pytest.mark.parametrize("dtype", [None, "int64"])
def test_an_array_of_a_number_is_written_alone(dtype: str | None) -> None:
    for numbers in (np, mm):
        total = numbers.sum(numbers.asarray([1, 2]))
        array = numbers.asarray(total, dtype=dtype)
        array[...] += 4
        assert (int(total), int(array)) == (3, 7)


def _number_with_memory(xp: Any, make: Callable[[Any], Any]) -> list[Any]:
    total = xp.sum(xp.asarray([1.0, 2.0]))
    array = make(total)
    view, flat, name = array[...], array.reshape(-1), array
    array[...] = 5.0
    array += 1
    return [total, array, view, flat, name]


@pytest.mark.parametrize("name", ["ellipsis", "copy", "asarray"])
def test_arrays_of_numbers_have_views(name: str) -> None:
    def make(xp: Any) -> Callable[[Any], Any]:
        named = {"ellipsis": lambda s: s[...], "copy": xp.copy, "asarray": xp.asarray}
        return named[name]

    for pool in POOLS:
        with current(*pool):
            for actual, expected in zip(
                _number_with_memory(mm, make(mm)), _number_with_memory(np, make(np)), strict=True
            ):
                np.testing.assert_array_equal(actual, expected)


OPERANDS: dict[str, Callable[[Any, Any], Any]] = {
    "whole": lambda xp, x: x,
    "transposed": lambda xp, x: x.T,
    "every second": lambda xp, x: x[::2],
    "last rows": lambda xp, x: x[1:],
    "columns": lambda xp, x: x[:, 1:],
    "reversed": lambda xp, x: x[::-1],
    "row": lambda xp, x: x[1],
    "column": lambda xp, x: x[:, 1],
    "reshaped": lambda xp, x: x.reshape(-1),
    "stretched": lambda xp, x: xp.broadcast_to(x[0], (4, 3)),
}


@pytest.mark.parametrize("name", ["ascontiguousarray", "asfortranarray"])
@pytest.mark.parametrize("view", OPERANDS)
def test_arrays_in_an_order_are_copies_where_numpy_copies(name: str, view: str) -> None:
    for pool in POOLS:
        with current(*pool):
            found = []
            for xp in (np, mm):
                x = xp.reshape(xp.arange(12.0), (4, 3))
                ordered = getattr(xp, name)(OPERANDS[view](xp, x))
                ordered *= 10
                found.append((np.asarray(x), np.asarray(ordered)))
            np.testing.assert_array_equal(found[1][0], found[0][0])
            np.testing.assert_array_equal(found[1][1], found[0][1])
