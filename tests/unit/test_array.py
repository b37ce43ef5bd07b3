"""Arrays as users write them: creation, types, indexing, joining, numbers, values, gradients, errors.

What single operations compute is tested from the operation table; here is what stands around them.
"""

from __future__ import annotations

import gc
import inspect
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import magmath as mm
from engines import current, start
from magmath.array import session
from magmath.array.reuse import held_elsewhere
from magmath.core.dtypes import DTYPES, promote
from magmath.errors import (
    DTypeError,
    LayoutError,
    MagmathError,
    MemoryLimitError,
    MissingDataError,
    ShapeError,
    TracingError,
)
from magmath.graph import apply
from magmath.memory.tensors import to_torch
from magmath.ops import OPERATIONS
from magmath.runtime import Pool

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]


@pytest.fixture(autouse=True)
def pool() -> Iterator[Pool]:
    """The pool of the tests that name no other: the worker in this process."""
    with current("inline") as pool:
        yield pool


@pytest.fixture(params=KINDS, ids=[f"{n}-{kind}" for kind, n in KINDS])
def every_pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with current(*request.param) as pool:
        yield pool


def check(array: mm.Array, expected: Any, limit: float = 1e-6) -> None:
    """Assert type, shape and values."""
    expected = np.asarray(expected)
    assert array.dtype.name == expected.dtype.name
    assert array.shape == expected.shape
    np.testing.assert_allclose(array.numpy(), expected, rtol=limit, atol=limit)


# creation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, "bool"), (3, "int64"), (2.5, "float32"), (1 + 2j, "complex64"), ([1, 2], "int64"),
     ([1.5, 2], "float32"), ([[True], [False]], "bool"), ([1j, 2], "complex64"), ([], "float32"),
     (np.float64(2), "float64"), (np.arange(3, dtype=np.int8), "int8"), ((1, (2)), "int64")],
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
    check(mm.asarray(np.array([1.0, 2.0]), dtype=float), np.array([1, 2], dtype=np.float32))


def test_numpy_cannot_have_an_array_without_a_copy() -> None:
    with pytest.raises(ValueError, match="without a copy"):
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


def test_large_arrays_are_split_and_small_ones_replicated() -> None:
    with current("shared", 3):
        assert mm.asarray(np.zeros((3, 10))).layout.is_replicated
        large = mm.asarray(np.zeros((2, 100_000)))
        assert large.layout.splits[0] is None, "two rows cannot be split over three workers"
        assert large.layout.splits[1] is not None


# types -------------------------------------------------------------------------------------------


INTS = ["int8", "int16", "int32", "int64"]
UINTS = ["uint8", "uint16", "uint32", "uint64"]


def standard_promotion(a: str, b: str) -> str | None:
    """The array API standard's table (2025.12), by NumPy where NumPy agrees; bfloat16 by hand."""
    kinds = {DTYPES[a].kind, DTYPES[b].kind}
    if a == b:
        return a
    if kinds <= {"int", "uint"}:
        result = np.promote_types(a, b).name
        return None if result == "float64" else result
    if "bool" in kinds or kinds & {"int", "uint"}:
        return None
    if "bfloat16" in (a, b):
        other = a if b == "bfloat16" else b
        return "float32" if other == "float16" else other
    return np.promote_types(a, b).name


@pytest.mark.parametrize("a", DTYPES)
def test_promotion_is_that_of_the_standard(a: str) -> None:
    for b in DTYPES:
        expected = standard_promotion(a, b)
        if expected is None:
            with pytest.raises(DTypeError, match=rf"types {a} and {b} .*mm\.astype"):
                promote(DTYPES[a], DTYPES[b])
        else:
            assert promote(DTYPES[a], DTYPES[b]).name == expected
            x, y = mm.ones(2, dtype=a), mm.ones(2, dtype=b)
            assert (x == y).dtype is mm.bool
            assert mm.result_type(x, y).name == expected


@pytest.mark.parametrize("name", DTYPES)
def test_python_numbers_take_the_type_of_the_array(name: str) -> None:
    x = mm.ones(2, dtype=name)
    kind = DTYPES[name].kind
    if kind == "bool":
        assert (x == True).dtype is mm.bool  # noqa: E712
        with pytest.raises(DTypeError, match=f"Python int cannot be combined with .* {name}"):
            x + 1
        return
    assert (x + 1).dtype is (1 + x).dtype is DTYPES[name]
    with pytest.raises(DTypeError, match="Python bool"):
        x + True
    if kind in ("int", "uint"):
        with pytest.raises(DTypeError, match=rf"Python float .* {name}.*mm\.astype"):
            x + 1.5
    else:
        assert (x * 1.5).dtype is DTYPES[name]
    if kind == "float":
        wide = "complex128" if name == "float64" else "complex64"
        assert (x * 1j).dtype.name == wide
    if kind == "complex":
        assert (x * 1j).dtype is DTYPES[name]


def test_numpy_operands_are_arrays_with_their_own_type() -> None:
    x = mm.asarray([1.0, 2.0])
    check(x + np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    check(np.array([1.0, 2.0]) * x, np.array([1.0, 4.0]))
    check(x + np.float64(1), np.array([2.0, 3.0]))


def test_types_are_named_by_names_numpy_torch_and_python() -> None:
    x = mm.asarray([1, 2])
    for name in ("float64", np.float64, np.dtype("float64"), torch.float64, mm.float64):
        assert mm.astype(x, name).dtype is mm.float64
    assert mm.astype(x, float).dtype is mm.float32
    assert mm.astype(x, bool).dtype is mm.bool
    with pytest.raises(DTypeError, match=r"dtype 'float42' is not known.*float32"):
        mm.astype(x, "float42")


# operators ---------------------------------------------------------------------------------------


ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
              operator.mod, operator.pow]  # fmt: skip
COMPARISON = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITWISE = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("function", [*ARITHMETIC, *COMPARISON], ids=lambda f: f.__name__)
def test_operators_from_both_sides(function: Callable[[Any, Any], Any], every_pool: Pool) -> None:
    a, b = np.array([[1.5, 2.0, 3.0]]), np.array([[2.0], [0.5]])
    x, y = mm.asarray(a), mm.asarray(b)
    check(function(x, y), function(a, b))
    check(function(x, 2), function(a, 2))
    check(function(2, x), function(2, a))
    check(function(x, b), function(a, b))


@pytest.mark.parametrize("function", BITWISE, ids=lambda f: f.__name__)
def test_bitwise_operators(function: Callable[[Any, Any], Any]) -> None:
    a, b = np.array([5, 12, 7]), np.array([1, 2, 3])
    check(function(mm.asarray(a), mm.asarray(b)), function(a, b))
    check(function(mm.asarray(a), 2), function(a, 2))
    check(function(2, mm.asarray(b)), function(2, b))


def test_unary_operators() -> None:
    x = mm.asarray([1.5, -2.0])
    check(-x, np.array([-1.5, 2.0], np.float32))
    check(abs(x), np.array([1.5, 2.0], np.float32))
    check(~mm.asarray([1, 0]), ~np.array([1, 0]))
    assert +x is not x
    check(+x, np.array([1.5, -2.0], np.float32))


IN_PLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
            operator.imod, operator.ipow]  # fmt: skip
IN_PLACE_BITS = [operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]


@pytest.mark.parametrize("function", [*IN_PLACE, *IN_PLACE_BITS], ids=lambda f: f.__name__)
def test_updates_in_place_are_seen_by_every_holder(function: Callable[[Any, Any], Any]) -> None:
    dtype = np.int64 if function in IN_PLACE_BITS else np.float64
    a, b = np.array([[4, 9, 6], [3, 5, 8]], dtype), np.array([2, 1, 3], dtype)
    x, known = mm.asarray(a), mm.asarray(a) * 2
    mm.evaluate(known)
    for array in (x, known):
        expected, other, earlier = array.numpy(), array, +array
        assert function(array, mm.asarray(b)) is array
        check(earlier, expected)
        check(other, function(expected, b))
        check(function(array, 2), function(expected, 2))


def test_updates_in_place_keep_shape_and_type() -> None:
    x = mm.asarray([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"in place.*\(2,\) float32.*would be \(3, 2\) float32"):
        x += mm.ones((3, 1))
    with pytest.raises(DTypeError, match=r"in place.*would be \(2,\) float64.*a = a \+ b"):
        x *= np.array([1.0, 2.0])
    check(x, np.array([1, 2], np.float32))
    y = mm.asarray(np.eye(2))
    y @= mm.asarray(np.array([[1.0, 2.0], [3.0, 4.0]]))
    check(y, np.array([[1.0, 2.0], [3.0, 4.0]]))
    check(np.eye(2) @ y, y.numpy())


def test_updated_variables_stay_variables() -> None:
    x = mm.variable("x", [1.0, 2.0])
    y = x * 2
    x += 1
    assert isinstance(x, mm.Variable)
    check(x, np.array([2, 3], np.float32))
    check(y, np.array([4, 6], np.float32))


def test_numbers_given_to_compiled_functions_are_updated_as_numbers_are() -> None:
    @mm.compile
    def twice(x: mm.Array, n: Any) -> mm.Array:
        m = n
        n += 1
        return x * m + n

    check(twice(mm.asarray([1.0, 2.0]), 3.0), np.array([7, 10], np.float32))


def test_arithmetic_of_numbers_given_to_compiled_functions_is_that_of_numbers() -> None:
    x = mm.asarray([1.0, 2.0])
    whole = mm.asarray([1, 2])

    def computed(function: Any, array: mm.Array, n: float) -> None:
        expected = np.asarray(function(np.asarray(array), n))
        compiled = mm.compile(function)
        compiled(array, type(n)(2))
        result = compiled(array, n)
        assert result.dtype == array.dtype or expected.dtype == bool
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-6)

    for n in (3, 3.5):
        computed(lambda a, n: a * (n + 1) - n / 4, x, n)
        computed(lambda a, n: a * -n + abs(1 - n) ** 2, x, n)
        computed(lambda a, n: a + (n % 2) * (7 // n), x, n)
        computed(lambda a, n: a * (1 * (n > 3)), x, n)
    computed(lambda a, n: a * (n // 2 + n % 2 - n**2), whole, 7)
    computed(lambda a, n: a & ~(n << 2 | 1) ^ n, whole, 5)
    assert mm.compile(lambda n: n + 1)(3).dtype == mm.int64
    assert float(mm.compile(lambda n: n / 3)(1)) == 1 / 3, "in 64 bits"


@pytest.mark.parametrize(
    "function",
    [mm.zeros, mm.eye, mm.arange, lambda n: mm.sum(mm.ones(3), axis=n), range, mm.random.normal],
)
def test_numbers_that_must_be_known_are_asked_for(function: Any) -> None:
    with pytest.raises(TracingError, match=r"partial|known while the function is traced"):
        mm.compile(function)(2)


def test_values_as_python_numbers() -> None:
    x = mm.asarray(2.5)
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (2.5, 2, 2.5 + 0j, True, 2.5)
    assert [10, 20, 30][mm.asarray(1)] == 20
    assert mm.asarray([[1, 2]]).tolist() == [[1, 2]]
    assert [float(v) for v in mm.asarray([1.0, 2.0])] == [1.0, 2.0]
    assert len(mm.zeros((3, 2))) == 3
    assert f"{x:.3f} {mm.asarray(7):>3} {mm.ones(2)}" == f"2.500   7 {mm.ones(2)!s}"
    with pytest.raises(TypeError, match="item.*0-d array"):
        f"{mm.ones(2):.3f}"
    for function in (float, int, bool, complex):
        with pytest.raises(TypeError, match=r"needs a 0-d array, this one has shape \(2,\)"):
            function(mm.ones(2))
    with pytest.raises(TypeError, match="only integer arrays"):
        operator.index(x)
    with pytest.raises(TypeError, match="0-d array has no length"):
        len(x)
    with pytest.raises(TypeError):
        "text" + x


def test_arrays_print_their_values_and_layout() -> None:
    with current("shared", 2):
        text = repr(mm.asarray([[1.0, 2.0], [3.0, 4.0]], layout=mm.Layout.split(0)) * 2)
    assert "2." in text
    assert "8." in text
    assert "shape=(2, 2), dtype=float32" in text
    assert "layout=" in text


# indexing and shapes -----------------------------------------------------------------------------


SHAPE = (4, 5, 3)
GRID = np.arange(60.0).reshape(SHAPE)


def test_iteration_ends() -> None:
    rows = list(mm.asarray(GRID))
    assert len(rows) == 4
    for row, expected in zip(rows, GRID, strict=True):
        check(row, expected)


def test_shapes_change_as_in_numpy(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    for shape in ((60,), (-1,), (5, 12), (2, -1, 3), (1, 4, 5, 3, 1)):
        check(mm.reshape(x, shape), GRID.reshape(shape))
    check(mm.reshape(x, -1), GRID.reshape(-1))
    check(mm.expand_dims(x, axis=-1), GRID[..., None])
    check(mm.squeeze(mm.expand_dims(x, axis=1), 1), GRID)
    check(mm.permute_dims(x, (2, 0, -2)), GRID.transpose(2, 0, 1))
    check(x.mT, GRID.swapaxes(1, 2))
    check(x[0].T, GRID[0].T)
    check(mm.broadcast_to(x[0, 0], (2, 3)), np.broadcast_to(GRID[0, 0], (2, 3)))
    a, b = mm.broadcast_arrays(x[0, 0], x[0, :, :1])
    assert a.shape == b.shape == (5, 3)


def test_concat_and_stack(every_pool: Pool) -> None:
    x, y = mm.asarray(GRID), mm.asarray(GRID[:2] + 100)
    check(mm.concat([x, y, x]), np.concatenate([GRID, GRID[:2] + 100, GRID]))
    check(mm.concat([x, x], axis=-1), np.concatenate([GRID, GRID], axis=-1))
    check(mm.concat([x, y], axis=None), np.concatenate([GRID, GRID[:2] + 100], axis=None))
    check(mm.stack([x, x + 1], axis=1), np.stack([GRID, GRID + 1], axis=1))
    check(mm.stack([x, x], axis=-1), np.stack([GRID, GRID], axis=-1))
    mixed = mm.concat([mm.ones(1, dtype="int8"), mm.ones(1, dtype="int32")])
    assert mixed.dtype is mm.int32


def test_matmul_takes_vectors_and_batches(every_pool: Pool) -> None:
    random = np.random.default_rng(0)
    for a, b in (((3,), (3,)), ((3,), (3, 2)), ((4, 3), (3,)), ((4, 3), (3, 2)), ((3,), (5, 3, 2)),
                 ((5, 4, 3), (3,)), ((2, 1, 4, 3), (5, 3, 2)), ((0, 3), (3, 2)), ((2, 0), (0, 3))):  # fmt: skip
        x, y = random.standard_normal(a), random.standard_normal(b)
        check(mm.asarray(x) @ mm.asarray(y), x @ y)


# reductions and compositions ---------------------------------------------------------------------


AXES = st.none() | st.integers(-3, 2) | st.sets(st.integers(0, 2), max_size=3).map(tuple)


@given(axis=AXES, keepdims=st.booleans(), kind=st.sampled_from(KINDS))
@settings(max_examples=20)
def test_statistics_are_numpys(axis: Any, keepdims: bool, kind: tuple[str, int]) -> None:
    data = np.sin(GRID * 7)
    with current(*kind):
        x = mm.asarray(data)
        check(mm.mean(x, axis=axis, keepdims=keepdims), data.mean(axis, keepdims=keepdims))
        check(mm.var(x, axis=axis, keepdims=keepdims), data.var(axis, keepdims=keepdims))
        check(mm.std(x, axis=axis, correction=0.5, keepdims=keepdims),
              data.std(axis, ddof=0.5, keepdims=keepdims) if axis != () else
              mm.std(x, axis=axis, correction=0.5, keepdims=keepdims).numpy())  # fmt: skip
        check(mm.sum(x, axis=axis, keepdims=keepdims), data.sum(axis, keepdims=keepdims))
        check(mm.any(x > 0.5, axis=axis), (data > 0.5).any(axis))
        check(mm.all(x, axis=axis), (data != 0).all(axis))
        if axis is None or isinstance(axis, int):
            check(mm.argmax(x, axis=axis, keepdims=keepdims), data.argmax(axis, keepdims=keepdims))
            check(mm.argmin(x, axis=axis), data.argmin(axis))


def test_sums_of_small_integers_are_wide() -> None:
    x = mm.full(300, 100, dtype="int8")
    assert (mm.sum(x).dtype, int(mm.sum(x))) == (mm.int64, 30000)
    assert mm.sum(mm.ones(3, dtype="uint8")).dtype is mm.uint64
    assert mm.sum(mm.asarray([1.5]), dtype="float64").dtype is mm.float64
    check(mm.sum(mm.asarray([200, 100], dtype="uint8"), dtype="float32"), np.float32(300))


def test_running_sums(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    check(mm.cumulative_sum(x, axis=1), GRID.cumsum(1))
    check(
        mm.cumulative_sum(x, axis=1, include_initial=True),
        np.concatenate([np.zeros((4, 1, 3)), GRID.cumsum(1)], axis=1),
    )
    check(mm.cumulative_sum(mm.asarray([1, 2], dtype="int8")), np.array([1, 3]))


def test_compositions(every_pool: Pool) -> None:
    data = np.linspace(-30, 30, 24).reshape(4, 6)
    x = mm.asarray(data)
    powers = np.exp(data - data.max(1, keepdims=True))
    check(mm.softmax(x), powers / powers.sum(1, keepdims=True))
    check(mm.log_softmax(x, axis=0), data - np.log(np.exp(data).sum(0)))
    check(mm.relu(x), np.maximum(data, 0))
    check(mm.sigmoid(x), 1 / (1 + np.exp(-data)))
    check(mm.clip(x, -1, 2.5), np.clip(data, -1, 2.5))
    check(mm.clip(x, max=0), np.clip(data, None, 0))
    check(mm.where(x > 0, x, 0), np.where(data > 0, data, 0))
    check(mm.mean(mm.zeros((0, 3), dtype="float64"), axis=1), np.zeros(0))
    assert np.isnan(mm.mean(mm.zeros((0, 3)), axis=0).numpy()).all()


# programs and messages ---------------------------------------------------------------------------


def programs(pool: Pool) -> int:
    return int(pool.stats()[0]["programs"])


def test_numbers_are_no_part_of_a_program(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    (x * 1.0).numpy()
    known = programs(every_pool)
    for i in range(2, 30):
        check(x * float(i), GRID * i)
        check(x * i, GRID * i)
    assert programs(every_pool) == known


def test_second_run_of_a_program_is_one_message(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    mm.evaluate(mm.sum(x * 2.0))
    gc.collect()
    mm.evaluate(mm.sum(x * 3.0))  # carries what was released meanwhile
    before = every_pool.traffic.messages, every_pool.traffic.bytes
    y = mm.sum(x * 4.0)
    mm.evaluate(y)
    assert every_pool.traffic.messages - before[0] <= 2, "the run, and arrays let go"
    assert every_pool.traffic.bytes - before[1] < 200 * every_pool.workers
    assert float(y) == GRID.sum() * 4


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_repeated_lines_cost_their_run_and_the_value(kind: str) -> None:
    """Three messages, of hardly over a hundred bytes a worker, from plain expressions and compiled
    functions alike: what was released, the run, and the request for the number."""
    with current(kind, 2) as pool:
        a = mm.asarray(np.ones(100_000, np.float32))
        compiled = mm.compile(lambda a: mm.sum(a * 2 + 1))

        def cost(line: Callable[[], float]) -> tuple[int, int]:
            before = pool.traffic.messages, pool.traffic.bytes
            assert line() == 300_000
            return pool.traffic.messages - before[0], pool.traffic.bytes - before[1]

        for line in (lambda: float(mm.sum(a * 2 + 1)), lambda: float(compiled(a))):
            first, *later = [cost(line) for _ in range(10)]
            assert all(messages <= 3 and nbytes < 200 * 2 for messages, nbytes in later), later
            assert first[0] <= 5


def test_nothing_is_sent_until_a_value_is_needed(pool: Pool) -> None:
    x = mm.asarray(GRID)
    before = pool.traffic.messages
    y = mm.exp(x) + mm.sum(x, axis=0) * 2
    y = y.mT[0] if y.ndim > 2 else y
    assert pool.traffic.messages == before
    y.numpy()
    assert pool.traffic.messages - before == 2, "compute, get"


@pytest.fixture
def planned(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are computed by programs too."""
    monkeypatch.setattr(session.engine(), "at_once_bytes", -1)


@pytest.mark.parametrize("extent", [10, 20_000])
def test_what_is_computed_on_the_way_and_held_is_computed_once(pool: Pool, extent: int) -> None:
    x = mm.asarray(np.ones(extent, np.float32))
    y = x * 3
    assert float(mm.sum(y)) == 3 * extent
    np.testing.assert_array_equal(np.asarray(mm.grad(mm.sum(y * y), x)), np.full(extent, 18.0))
    before = pool.traffic.messages
    mm.evaluate(y)
    assert pool.traffic.messages == before
    for _ in range(50):
        y = y * 0.5 + 1
        assert float(mm.max(y)) < 3
    assert pool.stats()[0]["arrays"] < 25, "no value is kept for ever"


@pytest.mark.usefixtures("planned")
def test_values_are_computed_once(pool: Pool) -> None:
    y = mm.sum(mm.asarray(GRID) * 1.25)
    assert float(y) == float(y)
    known = programs(pool)
    before = pool.traffic.messages
    y.numpy()
    assert pool.traffic.messages - before == 1, "get: no run"
    z = y + 1  # what is known is not computed again
    mm.evaluate(z)
    assert programs(pool) == known + 1
    assert z.explain() == z.explain()
    assert "nothing to compute" in str(z.explain())


def test_pending_expressions_use_values_that_have_become_known(pool: Pool) -> None:
    x = mm.asarray(GRID)
    y = mm.exp(x * 0.01)
    z = y + 1.0
    assert "exp" in str(z.explain())
    mm.evaluate(y)
    assert "exp" not in str(z.explain())
    check(z, np.exp(GRID * 0.01) + 1)


@pytest.mark.usefixtures("planned")
def test_arrays_evaluated_together_are_one_program(pool: Pool) -> None:
    x = mm.asarray(GRID)
    a, b = mm.sin(x), mm.cos(mm.sin(x))
    known = programs(pool)
    before = pool.traffic.messages
    mm.evaluate(a, b, a)
    assert pool.traffic.messages - before == 2, "define and run"
    assert programs(pool) == known + 1
    mm.evaluate()
    mm.evaluate(a, b)
    check(b, np.cos(np.sin(GRID)))


def test_arrays_let_go_give_their_memory_back(every_pool: Pool) -> None:
    def arrays() -> int:
        gc.collect()
        return int(every_pool.stats()[0]["arrays"])

    x = mm.asarray(GRID)
    mm.evaluate(x + 1.0)
    known, held = arrays(), int(every_pool.stats()[0]["in_use"])
    for i in range(20):
        mm.evaluate(x + float(i))
    assert arrays() == known
    assert int(every_pool.stats()[0]["in_use"]) == held


def test_long_chains_are_no_trouble(pool: Pool) -> None:
    x = mm.asarray([0.0])
    for _ in range(3000):
        x = x + 1
    assert float(x[0]) == 3000


# layouts -----------------------------------------------------------------------------------------


def test_redistribution_and_replication() -> None:
    with current("shared", 3) as pool:
        x = mm.asarray(GRID, layout=mm.Layout.split(0))
        y = x.redistribute(mm.Layout.cyclic(1))
        assert y.layout == mm.Layout.cyclic(1).bind(SHAPE, pool.mesh)
        check(y, GRID)
        half = x.redistribute(mm.Layout.grid((3, 1)), dtype="float32")
        check(half, GRID.astype(np.float32))
        for wait in (True, False):
            whole = x.replicate(wait=wait)
            assert whole.layout.is_replicated
            check(whole, GRID)


def test_explanation_tells_instructions_bytes_and_the_users_line() -> None:
    with current("messages", 3):
        x = mm.asarray(np.ones((6, 4)), layout=mm.Layout.split(0))
        y = (x * 2).redistribute(mm.Layout.split(1))
        text = str(y.explain())
    assert "multiply" in text
    assert re.search(r"all_to_all, \d+ bytes, 6 messages", text)
    assert f"# {__file__}:" in text
    assert "bytes moved between workers" in text


def test_memory_that_is_short_names_the_line_that_needs_it() -> None:
    weights = mm.ones((4, 4)).numpy()
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    needed = (
        lambda: mm.full((1000, 1000, 4), 2.0) @ weights,  # for an output
        lambda: mm.sum(mm.full((1000, 1000, 4), 2.0) @ weights),  # for a temporary
    )
    with mm.init(workers=2, launcher="threads", device="cpu", memory_limit=1 << 20):
        for i, make in enumerate(needed):
            with pytest.raises(MemoryLimitError, match=rf"test_array\.py:{line + i}\]"):
                make().numpy()
        check(mm.ones(3), np.ones(3, np.float32))


def test_layouts_that_do_not_fit_are_refused() -> None:
    with current("shared", 2):
        x = mm.zeros((4, 6))
        with pytest.raises(LayoutError, match=r"needs workers \[5\].*mm\.init"):
            mm.asarray(np.zeros((4, 6)), layout=mm.Layout.on(5))
        with pytest.raises(LayoutError, match=r"grid.*needs 4 workers, there are 2"):
            x.redistribute(mm.Layout.grid((2, 2)))
        with pytest.raises(LayoutError, match=r"dimension 2; the array has shape \(4, 6\)"):
            x.redistribute(mm.Layout.split(2))
        bound = mm.Layout.split(0).bind((4, 6), mm.Mesh.line(3))
        with pytest.raises(LayoutError, match=r"another mesh.*workers 0 to 1.*\[2\].*workers=3"):
            x.redistribute(bound)
        with pytest.raises(LayoutError, match=r"layout is for shape \(4, 6\).*shape \(4, 5\)"):
            mm.zeros((4, 5)).redistribute(mm.Layout.split(0).bind((4, 6), mm.Mesh.line(2)))
        for other in ("rows", 0, mm.Layout.split):
            with pytest.raises(LayoutError, match=r"needs a layout such as .*, was given"):
                x.redistribute(other)  # type: ignore[arg-type]


# random numbers ----------------------------------------------------------------------------------


def drawn() -> list[Any]:
    mm.random.seed(11)
    return [
        mm.random.uniform(-1, 2, (5, 7)).numpy(),
        mm.random.normal(3, 0.5, (40,), dtype="float64").numpy(),
        mm.random.integers(-3, 9, (3, 4)).numpy(),
        mm.random.permutation(13).numpy(),
        mm.random.permutation(mm.asarray(GRID), axis=1).numpy(),
    ]


def test_random_numbers_are_the_same_on_every_pool() -> None:
    expected = drawn()
    for kind, workers in [*KINDS, ("shared", 4), ("exact", 3)]:
        with current(kind, workers):
            for found, known in zip(drawn(), expected, strict=True):
                np.testing.assert_array_equal(found, known)


def test_every_draw_has_a_stream_of_its_own() -> None:
    x, y = mm.random.uniform(shape=100), mm.random.uniform(shape=100)
    assert not np.array_equal(x.numpy(), y.numpy())
    np.testing.assert_array_equal(x.numpy(), x.numpy())
    assert len(np.unique(np.concatenate([x.numpy(), y.numpy()]))) > 190


def test_pools_of_one_seed_draw_the_same() -> None:
    found = []
    for seed in (4, 4, 5):
        pool = start("inline", 1)
        pool.seed = seed
        session.use(pool)
        found.append(mm.random.uniform(shape=9).numpy())
        pool.close()
        del pool
        gc.collect()
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_random_numbers_are_spread_as_they_should_be() -> None:
    u = mm.random.uniform(2, 5, 20000).numpy()
    assert u.min() >= 2
    assert u.max() < 5
    assert abs(u.mean() - 3.5) < 0.03
    n = mm.random.normal(1, 2, 20000).numpy()
    assert abs(n.mean() - 1) < 0.06
    assert abs(n.std() - 2) < 0.06
    i = mm.random.integers(7, shape=7000).numpy()
    assert set(i) == set(range(7))
    assert np.bincount(i).min() > 850
    p = mm.random.permutation(1000).numpy()
    assert sorted(p) == list(range(1000))
    with pytest.raises(ShapeError, match="needs low < high, was given 3 and 3"):
        mm.random.integers(3, 3)
    with pytest.raises(DTypeError, match="draws floating point numbers.*int64"):
        mm.random.uniform(dtype="int64")


# compiled functions ------------------------------------------------------------------------------


def test_compiled_function_is_traced_once(every_pool: Pool) -> None:
    traced = []

    @mm.compile
    def f(x: mm.Array, scale: float, *, shift: float = 0.0) -> mm.Array:
        traced.append(x.shape)
        return mm.sum(x, axis=0) * scale + shift

    x = mm.asarray(GRID)
    check(f(x, 2.0), GRID.sum(0) * 2)
    for i in range(5):
        check(f(x + float(i), 0.5 * i, shift=1.0), (GRID + i).sum(0) * 0.5 * i + 1)
    assert len(traced) == 2, "once without and once with a shift"
    known = programs(every_pool)
    check(f(x, 9.0), GRID.sum(0) * 9)
    assert programs(every_pool) == known
    check(f(GRID[:2], 1.0), GRID[:2].sum(0))
    assert len(traced) == 3, "another shape"


def test_compiled_function_takes_and_gives_nested_structures() -> None:
    @mm.compile
    def f(state: dict[str, Any], pair: tuple[Any, Any], flag: str) -> Any:
        a, b = pair
        return {"sum": state["x"] + a, "both": [b * 2, (state["n"] * a,)], "flag": a + len(flag)}

    x = mm.asarray([1.0, 2.0])
    result = f({"x": x, "n": 3}, (x + 1, np.array([5.0, 6.0])), "abc")
    check(result["sum"], np.array([3.0, 5.0], np.float32))
    check(result["both"][0], np.array([10.0, 12.0]))
    check(result["both"][1][0], np.array([6.0, 9.0], np.float32))
    check(result["flag"], np.array([5.0, 6.0], np.float32))
    assert isinstance(result["both"][1], tuple)


def test_compiled_gradient_is_a_step_of_descent(every_pool: Pool) -> None:
    @mm.compile
    def step(w: mm.Array, x: mm.Array, y: mm.Array, rate: float) -> tuple[mm.Array, mm.Array]:
        loss = mm.mean(mm.square(x @ w - y))
        return w - rate * mm.grad(loss, w), loss

    random = np.random.default_rng(1)
    x, truth = random.standard_normal((50, 4)), np.array([1.0, -2.0, 3.0, 0.5])
    w, y = mm.zeros(4, dtype="float64"), x @ truth
    losses = []
    for _ in range(200):
        w, loss = step(w, x, y, 0.1)
        losses.append(float(loss))
    np.testing.assert_allclose(w.numpy(), truth, atol=1e-6)
    assert losses[-1] < 1e-9 < losses[0]


def test_functions_that_cannot_be_compiled_are_told_why() -> None:
    with pytest.raises(MagmathError, match="must return arrays, it returned a float"):
        mm.compile(lambda x: 1.5)(mm.ones(2))
    with pytest.raises(MagmathError, match="argument of type set is neither"):
        mm.compile(lambda x, y: x)(mm.ones(2), {1})


def test_programs_that_are_held_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are, so that a long session does not collect them."""
    monkeypatch.setattr("magmath.array.engine.KEPT_PROGRAMS", 4)
    with current("shared", 2) as pool:
        before = pool.stats()[0]["programs"]
        x, v = mm.asarray([1.0, 2.0]), mm.variable("v", [3.0])
        function, descent, loss = mm.compile(mm.sin), mm.optim.GradientDescent(0.25), mm.sum(v * v)
        for n in range(1, 12):
            check(function(x), np.sin(np.float32([1, 2])))
            assert descent.minimize(loss, [v]) == pytest.approx(9 * 0.25 ** (n - 1))
            mm.evaluate(mm.ones(n) + 1)
        assert pool.stats()[0]["programs"] == before + 4


def test_compiled_function_sees_variables_as_they_are_now() -> None:
    v = mm.variable("v", [1.0, 2.0])

    @mm.compile
    def f(x: mm.Array) -> mm.Array:
        return x * v

    x = mm.asarray([10.0, 10.0])
    check(f(x), np.array([10.0, 20.0], np.float32))
    v.set([3.0, 4.0])
    check(f(x), np.array([30.0, 40.0], np.float32))


# gradients ---------------------------------------------------------------------------------------


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
def test_gradients_through_what_was_computed_are_refused(every_pool: Pool, look: str) -> None:
    x, w = mm.asarray(np.array([1.0, 2.0, 3.0])), mm.asarray(np.array([2.0, 0.5, 1.0]))
    y = x * x * 2
    LOOKS[look](y)
    result = mm.sum(y * w)
    with pytest.raises(MagmathError, match=r"grad: .*test_array\.py.*let go.*mm\.variable"):
        mm.grad(result, x)
    check(mm.grad(result, w), np.array([2.0, 8.0, 18.0]))
    check(mm.grad(result, y), w.numpy())
    check(mm.grad(mm.sum(x * mm.stop_gradient(y)), x), y.numpy())


def test_copies_in_other_layouts_are_values(every_pool: Pool) -> None:
    x = mm.asarray(np.array([1.0, 2.0, 3.0]))
    copy, moved = x.replicate(), x.redistribute(mm.Layout.split(0))
    check(mm.grad(mm.sum(moved), x), np.ones(3))
    mm.evaluate(moved)
    for y in (copy, moved):
        with pytest.raises(MagmathError, match=r"grad: .*let go"):
            mm.grad(mm.sum(y), x)


@pytest.mark.parametrize("through", ["loop", "loop's body", "compiled", "read by compiled"])
def test_gradients_through_loops_and_compiled_functions_are_refused(through: str) -> None:
    x, w = mm.asarray([1.0, 2.0, 3.0]), mm.variable("w", [2.0, 0.5, 1.0])
    if "loop" in through:
        y = mm.fori_loop(0, 3, lambda i, z: z * w, x)
    else:
        function = mm.compile(lambda z: z * w)
        y = [function(x) for _ in range(3)][-1]
    with pytest.raises(MagmathError, match=r"grad: .*let go.*mm\.compile"):
        mm.grad(mm.sum(y * y), x if through in ("loop", "compiled") else w)
    check(mm.grad(mm.sum(y * x), y), x.numpy())


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
def test_gradients_are_right_or_refused(data: st.DataObject) -> None:
    """Whenever values are asked for: an expression that was kept has its gradient, and only what
    depends on an array through one that was let go is refused."""
    with current("inline"):
        values = [np.array([0.3, -0.7]), np.array([1.1, 0.2])]
        arrays, kept = [mm.asarray(v) for v in values], [mm.asarray(v) for v in values]
        reached = [{0}, {1}]  # the arrays that each was made of, itself included
        lost: list[set[int]] = [set(), set()]  # those from which only values came
        for _ in range(data.draw(st.integers(1, 12))):
            i, j = (data.draw(st.integers(0, len(arrays) - 1)) for _ in range(2))
            if data.draw(st.integers(0, 2)) == 0:
                LOOKS[data.draw(st.sampled_from(["print", "evaluate", "layout"]))](arrays[i])
                lost[i] = reached[i] - {i}
            else:
                for found in (arrays, kept):
                    found.append(mm.sin(found[i]) * found[j] + 1)
                reached.append(reached[i] | reached[j] | {len(reached)})
                lost.append(lost[i] | lost[j])
        result = mm.sum(arrays[-1])
        for x, (array, twin) in enumerate(zip(arrays, kept, strict=True)):
            if x in lost[-1]:
                with pytest.raises(MagmathError, match="let go"):
                    mm.grad(result, array)
            else:
                expected = mm.grad(mm.sum(kept[-1]), twin).numpy()
                np.testing.assert_allclose(mm.grad(result, array).numpy(), expected, atol=1e-12)


def test_what_has_no_gradient_is_refused() -> None:
    x = mm.asarray([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"grad: needs a 0-d result.*\(2,\); sum it first"):
        mm.grad(x * 2, x)
    with pytest.raises(DTypeError, match="grad: needs real floating point, was given int64"):
        mm.grad(mm.sum(mm.asarray([1, 2])), x)
    with pytest.raises(DTypeError, match="complex64"):
        mm.grad(mm.sum(x), mm.asarray([1j]))


# variables ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("look", [np.asarray, str, mm.Array.tolist])
def test_an_update_that_fails_is_told_once(every_pool: Pool, look: Callable[[Any], Any]) -> None:
    """The array is what it was before, whatever was done to it after; other arrays are updated."""
    a, b = mm.asarray([1.0, 2.0]), mm.asarray([5.0, 5.0])
    bad = mm.linalg.solve(mm.zeros((2, 2)), b)
    a += 1
    a *= 2
    a += bad
    a -= 7
    b += 1
    c = a + b
    with pytest.raises(np.linalg.LinAlgError, match="solve: the matrix is singular"):
        look(a)
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError):
            np.asarray(c)
    check(a, np.float32([4, 6]))
    check(b, np.float32([6, 6]))
    a += b
    check(a, np.float32([10, 12]))


@pytest.mark.parametrize("worker", [0, -1])
def test_variables_stay_where_they_are(every_pool: Pool, worker: int) -> None:
    """Whatever they are given, and wherever that lies."""
    place = mm.Layout.on(worker % every_pool.workers)
    start, other = np.arange(300.0), mm.asarray(np.ones(300), layout=mm.Layout.split(0))
    v = mm.variable("v", mm.asarray(start, layout=mm.Layout.split(0)), layout=place)
    y = v * 2
    updates: list[Callable[[], object]] = [
        lambda: operator.iadd(v, other),
        lambda: operator.imul(v, mm.sin(other) + other),
        lambda: v.set(other * 3),
        lambda: mm.optim.GradientDescent(0.5).minimize(mm.sum(v * other), [v]),
    ]
    expected = [start + 1, (start + 1) * (np.sin(1) + 1), np.full(300, 3.0), np.full(300, 2.5)]
    for update, value in zip(updates, expected, strict=True):
        update()
        assert v.layout == v.node.layout == place.bind((300,), every_pool.mesh)
        check(v, value)
        check(y, value * 2)


def test_expressions_follow_their_variables(every_pool: Pool) -> None:
    v = mm.variable("v", [1.0, 2.0])
    y = v * 10
    z = y + 1
    check(z, np.array([11, 21], np.float32))
    v.set([5, 6])
    check(v, np.array([5, 6], np.float32))
    check(z, np.array([51, 61], np.float32))
    check(y, np.array([50, 60], np.float32))
    other = mm.variable("w", v)
    v.set([0.0, 0.0])
    check(other, np.array([5, 6], np.float32))


def test_variables_and_constants_have_names_types_and_layouts() -> None:
    with current("shared", 2) as pool:
        v = mm.variable("weights", np.zeros((4, 2)), layout=mm.Layout.split(0))
        assert v.name == "weights"
        assert v.dtype is mm.float64
        assert v.layout == mm.Layout.split(0).bind((4, 2), pool.mesh)
        assert mm.variable("n", 3).dtype is mm.float32
        assert mm.constant(3).dtype is mm.float32
        assert mm.variable("n", 3, dtype="int64").dtype is mm.int64
        with pytest.raises(ShapeError, match=r"variable weights has shape \(4, 2\), not \(3,\)"):
            v.set([1.0, 2.0, 3.0])


# errors ------------------------------------------------------------------------------------------


def _minimized_by_array(x: mm.Array) -> object:
    return mm.optim.GradientDescent(0.1).minimize(mm.sum(x), [x])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda x: x + mm.ones((4, 5)), ShapeError, r"add: .*\(4, 3\), \(4, 5\).*dimension -1 is 3 and 5.*equal or 1"),
        (lambda x: x @ x, ShapeError, r"matmul: needs .* given \(4, 3\) @ \(4, 3\).*3 is not 4"),
        (lambda x: x @ mm.asarray(1.0), ShapeError, r"matmul: needs arrays of 1 or more dimensions"),
        (lambda x: mm.reshape(x, (5, 2)), ShapeError, r"reshape: \(4, 3\) has 12 elements, \(5, 2\) would have 10"),
        (lambda x: mm.reshape(x, (5, -1)), ShapeError, r"reshape: 12 elements cannot be reshaped to \(5, -1\)"),
        (lambda x: mm.reshape(x, (-1, -1)), ShapeError, r"reshape: at most one extent may be -1"),
        (lambda x: mm.permute_dims(x, (0, 0)), ShapeError, r"permute_dims: \(0, 0\) is not an ordering of 2"),
        (lambda x: mm.sum(x, axis=2), ShapeError, r"sum: axis 2 is out of range .* 2 dimensions"),
        (lambda x: mm.sum(x, axis=(0, -2)), ShapeError, r"sum: axes .* name an axis twice"),
        (lambda x: mm.concat([x, mm.ones((4, 2, 1))]), ShapeError, r"concat: .*shapes \(4, 3\) and \(4, 2, 1\)"),
        (lambda x: mm.concat([]), ShapeError, r"concat: needs at least one array"),
        (lambda x: mm.stack([x, x[0]]), ShapeError, r"stack: needs arrays of one shape.*mm\.concat"),
        (lambda x: mm.concat([x, x.T]), ShapeError, r"concat: .* axis 0, was given .*\(4, 3\) and \(3, 4\).*reshape"),
        (bool, TypeError, r"bool\(\): needs a 0-d array, .*\(4, 3\); take .*mm\.any\(x\) or mm\.all"),
        (float, TypeError, r"float\(\): needs a 0-d array, .*\(4, 3\); take .*mm\.sum"),
        (lambda x: mm.std(x, correction="a"), TypeError, "std: correction must be a real number, was given 'a'; 1"),
        (lambda x: mm.var(x, correction=1j), TypeError, "var: correction must be a real number, was given 1j; 1"),
        (lambda x: mm.Mesh("a"), LayoutError, r"Mesh: shape must be whole numbers, such as \(2, 2\), .*'a'"),
        (lambda x: mm.Mesh(2.5), LayoutError, "Mesh: shape must be whole numbers.* 2.5"),
        (lambda x: mm.Mesh(2, workers="ab"), LayoutError, "Mesh: workers must be whole numbers.* 'ab'"),
        (lambda x: mm.save(3, x), TypeError, "save: the first argument is a path.*given int; .*mm.save"),
        (lambda x: mm.savez(x), TypeError, "savez: the first argument is a path.*given Array; "),
        (lambda x: mm.load(3.5), TypeError, "load: the first argument is a path.*given float; "),
        (lambda x: mm.data.read_csv("/none.csv"), MissingDataError, "data.read_csv: there is no file /none.csv; give"),
        (lambda x: mm.data.read_idx("/none"), MissingDataError, "read_idx: there is no file /none; give"),
        (lambda x: mm.MemoryManager(mm.MemoryKind.DEVICE), TypeError, r"MemoryManager: count must be a whole number.*DEVICE.*MemoryManager\(1000"),
        (lambda x: mm.MemoryManager(-1), ShapeError, "MemoryManager: count must be at least 0, was given -1"),
        (lambda x: mm.nn.cross_entropy(x, mm.zeros(4)), DTypeError, r"integers .*given \(4,\) float32; .*mm\.astype"),
        (lambda x: mm.ones((2, "a")), TypeError, r"ones: a shape is .*such as \(2, 3\), .*'a'"),
        (lambda x: mm.empty(-1), ShapeError, r"empty: extents must be at least 0, was given \(-1,\); write"),
        (lambda x: mm.eye(-1), ShapeError, r"eye: extents must be at least 0, was given \(-1, -1\); write"),
        (lambda x: mm.linspace(0, 1, "a"), TypeError, "linspace: a shape is .*'a'"),
        (lambda x: mm.random.normal(shape=-2), ShapeError, "random.normal: extents must be"),
        (lambda x: mm.squeeze(x, 0), ShapeError, r"squeeze: axes \(0,\) of shape \(4, 3\) are not all"),
        (lambda x: mm.broadcast_to(x, (4, 4)), ShapeError, r"broadcast_to: .*\(4, 3\).*\(4, 4\)"),
        (lambda x: x[:, :, None].T, ShapeError, r"T: needs 2 dimensions, .* 3; use permute_dims"),
        (lambda x: mm.max(x[:0], axis=0), ShapeError, r"max: axis of extent 0"),
        (lambda x: mm.argmax(x[:0], axis=0), ShapeError, r"argmax.*extent 0"),
        (lambda x: mm.zeros((2, -1)), ShapeError, r"zeros: extents must be at least 0.*\(2, -1\)"),
        (lambda x: mm.arange(0, 4, 0), ShapeError, r"arange: step must not be 0"),
        (lambda x: mm.cumulative_sum(x), ShapeError, r"cumulative_sum: needs `axis`"),
        (lambda x: mm.exp(mm.asarray([1, 2])), DTypeError, r"exp: takes floating types, was given int64; convert"),
        (lambda x: mm.mean(mm.asarray([1, 2])), DTypeError, r"mean: takes floating point, was given int64.*astype"),
        (lambda x: mm.logical_not(x), DTypeError, r"logical_not: takes bool types, was given float32"),
        (lambda x: mm.where(x, x, x), DTypeError, r"where \(condition\): takes bool types, was given float32"),
        (lambda x: x + mm.ones((4, 3), dtype="int32"), DTypeError, r"float32 and int32 have no common type.*astype"),
        (lambda x: mm.asarray("text"), DTypeError, r"asarray: NumPy type .* has no counterpart"),
        (lambda x: mm.exp([1.0]), TypeError, r"exp: needs magmath or NumPy arrays .* given list; .*mm\.asarray"),
        (lambda x: mm.add(1, 2), TypeError, r"add: needs an array, was given 1, 2"),
        (lambda x: mm.sum(x, axis="a"), TypeError, "sum: axes are integers, was given 'a'"),
        (lambda x: mm.asarray([[1, 2], [3]]), ShapeError, "asarray: nested sequences.*equal"),
        (lambda x: mm.zeros(3.5), TypeError, "a shape is an integer or a sequence.*3.5"),
        (lambda x: mm.zeros((10**7, 10**7)).numpy(), MemoryLimitError, "no 400,000,000 MB left"),
        (lambda x: mm.linspace(0, 1, -2), ShapeError, "linspace: extents must be at least 0"),
        (lambda x: mm.grad(mm.sum(x), "a"), TypeError, "grad: needs arrays, was given str"),
        (lambda x: mm.clip(x, "a", 3), TypeError, "clip: the minimum must be a number.*str"),
        (lambda x: mm.clip(x, 0, [1]), TypeError, "clip: the maximum must be a number.*list"),
        (lambda x: mm.reshape(x, "ab"), TypeError, "reshape: a shape must be .* was given 'ab'"),
        (lambda x: mm.reshape(x, (-1, 5)), ShapeError, "reshape: .*give extents whose product is"),
        (lambda x: mm.squeeze(x, axis=0), ShapeError, r"squeeze: .*name such.*x\[0\]"),
        (lambda x: mm.roll(x, "a"), TypeError, "roll: shifts must be .* was given 'a'"),
        (lambda x: mm.tile(x, "a"), TypeError, "tile: repetitions must be .* was given 'a'"),
        (lambda x: mm.repeat(x, "a"), TypeError, "repeat: needs magmath or NumPy.*given str"),
        (lambda x: mm.full(3, "a"), TypeError, "full: needs a number or a 0-d array, .*'a'"),
        (lambda x: mm.arange("a"), TypeError, "arange: start, stop and step are numbers, .*'a'"),
        (lambda x: mm.einsum(3, x), TypeError, "einsum: the subscripts come first.*int"),
        (lambda x: mm.linalg.norm(x), AttributeError, "mm.linalg.vector_norm and mm.linalg.matrix"),
        (lambda x: mm.linalg.vector_norm(x, ord="a"), TypeError, "vector_norm: ord must be .*'a'"),
        (lambda x: mm.linalg.matrix_power(mm.eye(2), "a"), TypeError, "matrix_power: .*integer"),
        (lambda x: mm.fori_loop("a", 3, max, x), TypeError, "fori_loop: the bounds .* given 'a'"),
        (lambda x: mm.fori_loop(0, 2.5, max, x), TypeError, "fori_loop: the bounds .* given 2.5"),
        (lambda x: mm.fori_loop(0, 3, 3, x), TypeError, "fori_loop: the body is a function"),
        (lambda x: mm.Layout.split("a"), LayoutError, "axis of a layout must be .* given 'a'"),
        (lambda x: mm.Layout.cyclic(0, "b"), LayoutError, "blocks of Layout.cyclic .* given 'b'"),
        (lambda x: mm.Layout.grid(3), LayoutError, "grid of a layout must be a sequence.*given 3"),
        (lambda x: mm.Layout.on("a"), LayoutError, "worker of Layout.on must be .* given 'a'"),
        (lambda x: mm.Layout.blocks("ab"), LayoutError, "Layout.blocks needs pairs.*given 'ab'"),
        (_minimized_by_array, TypeError, "minimize: needs a sequence of variables, was given Array"),
        (lambda x: mm.compile(3), TypeError, "compile: needs a function of arrays, was given 3"),
        (lambda x: mm.evaluate(3), TypeError, "evaluate: needs magmath arrays, was given int"),
        (lambda x: mm.from_dlpack(3), TypeError, "from_dlpack: needs an array with __dlpack__"),
        (lambda x: mm.optim.Adam("a"), TypeError, "learning_rate must be a positive number.*'a'"),
    ],
)  # fmt: skip
def test_mistakes_are_told_where_they_are_made(
    make: Callable[[mm.Array], object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        make(mm.ones((4, 3)))


def test_failing_worker_names_the_users_line(every_pool: Pool) -> None:
    x = mm.asarray(GRID)
    bad = mm.take(x, mm.asarray([0, 99]), axis=0)
    line = _line_of(bad)
    with pytest.raises(IndexError) as caught:
        bad.numpy()
    notes = " ".join(getattr(caught.value, "__notes__", []))
    assert f"{__file__}:{line}" in str(caught.value) + notes
    check(x + 1, GRID + 1)


def _line_of(array: mm.Array) -> int:
    assert array.node.line is not None
    return array.node.line[1]


def test_array_of_another_pool_is_refused(pool: Pool) -> None:
    x = mm.asarray(GRID)
    with current("shared", 2), pytest.raises(MagmathError, match="another pool"):
        (x + 1).numpy()
    check(x + 1, GRID + 1)


def test_layouts_print_the_workers_that_are_not_all() -> None:
    with current("shared", 4):
        lies = [mm.ones((8, 2), layout=layout).layout for layout in (
            mm.Layout.on(0), mm.Layout.split(0).over(mm.Mesh((2,))),
            mm.Layout.split(0).over(mm.Mesh((3,))), mm.Layout.split(0), mm.Layout.replicated(),
        )]  # fmt: skip
        assert [str(layout) for layout in lies] == [
            "R on 0", "S(0) on 0,1", "S(0) on 0-2", "S(0)", "R",
        ]  # fmt: skip
    with current("inline"):
        assert str(mm.ones(3).layout) == "R"


def test_two_arrays_of_one_node_are_evaluated_one_after_the_other() -> None:
    x = mm.ones((3,)) + 1
    same = mm.reshape(x, (3,))
    mm.evaluate(x)
    assert same.tolist() == x.tolist() == [2.0, 2.0, 2.0]


def test_a_shape_in_the_place_of_a_number_is_told() -> None:
    with pytest.raises(ShapeError, match=r"normal: mean must be a number, was given \(20, 10\)"):
        mm.random.normal((20, 10))
    with pytest.raises(ShapeError, match=r"uniform: high must be a number.*shape=…"):
        mm.random.uniform(0, (3,))
    assert mm.random.uniform(np.float32(1), 2, (3,)).shape == (3,)


def test_an_array_that_is_held_stays_where_nodes_share_their_operands() -> None:
    kept = mm.asarray(np.arange(9.0)).node
    first = apply(OPERATIONS["tanh"], kept)
    second = first.replace(first.inputs)
    assert kept in held_elsewhere([kept, first, second])
