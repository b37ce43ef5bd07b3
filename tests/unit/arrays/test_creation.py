"""Arrays as users make them: values, fills, counts, layouts and types."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import magmath as mm
from arrays import EDGES, check
from engines import current
from magmath.core.dtypes import DTYPES
from magmath.core.promotion import promote
from magmath.engine import session
from magmath.errors import (
    DTypeError,
    ShapeError,
)
from magmath.memory.torch_dtypes import to_torch
from magmath.runtime import Pool


# creation -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (3, "int64"), (2.5, "float32"), (1 + 2j, "complex64"), ([1, 2], "int64"),
     ([1.5, 2], "float32"), ([[True], [False]], "bool"), ([1j, 2], "complex64"), ([], "float32"),
     (np.float64(2), "float64"), ([np.float64(2), 1], "float64"), (np.arange(3, dtype=np.int8), "int8"), ((1, (2)), "int64")],
)  # fmt: skip
def test_asarray_takes_the_type_of_what_it_is_given(value: Any, dtype: str) -> None:
    array = mm.asarray(value)
    assert array.dtype.name == dtype
    np.testing.assert_array_equal(array.numpy(), np.asarray(value, dtype=dtype))


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_goes_there_and_back(name: str, every_pool: Pool) -> None:
    tensor = torch.tensor([[0, 1, 2], [3, 1, 0]]).to(to_torch(DTYPES[name]))
    array = mm.asarray(tensor)
    assert array.dtype is DTYPES[name]
    back = array.numpy()
    assert back.dtype == ("float32" if name == "bfloat16" else name)
    expected = (tensor.float() if name == "bfloat16" else tensor).numpy()
    np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.conj(), lambda x: x.conj().imag, lambda x: x.mT, lambda x: x[:, ::2],
        lambda x: x.expand(2, 3, 4), lambda x: x[1, 2], lambda x: x[:0].T,
        lambda x: x.clone().requires_grad_().T.conj(),
    ],
)  # fmt: skip
def test_views_of_tensors(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = view(torch.complex(torch.arange(12.0), torch.arange(12.0) - 3).reshape(3, 4))
    expected = x.detach().resolve_conj().resolve_neg().numpy()
    np.testing.assert_array_equal(mm.asarray(x).numpy(), expected)


@given(values=hnp.arrays(st.sampled_from([np.float32, np.int64, np.bool_]),
                         hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
                         elements=st.integers(0, 1)))  # fmt: skip
def test_numpy_arrays_of_any_shape_and_order(values: Any) -> None:
    with current("shared", 2):
        for array in (values, values.T, values[::-1] if values.ndim else values):
            np.testing.assert_array_equal(mm.asarray(array).numpy(), array)


def test_asarray_of_an_array_converts_and_copies() -> None:
    x = mm.asarray([1.0, 2.0])
    assert mm.asarray(x) is x
    assert mm.asarray(x, copy=True) is not x
    check(mm.asarray(x, dtype="int32"), np.array([1, 2], dtype=np.int32))
    check(mm.asarray(x, dtype=mm.float64), np.array([1.0, 2.0]))
    check(mm.asarray(np.array([1.0, 2.0]), dtype=float), np.array([1.0, 2.0]))


def test_numpy_cannot_have_an_array_without_a_copy() -> None:
    with pytest.raises(ValueError, match="needs a copy"):
        mm.ones(3).__array__(copy=False)


def test_arrays_share_nothing_with_what_they_are_made_of() -> None:
    source = np.zeros(3)
    array = mm.asarray(source)
    source[0] = 9
    check(array, np.zeros(3))
    array.numpy()[1] = 9
    check(array, np.zeros(3))


def test_filled_arrays(every_pool: Pool) -> None:
    check(mm.zeros((2, 3)), np.zeros((2, 3), np.float32))
    check(mm.ones(4, dtype="int8"), np.ones(4, np.int8))
    check(mm.full((2, 0), 7), np.full((2, 0), 7))
    check(mm.full((), 2.5), np.full((), 2.5, np.float32))
    check(mm.full(2, True), np.full(2, True))
    assert mm.empty((3, 2), dtype="float64").shape == (3, 2)
    x = mm.asarray(np.arange(6.0).reshape(2, 3))
    check(mm.zeros_like(x), np.zeros((2, 3)))
    check(mm.ones_like(x, dtype="int64"), np.ones((2, 3), np.int64))
    check(mm.full_like(x, 4), np.full((2, 3), 4.0))


@given(
    start=st.integers(-20, 20), stop=st.none() | st.integers(-20, 20),
    step=st.sampled_from([1, 2, 7, -1, -3]),
)  # fmt: skip
def test_arange_of_integers(start: int, stop: int | None, step: int) -> None:
    expected = np.arange(start, stop, step) if stop is not None else np.arange(0, start, step)
    check(mm.arange(start, stop, step), expected)


def test_counted_arrays(every_pool: Pool) -> None:
    check(mm.arange(0.5, 3.0, 0.25), np.arange(0.5, 3.0, 0.25, dtype=np.float32))
    check(mm.arange(5, dtype="float64"), np.arange(5.0))
    check(mm.linspace(-1, 1, 9), np.linspace(-1, 1, 9, dtype=np.float32))
    check(mm.linspace(0, 1, 4, endpoint=False, dtype="float64"), np.linspace(0, 1, 4, False))
    check(mm.linspace(2, 5, 1), np.linspace(2, 5, 1, dtype=np.float32))
    for k in (-4, -1, 0, 2, 7):
        check(mm.eye(4, 5, k=k), np.eye(4, 5, k, dtype=np.float32))
    check(mm.eye(3, dtype="int32"), np.eye(3, dtype=np.int32))


@pytest.mark.parametrize(
    "rule", [mm.Layout.split(1), mm.Layout.cyclic(0), mm.Layout.on(2)], ids=str
)
def test_creation_in_a_layout(rule: Any) -> None:
    with current("shared", 3) as pool:
        bound = rule.bind((4, 6), pool.mesh)
        for array in (
            mm.zeros((4, 6), layout=rule),
            mm.full((4, 6), 1.0, layout=rule),
            mm.asarray(np.ones((4, 6)), layout=rule),
            mm.random.uniform(shape=(4, 6), layout=rule),
            mm.eye(4, 6, layout=rule),
        ):
            assert array.layout == bound


@pytest.mark.parametrize("kind", ["shared", "messages"])
@pytest.mark.parametrize(
    "rule",
    [
        mm.Layout.split(0), mm.Layout.split(1), mm.Layout.cyclic(1, 3), mm.Layout.grid((2, 2)),
        mm.Layout.block_cyclic((32, 16), (2, 2)), mm.Layout.split(0, cuts=[0, 60, 130, 199, 256]),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_created_in_a_layout_is_made_there(rule: Any, kind: str) -> None:
    with current(kind, 4):
        shape = (256, 300)
        for array in (
            mm.zeros(shape, layout=rule),
            mm.full(shape, mm.asarray(2.0), layout=rule) * 3.0,
            mm.random.normal(1.0, 2.0, shape=shape, layout=rule),
            mm.random.integers(0, 9, shape=shape, layout=rule),
            mm.eye(*shape, layout=rule),
        ):
            assert array.explain().total.nbytes < array.size  # indices of rows are few
            assert array.evaluated_leaf().layout == rule.bind(shape, session.engine().pool.mesh)


def test_large_arrays_are_split_and_small_ones_replicated() -> None:
    with current("shared", 3):
        assert mm.asarray(np.zeros((3, 10))).layout.is_replicated
        large = mm.asarray(np.zeros((2, 100_000)))
        assert large.layout.splits[0] is None, "two rows cannot be split over three workers"
        assert large.layout.splits[1] is not None


# types --------------------------------------------------------------------------------------------
INTS = ["int8", "int16", "int32", "int64"]
UINTS = ["uint8", "uint16", "uint32", "uint64"]


def numpy_promotion(a: str, b: str) -> str | None:
    """NumPy's table, which has the standard's (2025.12) in it; bfloat16 by hand. No type holds both
    uint64 and signed integers: NumPy has float64, which would round them."""
    if "bfloat16" in (a, b):
        other = DTYPES[a if b == "bfloat16" else b]
        if other.kind == "bool" or other.name in ("int8", "uint8", "bfloat16"):
            return "bfloat16"
        return np.promote_types("float32", other.name).name
    kinds = {DTYPES[a].kind, DTYPES[b].kind}
    result = np.promote_types(a, b).name
    return None if kinds == {"int", "uint"} and result == "float64" else result


@pytest.mark.parametrize("a", DTYPES)
def test_promotion_is_that_of_numpy(a: str) -> None:
    for b in DTYPES:
        expected = numpy_promotion(a, b)
        if expected is None:
            with pytest.raises(DTypeError, match=r"uint64.*int|int.*uint64.*mm\.astype"):
                promote(DTYPES[a], DTYPES[b])
        else:
            assert promote(DTYPES[a], DTYPES[b]).name == expected
            x, y = mm.ones(2, dtype=a), mm.ones(2, dtype=b)
            assert (x == y).dtype is mm.bool
            assert mm.result_type(x, y).name == expected


@pytest.mark.parametrize("a", DTYPES)
def test_promotion_of_three_types_is_that_of_numpy(a: str) -> None:
    names = [name for name in DTYPES if name != "bfloat16"]
    for b, c in itertools.product(names, repeat=2) if a in names else ():
        expected = np.result_type(a, b, c).name
        exact = all(DTYPES[name].is_integer or name == "bool" for name in (a, b, c))
        if exact and expected == "float64":
            with pytest.raises(DTypeError, match="no common type"):
                promote(DTYPES[a], DTYPES[b], DTYPES[c])
        else:
            assert promote(DTYPES[a], DTYPES[b], DTYPES[c]).name == expected, (a, b, c)


@pytest.mark.parametrize("name", DTYPES)
def test_python_numbers_take_the_type_of_the_array(name: str) -> None:
    x = mm.ones(2, dtype=name)
    dtype = DTYPES[name]
    floating, exact = dtype.kind in ("float", "complex"), dtype.itemsize >= 4
    result = dtype if floating else mm.float64 if exact else mm.float32
    assert (x == True).dtype is mm.bool  # noqa: E712
    assert (x + 1).dtype is (1 + x).dtype is (mm.int64 if dtype is mm.bool else dtype)
    assert mm.where(mm.asarray(True), x, True).dtype is dtype
    assert (x * 1.5).dtype is result
    wide = result in (mm.float64, mm.complex128)
    assert (x * 1j).dtype is (mm.complex128 if wide else mm.complex64)


@given(name=st.sampled_from([name for name in DTYPES if name != "bool"]), data=st.data())
def test_numbers_that_do_not_fit_are_refused_as_numpy_does(name: str, data: st.DataObject) -> None:
    """Integers that the type does not hold are errors, floating point beyond its end is infinite."""
    integer = DTYPES[name].is_integer
    number = data.draw(st.sampled_from(EDGES) if integer else st.sampled_from(EDGES) | st.floats())
    exact = "float32" if name == "bfloat16" else name
    x, known = mm.zeros(2, dtype=name), np.zeros(2, exact)
    makes = [
        lambda: x + number, lambda: number + x, lambda: mm.full(2, number, dtype=name),
        lambda: mm.full_like(x, number), lambda: mm.asarray([number, number], dtype=name),
        lambda: mm.where(x == 0, number, x),
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        try:
            expected = known + number
        except OverflowError:
            expected = None
    if name == "bfloat16":  # infinite a little earlier than float32
        expected = torch.from_numpy(expected).bfloat16().float().numpy()
    for make in makes:
        if expected is None:
            with pytest.raises(OverflowError, match=f"{number} does not fit {name}, which holds"):
                make()
        else:
            limit = 1e-2 if name == "bfloat16" else 0
            np.testing.assert_allclose(make().numpy(), expected, rtol=limit)


def test_numpy_operands_are_arrays_with_their_own_type() -> None:
    x = mm.asarray([1.0, 2.0])
    check(x + np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    check(np.array([1.0, 2.0]) * x, np.array([1.0, 4.0]))
    check(x + np.float64(1), np.array([2.0, 3.0]))


def test_types_are_named_by_names_numpy_torch_and_python() -> None:
    x = mm.asarray([1, 2])
    for name in ("float64", np.float64, np.dtype("float64"), torch.float64, mm.float64):
        assert mm.astype(x, name).dtype is mm.float64
    assert mm.astype(x, float).dtype is mm.float64
    assert mm.astype(x, complex).dtype is mm.complex128
    assert mm.astype(x, int).dtype is mm.int64
    assert mm.astype(x, bool).dtype is mm.bool
    with pytest.raises(DTypeError, match=r"dtype 'float42' is not known.*float32"):
        mm.astype(x, "float42")


NESTED: list[Any] = [
    lambda a, one, asarray: asarray([a[0], a[1]]),
    lambda a, one, asarray: asarray([a[0] * 2, 1.5, 3]),
    lambda a, one, asarray: asarray([[a[0], 1.0], (2.0, one)]),
    lambda a, one, asarray: asarray([a, [3.0, 4.0, 5.0]]),
    lambda a, one, asarray: asarray([[a, a * 2], [[1.0, 2.0, 3.0], a]]),
    lambda a, one, asarray: a * [one, a[1], 2.0],
    lambda a, one, asarray: asarray([one, 7]) + a[:2],
]


@pytest.mark.parametrize("build", NESTED)
@pytest.mark.parametrize("form", ["eager", "compiled", "batched"])
def test_lists_of_arrays_and_numbers(every_pool: Pool, build: Any, form: str) -> None:
    """They are joined in every form of code, and gradients pass through them."""
    values, number = np.asarray([0.5, -2.0, 3.0]), 1.25

    def total(a: Any, one: Any) -> Any:
        return mm.sum(mm.sin(build(a, one, mm.asarray)))

    def whole(a: Any, one: Any) -> Any:
        return build(a, one, mm.asarray), mm.grad(total)(a, one)

    a, one = mm.asarray(values), mm.asarray(number)
    if form == "batched":
        actual = [x[1] for x in mm.vmap(whole)(mm.stack([a + 1, a]), mm.stack([one, one]))]
    else:
        actual = (mm.compile(whole) if form == "compiled" else whole)(a, one)
    expected = build(values, number, np.asarray)
    np.testing.assert_allclose(actual[0].numpy(), expected, rtol=1e-12)
    slopes = []
    for i in range(3):
        near = []
        for step in (1e-6, -1e-6):
            moved = values.copy()
            moved[i] += step
            near.append(np.sin(build(moved, number, np.asarray)).sum())
        slopes.append((near[0] - near[1]) / 2e-6)
    np.testing.assert_allclose(actual[1].numpy(), slopes, rtol=1e-6, atol=1e-8)


def test_lists_of_numbers_of_a_compiled_function_are_arguments() -> None:
    joined = mm.compile(lambda x, numbers: (x + numbers, mm.asarray(numbers)))
    for numbers in ([1.0, 2.0], [3.0, 5.0]):
        added, given = joined(mm.ones(2), numbers)
        assert added.tolist() == [numbers[0] + 1, numbers[1] + 1]
        assert given.tolist() == numbers
    with pytest.raises(ShapeError, match=r"elements of a list must have one shape.*mm\.concat"):
        mm.asarray([mm.ones(2), mm.ones(3)])
