"""Reading and writing parts of arrays: all of NumPy's indices, in any layout."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from engines import NOTHING_IS_SMALL, current
from magmath.arrays.indexing import subscripts
from magmath.core.index_set import IndexSet
from magmath.engine import session
from magmath.errors import DTypeError, ShapeError, TracingError
from magmath.ops.indexing.local_index import Locator
from operation_bodies import leaf, placements

KINDS = [("inline", 1), ("shared", 3), ("messages", 2)]
RANDOM = np.random.default_rng(1)
SHAPES = [(4, 5, 3), (6,), (2, 3), (3, 1, 4), (5, 0, 2), ()]


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...], arrays: bool = True) -> Any:
    """Anything that an array of this shape can be indexed with."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    common = draw(st.sampled_from([(), (3,), (2, 2), (0,), (2, 1)]))
    items: list[Any] = []
    axis = 0
    while axis < len(shape):
        extent = shape[axis]
        roles = ["slice", "slice", "full", "new"]
        roles += ["integer", "scalar"] * (extent > 0) + ["array", "mask", "truth"] * arrays
        role = draw(st.sampled_from(roles))
        if role == "new":
            items.append(None)
            continue
        if role == "truth":
            items.append(np.bool_(draw(st.booleans())))
            continue
        if role == "mask":
            dims = draw(st.integers(1, len(shape) - axis))
            items.append(random.random(shape[axis : axis + dims]) < 0.4)
            axis += dims
            if len(common) != 1 or common == (0,):
                arrays = False  # another array would not broadcast with the mask's positions
            continue
        items.append(_item(draw, random, role, extent, common))
        axis += 1
    return _shortened(draw, items)


def _item(draw: Any, random: Any, role: str, extent: int, common: tuple[int, ...]) -> Any:
    if role == "full":
        return slice(None)
    if role == "slice":
        ends = st.none() | st.integers(-extent - 1, extent + 1)
        return slice(draw(ends), draw(ends), draw(st.sampled_from([None, 1, 2, -1, -2])))
    if role == "integer":
        return draw(st.integers(-extent, extent - 1))
    shape = () if role == "scalar" else common if extent else (0,)
    return random.integers(-extent, max(extent, 1), shape)


def _shortened(draw: Any, items: list[Any]) -> Any:
    """Full slices at the end left out, some anywhere written as `...`."""
    full = [i for i, item in enumerate(items) if isinstance(item, slice) and item == slice(None)]
    if full and draw(st.booleans()):
        items[draw(st.sampled_from(full))] = Ellipsis
    while items and isinstance(items[-1], slice) and items[-1] == slice(None):
        if draw(st.booleans()):
            break
        items.pop()
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


def placed(data: st.DataObject, values: Any) -> mm.Array:
    """Values as an array in any layout."""
    tensor = torch.from_numpy(np.array(values))
    engine = session.engine()
    return mm.Array(leaf(engine, tensor, data.draw(placements(tensor, engine, partial=True))))


def given_to(data: st.DataObject, key: Any) -> Any:
    """The key with its arrays as NumPy's, as lists, or as arrays in any layout."""
    items = key if isinstance(key, tuple) else (key,)
    result = tuple(_given(data, item) for item in items)
    return result if isinstance(key, tuple) else result[0]


def _given(data: st.DataObject, item: Any) -> Any:
    if not isinstance(item, np.ndarray):
        return item
    ways = ["numpy", "placed"] + ["list"] * (item.ndim > 0 and item.size > 0)
    way = data.draw(st.sampled_from(ways))
    return {"numpy": lambda: item, "list": item.tolist, "placed": lambda: placed(data, item)}[way]()


def numpy_takes(values: Any, key: Any) -> bool:
    try:
        values[key]
    except IndexError:  # positions of masks that do not broadcast
        return False
    return True


def check(actual: mm.Array, expected: Any) -> None:
    assert actual.shape == np.shape(expected)
    np.testing.assert_array_equal(actual.numpy(), expected)


@given(data=st.data(), shape=st.sampled_from(SHAPES), kind=st.sampled_from(KINDS))
def test_reading_is_numpys(data: st.DataObject, shape: Any, kind: tuple[str, int]) -> None:
    values, key = np.arange(float(np.prod(shape))).reshape(shape), data.draw(keys(shape))
    with current(*kind):
        x = placed(data, values)
        if numpy_takes(values, key):
            check(x[given_to(data, key)], values[key])


class Foreign:
    """An array of a library that magmath does not know, such as pandas."""

    def __init__(self, values: list[int]) -> None:
        self._values = np.asarray(values, dtype=np.int64)
        self.ndim = 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self._values


SEQUENCES: dict[str, Callable[[list[int]], Any]] = {
    "range": lambda values: range(values[0], values[0] + 1) if values else range(0),
    "deque": deque,
    "array": lambda values: array("q", values),
    "torch": lambda values: torch.tensor(values, dtype=torch.int64),
    "mask of torch": lambda values: torch.tensor([i in values for i in range(4)]),
    "foreign": Foreign,
}


@pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind[0])
@pytest.mark.parametrize("values", [[0], [2, 1], [3, 0, 1], []])
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_and_arrays_of_other_libraries_are_indices(
    name: str, values: list[int], kind: tuple[str, int]
) -> None:
    x, one = np.arange(12.0).reshape(4, 3), SEQUENCES[name](values)
    same = np.asarray(one, dtype=bool if "mask" in name else int)  # NumPy takes no empty deque
    with current(*kind):
        for key, like in ((one, same), ((one, 1), (same, 1)), ((slice(1, 3), range(0, 3, 2)),) * 2):
            np.testing.assert_array_equal(mm.asarray(x)[key].numpy(), x[like])
            actual, expected = mm.asarray(x, copy=True), x.copy()
            actual[key] += 10
            expected[like] += 10
            np.testing.assert_array_equal(actual.numpy(), expected)


def test_read_only_arrays_serve_as_well() -> None:
    """Those that the user gives, and those of index sets in pieces of different lengths: torch
    warns of sharing either's memory, and a warning fails a test."""
    values, rows = np.arange(12.0).reshape(6, 2), np.array([4, 0, 3, 5])
    values.flags.writeable = rows.flags.writeable = False
    uneven = IndexSet.from_segments([0, 2, 5], [1, 4, 6])
    assert not any(ends.flags.writeable for ends in uneven.segments())
    local, here = Locator(0, 6, uneven, torch.device("cpu"))(torch.from_numpy(rows.copy()))
    assert here is not None
    np.testing.assert_array_equal(here, [False, True, True, True])
    np.testing.assert_array_equal(uneven.indices()[local[here]], rows[1:])
    with current("shared", 3):
        x = mm.asarray(values)
        check(x[rows], values[rows])
        x[rows] = np.broadcast_to(7.0, (4, 2))
        assert (float(values[0, 0]), float(x[0, 0])) == (0.0, 7.0)


@given(data=st.data(), shape=st.sampled_from(SHAPES), kind=st.sampled_from(KINDS))
def test_writing_is_numpys(data: st.DataObject, shape: Any, kind: tuple[str, int]) -> None:
    values, key = np.arange(float(np.prod(shape))).reshape(shape), data.draw(keys(shape))
    if not numpy_takes(values, key):
        return
    part = values[key].shape
    start = data.draw(st.integers(0, len(part)))
    new = [1 if data.draw(st.integers(0, 3)) == 0 else n for n in part[start:]]
    written = RANDOM.uniform(100, 200, new)
    expected = values.copy()
    expected[key] = written
    with current(*kind):
        x = placed(data, values)
        other = x + 0
        x[given_to(data, key)] = placed(data, written) if new else float(written)
        check(x, expected)
        check(other, values)


@given(data=st.data(), kind=st.sampled_from(KINDS[1:]))
def test_slices_of_large_arrays_lie_where_they_lay(
    data: st.DataObject, kind: tuple[str, int]
) -> None:
    shape = (6, 5)
    values, key = np.arange(30.0).reshape(shape), data.draw(keys(shape, arrays=False))
    with current(*kind), pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscripts, "MAX_BYTES_WITH_WORKERS", 0)
        x = placed(data, values)
        check(x[given_to(data, key)], values[key])
        expected = values.copy()
        expected[key] = -1.0
        x[given_to(data, key)] = -1.0
        check(x, expected)


@given(data=st.data(), shape=st.sampled_from(SHAPES[:4]), kind=st.sampled_from(KINDS))
def test_gradients_of_reading_and_writing(
    data: st.DataObject, shape: Any, kind: tuple[str, int]
) -> None:
    """Both are linear: the cotangents go where the elements came from."""
    values, key = RANDOM.uniform(size=shape), data.draw(keys(shape))
    if not numpy_takes(values, key):
        return
    weights, whole = RANDOM.uniform(size=np.shape(values[key])), RANDOM.uniform(size=shape)
    read = np.zeros(shape)
    np.add.at(read, key, weights)
    number = np.full(shape, -1)
    number[key] = np.arange(weights.size).reshape(weights.shape)
    kept = np.where(number < 0, whole, 0)
    written = np.zeros(weights.size)
    np.add.at(written, number[number >= 0], whole[number >= 0])
    with current(*kind):
        x, v = placed(data, values), placed(data, weights)
        check(mm.grad(mm.sum(x[given_to(data, key)] * mm.asarray(weights)), x), read)
        y = x + 0
        y[given_to(data, key)] = v
        by_x, by_v = mm.grad(mm.sum(y * mm.asarray(whole)), [x, v])
        check(by_x, kept)
        check(by_v, written.reshape(weights.shape))


@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_taking_along_an_axis_is_numpys(data: st.DataObject, kind: tuple[str, int]) -> None:
    shape = (3, 4, 2)
    axis = data.draw(st.integers(-3, 2))
    values, places = (
        RANDOM.uniform(size=shape),
        [1 if data.draw(st.booleans()) else n for n in shape],
    )
    places[axis] = data.draw(st.integers(0, 3))
    index = RANDOM.integers(-shape[axis], shape[axis], places)
    with current(*kind):
        result = mm.take_along_axis(placed(data, values), placed(data, index), axis=axis)
        check(result, np.take_along_axis(values, index, axis))


def test_a_mask_is_applied_where_the_array_is_stored() -> None:
    with current("messages", 2) as pool:
        x = mm.asarray(np.arange(100.0), layout=mm.Layout.split(0))
        picked = x[x >= 30]
        program = session.engine().compile(session.engine().pending_graph(_graph(picked))).program
        assert [i for i in program.instructions if type(i).__name__ == "Move"] == []
        assert str(picked.layout) == "S(0: 20+50)"
        check(picked, np.arange(30.0, 100.0))
        assert pool.workers == 2


def _graph(array: mm.Array) -> Any:
    from magmath.graph import Graph

    return Graph((array.node,))


def test_positions_are_no_part_of_the_program() -> None:
    with current("inline"):
        x = mm.asarray(np.arange(24.0).reshape(6, 4))
        float(x[0, 1])
        x[2:4].numpy()
        programs = session.engine()._programs.built
        assert [float(x[i, -j]) for i in range(6) for j in range(1, 4)] == [
            4.0 * i + 4 - j for i in range(6) for j in range(1, 4)
        ]
        for i in range(5):
            check(x[i : i + 2], np.arange(24.0).reshape(6, 4)[i : i + 2])
        assert session.engine()._programs.built == programs


def test_a_number_given_to_a_compiled_function_is_an_index() -> None:
    @mm.compile
    def element(x: mm.Array, i: int) -> mm.Array:
        return x[i, ::2]

    x = mm.asarray(np.arange(12).reshape(3, 4))
    for i in (0, 2, -1):
        check(element(x, i), np.arange(12).reshape(3, 4)[i, ::2])
    with pytest.raises(IndexError, match=r"index 3 is out of range for extent 3 \(axis 0\)"):
        element(x, 3).numpy()


@pytest.mark.parametrize(
    "function", [lambda x: x[x > 1], lambda x: mm.sum(x) * float(x[0]), lambda x: x[: int(x[1])]]
)
def test_values_are_not_known_while_a_function_is_traced(function: Any) -> None:
    with pytest.raises(TracingError, match="while mm.compile traces a function"):
        mm.compile(function)(mm.asarray([1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (4, r"index 4 is out of range for extent 4 \(axis 0\); indices go from -4 to 3"),
        ((0, -6), r"index -6 is out of range for extent 5 \(axis 1\)"),
        ([0, 7], r"index 7 is out of range for extent 4 \(axis 0\)"),
        ((0, 0, 0, 0), "4 indices for an array of 3 dimensions"),
        ((Ellipsis, Ellipsis), "may occur only once"),
        (1.5, "takes an integer, a slice.*was given float"),
        ([0.5], "was given an array of float64"),
        (np.ones((4, 4), bool), r"mask of shape \(4, 4\) does not fit axes 0 to 1"),
    ],
)  # fmt: skip
def test_indices_that_do_not_fit_are_refused(key: Any, words: str) -> None:
    x = mm.zeros((4, 5, 3))
    with pytest.raises(IndexError, match=words):
        x[key]
    with pytest.raises(IndexError, match=words):
        x[key] = 0


def test_an_index_that_was_computed_is_checked_when_it_is_used() -> None:
    x, i = mm.asarray([1.0, 2.0]), mm.asarray([0, 1])
    for bad in (i + 1, mm.asarray(2), -i - 2):
        with pytest.raises(IndexError, match=r"is out of range for extent 2 \(axis 0\)"):
            x[bad].numpy()


_TYPES = ("bool", "uint8", "uint64", "int8", "int64", "float16", "float32", "float64", "complex64")


@pytest.mark.parametrize("given", _TYPES)
@pytest.mark.parametrize("own", _TYPES)
def test_written_values_are_converted_as_in_place(own: str, given: str) -> None:
    """Elements, slices, positions and masks accept the types that `x += y` accepts, by NumPy's rule
    "same_kind"."""
    values = np.array([3, 1, 2]).astype(given)
    known = np.zeros(6, own)
    writes: list[Any] = [slice(1, 4), [0, 5, 2], np.arange(6) % 2 == 0]
    for key in writes:
        x = mm.asarray(known)
        if np.can_cast(given, own, "same_kind"):
            known[key] = values
            x[key] = mm.asarray(values)
            assert x.dtype.name == own
            np.testing.assert_array_equal(x.numpy(), known)
        else:
            with pytest.raises(DTypeError, match=f"cannot put {given} into an array of {own}"):
                x[key] = values


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (1j, DTypeError, "cannot put complex64 into an array of float32"),
        ([1, 2j, 3], DTypeError, "cannot put complex64 into an array of float32"),
        (mm.zeros((2, 3)), ShapeError, r"values of shape \(2, 3\) do not broadcast to .* \(4, 3\)"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(value: Any, kind: type[Exception], words: str) -> None:
    x = mm.zeros((4, 5, 3))
    with pytest.raises(kind, match=words):
        x[:, 0] = value


def planned(pool: Any) -> None:
    """Compute by programs, however small the arrays."""
    session.engine().small_sizes = NOTHING_IS_SMALL


@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_written_arrays_change_nothing_else(data: st.DataObject, kind: tuple[str, int]) -> None:
    """Whatever is pending, held or evaluated: each array has the values that it would have if
    every write made a copy."""
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    with current(*kind) as pool:
        planned(pool)
        start = random.integers(0, 9, (4, 3)).astype(float)
        arrays, expected = [placed(data, start)], [start]
        for _ in range(data.draw(st.integers(1, 12))):
            i, j = random.integers(len(arrays), size=2)
            row, other = (int(n) for n in random.integers(4, size=2))
            kinds = ["number", "number", "row", "known", "pending", "masked", "read", "evaluate"]
            step = data.draw(st.sampled_from(kinds))
            if step == "number":
                arrays[i][row] = 7.0
                expected[i] = _written(expected[i], row, 7.0)
            elif step == "row":
                arrays[i][row] = arrays[j][other] * 2
                expected[i] = _written(expected[i], row, expected[j][other] * 2)
            elif step == "masked":
                arrays[i][arrays[i] > 8] = 1.0
                expected[i] = np.where(expected[i] > 8, 1.0, expected[i])
            elif step == "known":
                arrays.append(arrays[i] + 0)
                arrays[-1].numpy()
                expected.append(expected[i])
            elif step == "pending":
                arrays.append(arrays[i] + arrays[j])
                expected.append(expected[i] + expected[j])
            elif step == "read":
                assert float(arrays[i][row, 1]) == expected[i][row, 1]
            else:
                check(arrays[i], expected[i])
        for array, values in zip(arrays, expected, strict=True):
            check(array, values)


def _written(values: Any, row: int, value: Any) -> Any:
    values = values.copy()
    values[row] = value
    return values


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_writing_in_a_loop_takes_no_memory_and_plans_once(kind: tuple[str, int]) -> None:
    with current(*kind) as pool:
        planned(pool)
        x = mm.asarray(np.zeros((8, 6)), layout=mm.Layout.split(0))
        for i in range(2):  # the first time makes the programs
            x[i] = 1.0
            x[i, 1:4] = x[i + 1, 2:5] * 2
        programs, known = session.engine()._programs.built, _memory(pool)
        for i in range(7):
            x[i] = float(i)
            x[i, 1:4] = x[i + 1, 2:5] * 2
        assert session.engine()._programs.built == programs
        assert _memory(pool) == known


def _memory(pool: Any) -> Any:
    return [(counters["in_use"], counters["peak"]) for counters in pool.stats()]


def test_gradients_go_through_many_writes() -> None:
    with current("inline") as pool:
        planned(pool)
        x = mm.asarray(np.arange(40.0))
        y = mm.zeros(40, dtype="float64")
        for i in range(40):
            y[i] = x[i] * x[i]
            float(y[i])
        check(mm.grad(mm.sum(y * y), x), 4 * np.arange(40.0) ** 3)


@pytest.mark.parametrize("extent", [6, 100_000])
def test_a_write_that_fails_leaves_the_array_as_it_was(extent: int) -> None:
    values = np.arange(extent)
    x = mm.asarray(values)
    mm.evaluate(x)
    with pytest.raises(
        IndexError, match="take, embedding, or indexing by an array: index 5 is out of range"
    ):
        x[1:3] = mm.take(mm.asarray([1, 2]), mm.asarray([0, 5]))
    np.testing.assert_array_equal(np.asarray(x), values)
    x[1:3] = mm.asarray([7, 8])
    np.testing.assert_array_equal(np.asarray(x)[:4], [0, 7, 8, 3])


@pytest.mark.parametrize("make", [list, np.asarray, mm.asarray], ids=["list", "numpy", "array"])
@pytest.mark.parametrize("indices", [[0, 1_000_000], [-1_000_001], [5, -1, 2_000_000, 3]])
def test_known_indices_are_checked_at_the_line(make: Any, indices: list[int]) -> None:
    """Also if the array is pending, and a gradient could pass through the write."""
    y = mm.ones(1_000_000) * 2
    y += 1
    key = make(indices)
    uses: list[Callable[[], object]] = [
        lambda: y[key],
        lambda: mm.take(y, key),
        lambda: mm.take_along_axis(y, key, 0),
        lambda: y.__setitem__(key, 5),
        lambda: mm.put_along_axis(y, mm.asarray(key), 5, 0),
    ]
    for use in uses:
        with pytest.raises(IndexError, match="is out of range for extent 1000000"):
            use()
    assert float(mm.max(y)) == float(mm.min(y)) == 3


def test_a_variable_shares_no_memory_with_what_it_was_given() -> None:
    v = mm.variable("v", np.arange(4.0, dtype=np.float32))
    given = v * 2
    v[...] = given
    v += 1
    mm.optim.GradientDescent(1.0).minimize(mm.sum(v), [v])
    np.testing.assert_array_equal(np.asarray(given), np.arange(4.0) * 2)
    np.testing.assert_array_equal(np.asarray(v), np.arange(4.0) * 2)


def test_variables_are_written_in_place() -> None:
    v = mm.variable("v", np.arange(4.0))
    y = v * 2
    v[1:3] = 10
    check(v, [0.0, 10.0, 10.0, 3.0])
    check(y, [0.0, 2.0, 4.0, 6.0])


@pytest.mark.parametrize(("kind", "workers"), KINDS)
@given(data=st.data())
def test_one_value_is_written_through_a_mask_that_is_not_counted(
    kind: str, workers: int, data: st.DataObject
) -> None:
    """So also where there are no values yet: in compiled functions, and in gradients."""
    x = RANDOM.normal(size=data.draw(st.sampled_from([(4, 5), (6,), (3, 0)])))
    dims, cut = data.draw(st.integers(1, x.ndim)), data.draw(st.integers(0, 2))
    rest = tuple(range(dims, x.ndim))

    def written(a: Any, xp: Any) -> Any:
        a = a * 1.0
        part = a[cut:] * 1.0
        part[xp.any(part > 0, axis=rest) if rest else part > 0] = 2.0
        a[..., :] = a + xp.sum(part)
        a[a > 1] = xp.sum(part)
        return a

    with current(kind, workers):
        engine = session.engine()
        tensor = torch.from_numpy(x)
        placed = mm.Array(leaf(engine, tensor, data.draw(placements(tensor, engine))))
        result = mm.compile(lambda a: written(a, mm))(placed)
        np.testing.assert_allclose(result.numpy(), written(x, np))
        v = mm.variable("v", mm.asarray(x))
        y = v * 2
        y[y > 0] = 0
        slope = mm.grad(mm.sum(mm.square(y)), v)
        np.testing.assert_allclose(slope.numpy(), np.where(x > 0, 0, 8 * x))


@pytest.mark.parametrize("mask", [(0,), (3, 0), (0, 0), (0, 4)])
def test_a_mask_of_no_elements_picks_nothing(mask: tuple[int, ...]) -> None:
    x = np.arange(12.0).reshape(3, 4)
    a, none = mm.asarray(x), np.zeros(mask, bool)
    np.testing.assert_array_equal(np.asarray(a[mm.asarray(none)]), x[none])
    a[mm.asarray(none)] = 7.0
    np.testing.assert_array_equal(np.asarray(a), x)
    with pytest.raises(IndexError, match="mask of shape"):
        a[mm.zeros((2, *mask[1:]), dtype=mm.bool)]


KEYS_AT: list[Any] = [
    slice(1, 3), (Ellipsis, 1), np.array([0, 0, 1]), (), [0, 0], 0, -1, np.array([True, False, True]),
    (np.array([0, 0, 1]), slice(None)), (slice(None), np.array([1, 1, 0])), (slice(0, 2), [1, 1]),
    (np.array([[0], [0]]), np.array([1, 1])), (Ellipsis, np.array([0, 0])), (np.array([0, 0]), 1),
    ([0, 0], slice(None), [1, 1]), (0, slice(None), [1, 1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS_AT, ids=str)
@pytest.mark.parametrize("kind", ["inline", "shared"])
def test_ufunc_at_with_every_kind_of_key(key: Any, kind: str) -> None:
    start = np.arange(24.0).reshape(3, 2, 4)
    with current(kind, 1 if kind == "inline" else 2):
        for name in ("add", "subtract", "maximum", "minimum", "multiply", "divide"):
            for values in (2.0, np.arange(1.0, 1 + start[key].size).reshape(start[key].shape)):
                expected, actual = start.copy(), mm.asarray(start)
                getattr(np, name).at(expected, key, values)
                getattr(mm, name).at(actual, key, values)
                assert np.array_equal(actual.numpy(), expected), name


SLICES = [
    slice(None, None, 2), slice(None, None, -1), slice(0, 1), slice(0, None, 3), Ellipsis, slice(-1, None),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(1,), (1, 3), (3, 1), (2, 2), (1, 1), (4,)])
def test_parts_of_an_array_written_into_other_parts_of_it(shape: tuple[int, ...]) -> None:
    """Extents of 1 make slices equal that differ otherwise."""
    keys = (
        SLICES
        if len(shape) == 1
        else [(a, b) for a in SLICES for b in SLICES if (a, b) != (..., ...)]
    )
    x = np.arange(np.prod(shape), dtype=float).reshape(shape)
    for target in keys:
        for source in (Ellipsis, *SLICES[:3]):

            def program(a: Any, target: Any = target, source: Any = source) -> Any:
                b = a * 1.0
                b[target] = b[source]
                return b + 1

            try:
                expected = program(x)
            except ValueError:
                continue
            assert np.array_equal(program(mm.asarray(x)).numpy(), expected)
            assert np.array_equal(mm.compile(program)(mm.asarray(x)).numpy(), expected)


def test_a_slice_with_computed_bounds_in_a_traced_function_names_the_remedy() -> None:
    def read(x: mm.Array, p: mm.Array) -> mm.Array:
        return x[p : p + 2]

    x, p = mm.arange(8), mm.asarray(3)
    check(read(x, p), [3, 4])
    with pytest.raises(mm.errors.TracingError, match=r"x\[p \+ mm.arange\(2\)\]"):
        mm.compile(read)(x, p)
