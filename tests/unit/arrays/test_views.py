"""Views: programs that write through them give NumPy's results."""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from magmath.errors import MagmathError

Program = Callable[[Any, Any], Any]


pytestmark = pytest.mark.usefixtures("every_pool")


# random programs ------------------------------------------------------------------------------


def _keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """Return a basic key, in which a dimension may be cut, picked, or preceded by a new one."""
    key: list[Any] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        if draw(st.integers(0, 5)) == 0:
            key.append(None)
        if extent and draw(st.integers(0, 3)) == 0:
            key.append(draw(st.integers(-extent, extent - 1)))
        else:
            bounds = st.none() | st.integers(-extent - 1, extent + 1)
            step = draw(st.sampled_from([None, 1, 2, -1, -2]))
            key.append(slice(draw(bounds), draw(bounds), step))
    if draw(st.booleans()):
        key.append(Ellipsis)
    return tuple(key)


def _view(draw: st.DrawFn, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """Return a function that makes a view, or a copy where NumPy makes one, of such an array."""
    size = int(numpy.prod(shape))
    kinds = ["key", "key", "key", "T", "reshape", "swap", "flip", "stretch", "copy"]
    kinds += ["diagonal", "einsum"] if len(shape) > 1 else []
    kinds += ["functions"] if len(shape) > 1 and size else []
    kind = draw(st.sampled_from(kinds))
    if kind == "key":
        key = _keys(draw, shape)
        return lambda x: x[key]
    if kind == "T":
        return lambda x: x.T
    if kind == "reshape":
        rows = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0] or [0]))
        new = draw(st.sampled_from([(size,), (rows, size // max(rows, 1))]))
        return lambda x: x.reshape(new)
    if kind == "swap" and len(shape) > 1:
        return lambda x: x.swapaxes(0, -1)
    if kind == "flip":
        return lambda x: x[(slice(None, None, -1),) * len(shape)]
    if kind == "stretch":
        return lambda x: numpy.broadcast_to(x, (2, *x.shape))
    if kind == "diagonal":
        offset, last = draw(st.integers(-2, 2)), draw(st.sampled_from([-1, 1]))
        return lambda x: numpy.diagonal(x, offset, 0, last)
    if kind == "einsum":
        rest = "abcdefghjkmnopqr"[: len(shape) - 2]
        equal = [f"i{rest}i->{rest}i", f"i{rest}i->i{rest}"] if shape[0] == shape[-1] else []
        text = draw(st.sampled_from([f"i{rest}l->l{rest}i", f"i{rest}l->i{rest}l", *equal]))
        return lambda x: numpy.einsum(text, x)
    if kind == "functions":
        return draw(st.sampled_from(FUNCTIONS))
    return lambda x: x.copy()


FUNCTIONS: list[Callable[[Any], Any]] = [
    numpy.ravel, numpy.squeeze, numpy.rot90, numpy.flip, numpy.atleast_3d, numpy.matrix_transpose,
    lambda x: numpy.rot90(x, 2), lambda x: numpy.moveaxis(x, 0, -1),
    lambda x: numpy.expand_dims(x, (0, 2)), lambda x: numpy.array_split(x, 2, axis=1)[0],
    lambda x: numpy.rollaxis(x, -1), lambda x: numpy.unstack(x)[-1], lambda x: x.real, numpy.fliplr,
    numpy.atleast_1d, lambda x: numpy.meshgrid(x[(0,) * (x.ndim - 1)], copy=False, sparse=True)[0],
    lambda x: numpy.asarray(x) if isinstance(x, numpy.ndarray) else mm.asarray(x),
]  # fmt: skip
"""Functions that return views of arrays of two and more dimensions."""


def _write(draw: st.DrawFn, shape: tuple[int, ...], others: list[int]) -> Any:
    """Return a function of an array and a list of arrays that writes into the array."""
    number = float(draw(st.integers(-9, 9)))
    kind = draw(st.sampled_from(["add", "key", "out", "fill", "array", "augmented"]))
    key = _keys(draw, shape)
    source = draw(st.sampled_from(others)) if others else None

    def write(np: Any, x: Any, arrays: list[Any]) -> None:
        if kind == "add":
            x += number
        elif kind == "out" and x.shape:
            np.multiply(x, 0.5, out=x)
        elif kind == "fill":
            x.fill(number)
        elif kind == "array" and source is not None:
            x[...] = arrays[source]
        elif kind == "augmented":
            x[key] += number
        else:
            x[key] = number

    return write


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Any]]:
    """Draw the shape of an array, and steps that make views of it and write into them."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    arrays = [numpy.zeros(shape)]
    steps: list[Any] = []
    for _ in range(draw(st.integers(2, 12))):
        position = draw(st.integers(0, len(arrays) - 1))
        if draw(st.booleans()):
            view = _view(draw, arrays[position].shape)
            made = view(arrays[position])
            if not isinstance(made, numpy.ndarray):
                continue  # a number
            steps.append(("view", position, view))
            arrays.append(made)
        else:
            shaped = [i for i, x in enumerate(arrays) if x.shape == arrays[position].shape]
            steps.append(("write", position, _write(draw, arrays[position].shape, shaped)))
        if draw(st.integers(0, 4)) == 0:
            steps.append(("read", position, None))
    return shape, steps


@given(programs())
@settings(max_examples=80)
def test_random_programs(program: tuple[tuple[int, ...], list[Any]]) -> None:
    shape, steps = program
    first = numpy.arange(float(numpy.prod(shape))).reshape(shape)
    ours: list[Any] = [mm.asarray(first, copy=True)]
    expected: list[Any] = [first]
    for kind, position, action in steps:
        if kind == "view":
            ours.append(action(ours[position]))
            expected.append(action(expected[position]))
        elif kind == "write":
            if not expected[position].flags.writeable:
                with pytest.raises(ValueError, match="read"):
                    action(numpy, expected[position], expected)
                with pytest.raises(mm.errors.ReadOnlyError, match="only read.*copy it first"):
                    action(mm, ours[position], ours)
                continue
            action(mm, ours[position], ours)
            action(numpy, expected[position], expected)
        else:
            numpy.testing.assert_array_equal(ours[position], expected[position])
    for x, y in zip(ours, expected, strict=True):
        numpy.testing.assert_array_equal(x, y)


# ordinary code --------------------------------------------------------------------------------


def rows_of_a_loop(np: Any, y: Any) -> Any:
    for row in y:
        row *= 2
    return y


def elimination(np: Any, y: Any) -> Any:
    y[:, :4] += 9 * np.eye(4)
    for k in range(3):
        pivot = y[k]
        for row in y[k + 1 :]:
            row -= row[k] / pivot[k] * pivot
    return y


def arguments_without_a_name(np: Any, y: Any) -> Any:
    np.multiply(y[1], 2, out=y[0])
    y[2].fill(3)
    y[:, 1][::-1].sort()
    np.copyto(y[3], y[0])
    np.put(y[0], [1, 2], 5)
    np.putmask(y[1], y[1] > 14, 0)
    np.add.at(y[3], [0, 0], 1)
    np.fill_diagonal(y[1:], 7)
    y[0][1] = 4
    y[2][1:3][0] = 9
    y.T[5] = 1
    y.flat[3] = 77
    y[2].flat = [8, 9]
    y.T[:2].flat = np.asarray([1.5, 2.5, 3.5])
    return y


def neighbours(np: Any, y: Any) -> Any:
    even, odd = y.ravel()[::2], y.ravel()[1::2]
    for _ in range(3):
        even += odd
        odd *= 0.5
    return y, even, odd


def halves(np: Any, y: Any) -> Any:
    upper, lower = np.split(y, 2)
    upper -= 1
    lower[:] = upper
    return y, upper, lower


def numbers_are_copies(np: Any, y: Any) -> Any:
    total = y[0, 0]
    total += 5
    picked = y[[0, 1]]
    picked[0] = 9
    flat, turned = y.flatten(), y.T.reshape(-1)
    flat += 1
    turned += 1
    return y, total, picked, flat, turned


def names_that_change(np: Any, y: Any) -> Any:
    x = y[1:]
    x = x[1:]
    x = x[:, 1:]
    x *= 3
    y = y[::-1]
    y[0] = 0
    return x, y


def stencil(np: Any, y: Any) -> Any:
    u = y.copy()
    inner, left, right = u[:, 1:-1], u[:, :-2], u[:, 2:]
    for _ in range(4):
        inner += 0.1 * (left - 2 * inner + right)
    return u, inner


def new_axes_and_turns(np: Any, y: Any) -> Any:
    column = y[:, None]
    column[1, 0, 2] = 8
    np.flip(y, 1)[0, 0] = 3
    np.moveaxis(y, 0, 1)[2, 2] = -1
    np.expand_dims(y, 0)[0, 3] = -2
    np.rot90(y)[0, 0] = -3
    np.atleast_3d(y)[1, 1] = -4
    np.hsplit(y, 3)[1][0] = -5
    return y, column


def diagonals(np: Any, y: Any) -> Any:
    square = y[:, :4]
    along, below = np.einsum("ii->i", square), np.diagonal(y, -1)
    along += 100
    y[1, 0] = -8
    square.T[0] *= 2
    return y, along, below, np.diag(square)


def stretched(np: Any, y: Any) -> Any:
    wide = np.broadcast_to(y[:, :1], (4, 3))
    column, row = np.broadcast_arrays(y[:, :1], y[:1])
    tall, flat = np.meshgrid(y[0], y[:, 0], copy=False)
    kept, sparse = np.meshgrid(y[0], y[:, 0])[0], np.meshgrid(y[0], copy=False, sparse=True)[0]
    y[0] = 50
    sparse += 1
    for x in (np.repeat(y, 2), np.tile(y, 2), np.resize(y, (2, 2)), np.repeat(y[0, :1], 3)):
        x += 1
    return y, wide, column, row, tall, flat, kept, sparse


PROGRAMS: list[Program] = [
    rows_of_a_loop,
    elimination,
    arguments_without_a_name,
    neighbours,
    halves,
    numbers_are_copies,
    names_that_change,
    stencil,
    new_axes_and_turns,
    diagonals,
    stretched,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda x: x.__name__)
def test_programs(program: Program) -> None:
    values = numpy.arange(24.0).reshape(4, 6)
    given_array, given_values = mm.asarray(values, copy=True), values.copy()
    ours, expected = program(mm, given_array), program(numpy, given_values)
    if not isinstance(expected, tuple):
        ours, expected = (ours,), (expected,)
    for x, y in zip((given_array, *ours), (given_values, *expected), strict=True):
        numpy.testing.assert_allclose(x, y, rtol=1e-14)


def test_parts_of_complex_numbers() -> None:
    values = numpy.arange(6) * (1 + 2j)
    x = mm.asarray(values, copy=True)
    for z in (x, values):
        z.real[2] = 9
        z[1:3].imag = 4
        z.imag *= 2
        z[::2].real[:] = z.imag[::2]
    numpy.testing.assert_array_equal(x, values)


# what they are ----------------------------------------------------------------------------------


def test_bases_and_shared_memory() -> None:
    x = mm.arange(12.0).reshape(3, 4).copy()
    row, column, other = x[0], x[:, 1], x[1:]
    assert row.base is x
    assert x.base is None
    assert mm.shares_memory(row, column)
    assert not mm.shares_memory(row, other)
    assert not mm.shares_memory(row, x.copy())
    assert numpy.may_share_memory(x, other)
    assert not numpy.shares_memory(x[::2, ::2], x[:, 1::2])


def test_views_that_are_only_read() -> None:
    x = mm.arange(9.0).reshape(3, 3).copy()
    x_diagonal, wide = x.diagonal(), mm.broadcast_to(x, (2, 3, 3))
    for view in (x_diagonal, wide, wide[0], wide.T[1:], mm.diag(x), mm.linalg.diagonal(x)):
        assert view.base is x
        before = view.numpy()
        for write in (
            lambda y: y.fill(1), lambda y: y.__iadd__(1), lambda y: y.__setitem__(0, 1),
            lambda y: mm.multiply(y, 2, out=y), lambda y: y.sort(),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=r"only read, .*; copy it first: x = x.copy\(\)"):
                write(view)
        numpy.testing.assert_array_equal(view, before)
        copied = view.copy()
        copied += 1
    assert x.tolist() == numpy.arange(9.0).reshape(3, 3).tolist()
    x = x * 2
    with pytest.raises(ValueError, match="only read"):
        wide += 1  # also if its base has no name any more
    assert mm.shares_memory(x_diagonal, wide)
    same = mm.broadcast_arrays(x, x * 1.0)
    same[0][0] = 7
    assert x[0].tolist() == [7, 7, 7]


def test_reshape_with_and_without_a_copy() -> None:
    x = mm.arange(12.0).reshape(3, 4).copy()
    assert x.reshape(4, 3, copy=False).base is x
    assert x.reshape(4, 3, copy=True).base is None
    assert x[1:].reshape(-1).base is x
    assert x.T.reshape(-1).base is None
    with pytest.raises(ValueError, match="cannot have the shape .* without a copy"):
        x.T.reshape(-1, copy=False)


CUTS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x[1:],
    lambda x: x[:, 1:3],
    lambda x: x[2],
    lambda x: x.T[::2],
    lambda x: x.real,
    lambda x: x.reshape(-1)[3:11],
    lambda x: x[1:].diagonal(1),
    lambda x: x[:3, :3].diagonal(),
    lambda x: (mm if isinstance(x, mm.Array) else numpy).broadcast_to(x[1:2], (3, 4)),
    lambda x: (mm if isinstance(x, mm.Array) else numpy).broadcast_to(x[:, 1:2], (2, 4, 4)),
)
"""The last ones are only read, but follow what is written."""


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.integers(0, len(CUTS) - 1), min_size=2, max_size=5, unique=True),
    writes=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=6),
)
def test_views_whose_base_has_no_name(cuts: list[int], writes: list[tuple[int, bool]]) -> None:
    """Overlapping views are written as in NumPy after their array is gone."""
    values = numpy.arange(16.0).reshape(4, 4) * (1 + 1j)
    result = []
    for x in (mm.asarray(values), values.copy()):
        views = {cut: CUTS[cut](x) for cut in cuts}
        del x
        for cut, whole in writes:
            if cut in views and whole:
                views[cut] += 1.5
            elif cut in views:
                views[cut][1:] = cut + views[cut][:-1]
        result.append([numpy.asarray(view) for view in views.values()])
    for own, counterpart in zip(*result, strict=True):
        numpy.testing.assert_array_equal(own, counterpart)


VIEWS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x.T,
    lambda x: x[:, ::-1],
    lambda x: x[::-1],
    lambda x: x[:, :2],
    lambda x: x[:, 1:],
    lambda x: x[1:],
    lambda x: x.reshape(x.shape[1], x.shape[0]),
)


@settings(max_examples=70, deadline=None)
@given(
    views=st.lists(st.sampled_from(range(len(VIEWS))), min_size=1, max_size=3),
    writes=st.lists(st.sampled_from(["all", "element", "none"]), min_size=1, max_size=3),
)
def test_arrays_without_a_named_base_are_strided_as_in_numpy(
    views: list[int], writes: list[str]
) -> None:
    """Whether `ravel` shares the elements of an array depends on how the array was cut, also after
    writes into it."""

    def program(x: Any) -> list[Any]:
        for view in views:
            if min(x.shape) > 1:
                x = VIEWS[view](x)
            for write in writes:
                if write == "all":
                    x -= x.mean(0)
                elif write == "element":
                    x[0, -1] += 3
        flat = x.ravel()
        flat *= 10
        turned = x.T.reshape(-1)
        turned += 1
        return [x, flat, turned]

    values = numpy.arange(12.0).reshape(3, 4)
    for actual, expected in zip(program(mm.asarray(values)), program(values.copy()), strict=True):
        numpy.testing.assert_array_equal(actual, expected)


def test_the_longest_view_takes_the_place_of_its_base() -> None:
    x = mm.arange(6.0)
    x = x[1:]
    part = x[:2]
    part += 10
    assert x.tolist() == [11, 12, 3, 4, 5]


def test_parts_of_variables_are_not_written_through() -> None:
    v = mm.variable("v", mm.zeros((2, 3)))
    row = v[0]
    with pytest.raises(MagmathError, match=r"part of a variable; write v\[i\] = …"):
        row += 1
    v[0] += 1
    copied = v[0].copy()
    copied += 1
    assert v.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert copied.tolist() == [2, 2, 2]


# functions --------------------------------------------------------------------------------------


def test_compiled_functions_write_through_views() -> None:
    @mm.compile
    def doubled(x: mm.Array) -> mm.Array:
        row = x[0]
        row *= 2
        for other in x[1:]:
            other += row
        return x.sum()

    x = mm.ones((3, 2))
    for _ in range(2):
        doubled(x)
    assert x.tolist() == [[4, 4], [7, 7], [7, 7]]
    whole = mm.ones((2, 3, 2))
    assert float(doubled(whole[1])) == 16
    assert whole.tolist() == [[[1, 1]] * 3, [[2, 2], [3, 3], [3, 3]]]


def test_gradients_through_written_views() -> None:
    def loss(x: mm.Array) -> mm.Array:
        y = x * 1.0
        row = y[0]
        row *= x[1]
        return (y * y).sum()

    x = mm.asarray([[1.0, 2.0], [3.0, 4.0]])
    slope = mm.grad(loss)(x)
    assert slope.tolist() == [[18, 64], [2 * 3 + 2 * 3, 2 * 4 + 4 * 8]]


def test_a_failed_write_leaves_all_views_as_they_were() -> None:
    x = mm.arange(6.0).reshape(2, 3).copy()
    row = x[0]
    with pytest.raises(MagmathError):
        row += mm.ones(4)
    with pytest.raises(IndexError):
        row[7] = 1
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert row.tolist() == [0, 1, 2]


def test_explicit_calls_of_operators_write_into_views() -> None:
    """They pass operands with one reference less than statements do, which must not look like
    operands without a name."""
    y = mm.zeros((3, 4))
    row = y[1]
    row.__iadd__(1.0)
    operator.iadd(row, 1.0)
    assert y[1].tolist() == [2.0] * 4
    target = mm.zeros((2, 4))
    target.__setitem__(0, row)
    row += 1
    assert y[1].tolist() == [3.0] * 4
    assert target.tolist() == [[2.0] * 4, [0.0] * 4]
    operator.setitem(target, 1, row)
    row += 1
    assert y[1].tolist() == [4.0] * 4
    write = lambda: y.__setitem__((0, 0), 5.0)  # noqa: E731
    write()
    assert y[0].tolist() == [5.0, 0.0, 0.0, 0.0]
    with pytest.raises(MagmathError, match="no name refers to the array"):
        mm.zeros(3)[0] = 1.0


def test_equal_views_of_an_array_without_a_name() -> None:
    """One of them takes the place of the array; writes through either are seen by both."""
    for make in (lambda a: (a.T, a.T), lambda a: (a[1:], a[1:]), lambda a: (a.T, a.swapaxes(0, 1))):
        for i in (0, 1):
            x = numpy.zeros((3, 2))
            views, known = make(mm.asarray(x)), make(x)
            for v in (views, known):
                v[i][0] = 7.0
                v[i][...] += 1.0
            for one, other in zip(views, known, strict=True):
                assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    "cut",
    [
        lambda a: a.T,
        lambda a: a[:, ::2],
        lambda a: a[1].T,
        lambda a: a.transpose(2, 0, 1)[1:],
    ],
)
def test_flat_of_a_view_that_is_not_contiguous_is_written(cut: Any) -> None:
    values = numpy.arange(24.0).reshape(2, 3, 4)
    arrays = values.copy(), mm.asarray(values)
    for x in arrays:
        view = cut(x)
        view.flat[1] = 70.0
        view.flat[2:4] = [5.0, 6.0]
        x.flat[0] = -1.0
    numpy.testing.assert_array_equal(arrays[1].numpy(), arrays[0])
    numpy.testing.assert_array_equal(cut(arrays[1]).numpy(), cut(arrays[0]))


# views that are read again ----------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99)), max_size=12), st.integers(0, 11))
def test_writes_with_many_views(steps: list[tuple[int, int]], deletion: int) -> None:
    """More than are compared in each write; the array itself loses its name on the way."""
    actual, expected = [
        {"base": xp.reshape(xp.arange(200.0), (100, 2)) * 1} for xp in (mm, numpy)
    ]  # fmt: skip
    for x in (actual, expected):
        x |= {"rows": [x["base"][i] for i in range(100)], "columns": x["base"].T}
    for number, (kind, i) in enumerate(steps):
        for x in (actual, expected):
            if number == deletion:
                x.pop("base")
            match kind:
                case 0 if "base" in x:
                    x["base"][i] = 3.0
                case 1:
                    x["rows"][i] += 1
                case 2:
                    x["columns"][0, i:] *= 2
                case 3:
                    x["rows"][i][1] = x["rows"][99 - i][0]
                case _:
                    x[f"sum {number}"] = x["rows"][i].sum() + x["columns"][1].sum()
    for name in actual:
        for a, b in (
            zip(actual[name], expected[name], strict=True)
            if name == "rows"
            else [(actual[name], expected[name])]
        ):
            numpy.testing.assert_array_equal(numpy.asarray(a), b, err_msg=name)


def test_a_write_does_not_visit_views_that_nothing_has_read() -> None:
    def calls_of_a_write(views: int) -> int:
        base = mm.zeros((300, 2))
        rows = [base[i] for i in range(views)]
        for _ in range(3):
            base[5] = 1.0
        count = 0

        def profile(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(profile)
        try:
            base[5] = 2.0
        finally:
            sys.setprofile(None)
        assert float(rows[5][0]) == 2.0
        return count

    few, many = calls_of_a_write(10), calls_of_a_write(300)
    assert many <= few + 20


def test_a_view_keeps_its_base_alive_until_it_is_read_again() -> None:
    base = mm.zeros((4, 2))
    view, weak = base[1], ref(base)
    base += 1
    del base
    gc.collect()
    assert weak() is not None
    assert view.tolist() == [1.0, 1.0]
    gc.collect()
    assert weak() is None
    view += 1
    assert view.tolist() == [2.0, 2.0]


def test_a_compiled_function_reads_and_writes_arrays_whose_views_are_to_be_read_again() -> None:
    base = mm.zeros((4, 2))
    rows = list(base)
    other = base[2:]
    base += 1

    @mm.compile
    def total(x: Any) -> Any:
        return (other * x).sum()

    assert float(total(mm.ones(2))) == 4.0
    base += 1
    assert float(total(mm.ones(2))) == 8.0

    @mm.compile
    def write(x: Any) -> Any:
        x[1] += 5
        return x.sum()

    assert float(write(base)) == 26.0
    assert rows[1].tolist() == [7.0, 7.0]
    assert rows[0].tolist() == [2.0, 2.0]

    @mm.compile
    def write_outside(x: Any) -> Any:
        base[0] = x
        return x

    base += 1
    with pytest.raises(MagmathError):
        write_outside(mm.ones(2))
    assert [row.tolist() for row in rows] == base.tolist() == [[3, 3], [8, 8], [3, 3], [3, 3]]


def test_gradients_of_views_that_are_read_again() -> None:
    weights = mm.asarray([1.0, 2.0, 3.0])

    def loss(x: Any) -> Any:
        parts = mm.zeros((3, 3)) * 1
        rows = list(parts)
        parts[0] = x
        parts[1] = x * rows[0]
        return (rows[1] * weights).sum() + rows[0][2]

    gradient = mm.grad(loss)(mm.asarray([1.0, 2.0, 3.0]))
    assert gradient.tolist() == [2.0, 8.0, 19.0]


def test_gradients_of_a_view_after_its_variable_was_assigned() -> None:
    v = mm.variable("v", [1.0, 1.0, 1.0])
    y = mm.zeros((2, 3))
    row = y[0]
    y[:] = v * 2
    row.numpy()
    for value in (3, 4):
        y[1] = value
        (y if value == 3 else row).numpy()
    v.assign(v * 3)
    assert mm.grad((row * row).sum(), v).tolist() == [8.0, 8.0, 8.0]


def test_variables_refer_to_their_nodes() -> None:
    for v in (mm.variable("v", [1.0]), mm.nn.Parameter([1.0])):
        assert not v.is_stale
        assert v.refers_to(v.node)
