"""Element types: their names and comparison, the types of results, and that no digit is lost
implicitly.

`result_type_of` states the rule of promotion in terms of NumPy's; the properties below compare
operators on operands of every form with it and with NumPy's values.
"""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import magmath as mm
from arrays import KINDS, check
from engines import current
from magmath.core import promotion
from magmath.core.dtypes import DTYPES, DType, integer_bounds
from magmath.errors import DataError, DTypeError, RangeError
from magmath.runtime import Pool

NUMPY_TYPES = [name for name in DTYPES if name != "bfloat16"]
INTEGERS = [name for name in DTYPES if DTYPES[name].is_integer]
LARGE = [2**53 + 1, 123456789, -(2**63), 2**63 - 1, -(2**53) - 1, 0]
"""Integers that float32 does not hold, and most of which float64 does not hold."""


@pytest.fixture(autouse=True)
def default_restored() -> Iterator[None]:
    yield
    mm.set_default_dtype(mm.float32)


# names ------------------------------------------------------------------------------------------


def names_of(name: str) -> list[Any]:
    """All that names an element type."""
    names: list[Any] = [DTYPES[name], name, getattr(torch, name), f"torch.{name}"]
    if name != "bfloat16":
        dtype = np.dtype(name)
        names += [dtype, dtype.type, dtype.str, dtype.char]
    python = {"bool": bool, "int64": int, "float64": float, "complex128": complex}
    return names + ([python[name], python[name].__name__] if name in python else [])


@pytest.mark.parametrize("name", DTYPES)
def test_a_type_equals_all_its_names(name: str) -> None:
    dtype = mm.zeros(1, dtype=name).dtype
    others = [other for n in DTYPES if n != name for other in names_of(n)]
    for named in names_of(name):
        assert dtype == named
        assert named == dtype
        assert (dtype != named) is False
        assert dtype in (None, "text", named)
        assert mm.zeros(1, dtype=named).dtype is dtype
    assert all(dtype != other and other != dtype for other in others)
    for stranger in (None, "text", 3, object(), [], np.floating, object, str, torch.ones(1)):
        assert (dtype == stranger) is False
        assert (dtype != stranger) is True
    if name not in ("bfloat16", "bool", "int8", "uint8"):
        swapped = np.dtype(name).newbyteorder()
        for given in (swapped, swapped.str):
            assert (dtype == given) is (given == dtype) is False
            assert mm.zeros(1, dtype=given).dtype is dtype
    assert pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype) is dtype


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_numpy_and_magmath_types_are_one_key(name: str) -> None:
    ours, theirs = DTYPES[name], np.dtype(name)
    assert np.dtype(ours) == theirs
    assert np.zeros(1, dtype=ours).dtype == theirs
    assert hash(ours) == hash(theirs)
    assert {theirs: 1}[ours] == {ours: 1}[theirs] == 1
    assert len({ours, theirs}) == 1


@pytest.mark.parametrize("wrong", ["float33", "O", "U3", "f4,f4", "longdouble", None, 3, list])
def test_names_of_no_type_are_errors(wrong: Any) -> None:
    with pytest.raises(DTypeError, match=r"dtype .* is not known; magmath has bool, int8"):
        mm.astype(mm.zeros(1), wrong)
    if wrong is not None:  # the default
        number = "the shape is one argument"  # zeros(1, 3), as in PyTorch
        with pytest.raises(DTypeError, match=number if wrong == 3 else "is not known"):
            mm.zeros(1, dtype=wrong)


# operands of every form -------------------------------------------------------------------------

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "divide": operator.truediv,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip
CLASSES = {"bool": bool, "int": int, "uint": int, "float": float, "complex": complex}


def floating(name: str) -> str:
    """The one rule for integers that become floating point."""
    if DTYPES[name].kind in ("float", "complex"):
        return name
    return "float64" if DTYPES[name].itemsize >= 4 else mm.get_default_dtype().name


def result_type_of(operation: str, x: str, other: str | type) -> str | None:
    """The type of the operands of an operation of an array of type `x` with an array of another
    type or with Python numbers of a class; None where there is none."""
    inexact = {x, other} & {"float16", "float32", "float64", "complex64", "complex128"}
    if operation == "divide" and not inexact:
        x, other = floating(x), floating(other) if isinstance(other, str) else other
    if isinstance(other, str):
        kinds = {DTYPES[x].kind, DTYPES[other].kind}
        common = np.promote_types(x, other).name
        return None if kinds == {"int", "uint"} and common == "float64" else common
    if other is bool or (other is int and x != "bool"):
        return x
    if other is int:
        return "int64"
    result = floating(x)
    return np.promote_types(result, "complex64").name if other is complex else result


def numbers_of(name: str) -> st.SearchStrategy[Any]:
    """Python numbers that a type holds."""
    dtype = DTYPES[name]
    if dtype.is_integer:
        low, high = integer_bounds(dtype)
        edges = [n for n in (low, high, 0, 1, 3, *LARGE) if low <= n <= high]
        return st.sampled_from(edges) | st.integers(low, high)
    small = st.integers(-999, 999).map(lambda n: n / 8)
    if dtype.kind == "bool":
        return st.booleans()
    return small if dtype.kind == "float" else st.builds(complex, small, small)


@st.composite
def operands(draw: st.DrawFn) -> tuple[str, list[Any], str | type, list[Any], str]:
    """An array's type and values, another operand's type or class and values, and its form."""
    x, y = draw(st.sampled_from(NUMPY_TYPES)), draw(st.sampled_from(NUMPY_TYPES))
    count = draw(st.integers(1, 4))
    form = draw(st.sampled_from(["number", "list", "tuple", "scalar", "array", "magmath"]))
    size = 1 if form in ("number", "scalar") else count
    values = draw(st.lists(numbers_of(x), min_size=count, max_size=count))
    others = draw(st.lists(numbers_of(y), min_size=size, max_size=size))
    weak = form in ("number", "list", "tuple")
    return x, values, CLASSES[DTYPES[y].kind] if weak else y, others, form


def formed(form: str, kind: str | type, others: list[Any]) -> Any:
    """The other operand."""
    if form == "number":
        return others[0]
    if form in ("list", "tuple"):
        return others if form == "list" else tuple(others)
    array = np.array(others, dtype=kind)
    return {"scalar": array[0], "array": array, "magmath": mm.asarray(array)}[form]


@given(drawn=operands(), operation=st.sampled_from(list(ARITHMETIC)), data=st.data())
def test_arithmetic_has_the_type_of_the_rule_and_numpys_values(
    drawn: Any, operation: str, data: st.DataObject
) -> None:
    name, values, kind, others, form = drawn
    mm.set_default_dtype(data.draw(st.sampled_from(["float32", "float64"])))
    expected = result_type_of(operation, name, kind)
    of_list = form in ("list", "tuple") and kind is int
    if of_list and expected is not None and np.dtype(expected).kind in "iu":
        expected = "uint64" if expected == "uint64" else "int64"  # those of lists have 64 bits
    reflected = data.draw(st.booleans())
    function = ARITHMETIC[operation] if data.draw(st.booleans()) else getattr(mm, operation)
    with current(*data.draw(st.sampled_from(KINDS))):
        x, y = mm.asarray(np.array(values, dtype=name)), formed(form, kind, others)
        pair = (y, x) if reflected else (x, y)
        if expected is None or (expected == "bool" and operation == "subtract"):
            with pytest.raises(DTypeError):
                function(*pair)
            return
        dtype = DTYPES[expected]
        if dtype.is_integer and isinstance(kind, type):
            low, high = integer_bounds(dtype)
            if any(not low <= n <= high for n in others):
                with pytest.raises(RangeError):
                    function(*pair)
                return
        actual = function(*pair)
        assert actual.dtype == expected
        with np.errstate(all="ignore"):
            a = np.array(values, dtype=name).astype(expected)
            b = np.array(others, dtype=expected if isinstance(kind, type) else kind)
            b = b.astype(expected)
            truth = ARITHMETIC[operation](b, a) if reflected else ARITHMETIC[operation](a, b)
        if dtype.is_integer:
            np.testing.assert_array_equal(actual.numpy(), truth)
        else:
            limit = 1e-2 if expected == "float16" else 1e-5
            np.testing.assert_allclose(actual.numpy(), truth, rtol=limit, atol=limit)


@given(drawn=operands(), operation=st.sampled_from(list(COMPARISONS)), data=st.data())
def test_comparisons_answer_truly(drawn: Any, operation: str, data: st.DataObject) -> None:
    """Integers with integers exactly, of any types and sizes; with floating point as NumPy."""
    name, values, kind, others, form = drawn
    kinds = {DTYPES[name].kind, "complex" if kind is complex else DTYPES.get(str(kind), "").kind
             if isinstance(kind, str) else ""}  # fmt: skip
    assume("complex" not in kinds or operation in ("equal", "not_equal"))
    reflected = data.draw(st.booleans())
    function = COMPARISONS[operation] if data.draw(st.booleans()) else getattr(mm, operation)
    with current(*data.draw(st.sampled_from(KINDS))):
        x, y = mm.asarray(np.array(values, dtype=name)), formed(form, kind, others)
        try:
            result = function(y, x) if reflected else function(x, y)
        except RangeError:  # of lists with numbers that no common type with the array's holds
            assert form in ("list", "tuple")
            assert max(others) > integer_bounds(DTYPES["int64"])[1]
            return
        assert result.dtype is mm.bool
        pairs = list(zip(np.array(values, dtype=name), np.resize(np.array(others, object), len(values)), strict=True))  # fmt: skip
        exact = [(n.item(), m) for n, m in pairs]
        if not all(isinstance(number, int) for pair in exact for number in pair):
            wide = complex if any(isinstance(n, complex) for pair in exact for n in pair) else float
            exact = [(wide(n), wide(m)) for n, m in exact]
        compare = COMPARISONS[operation]
        assert result.tolist() == [compare(m, n) if reflected else compare(n, m) for n, m in exact]


def test_lists_are_operands_everywhere() -> None:
    x, one_two, half = mm.asarray([3, 1, 2]), [1, 2], [0.1, 0.2]
    check(x == [3, 1, 2], np.array([True] * 3))
    check(operator.eq([3, 1, 2], x), np.array([True] * 3))
    check(x < (4, 1, 3), np.array([True, False, True]))
    check(mm.asarray([one_two]) + [[1], [2]], np.array([[2, 3], [3, 4]]))  # noqa: RUF005
    assert (x @ [1, 2, 3]).item() == ([1, 2, 3] @ x).item() == 11
    assert (x @ [0.5, 1, 1]).dtype is mm.float64
    check(mm.maximum(x, [2, 2, 2.5]), np.array([3, 2, 2.5]))
    check(mm.where([True, False, True], x, [9, 8, 7]), np.array([3, 8, 2]))
    check(mm.add(one_two, [3, 4]), np.array([4, 6]))
    check(mm.clip(x, [2, 2, 2], 3), np.array([3, 2, 2]))
    check(mm.concat([x, one_two]), np.array([3, 1, 2, 1, 2]))
    check(mm.mean([1, 2, 4]), np.float64(7 / 3))
    check(mm.ones(2, dtype="float64") * half, np.array(half))
    assert (mm.ones(2) * half).dtype is mm.float32
    assert (mm.ones(2) * [np.float64(0.1), 0]).dtype is mm.float64
    assert (mm.ones(1) * []).shape == (0,)
    y = mm.zeros((2, 2))
    y[0] = one_two
    assert y.tolist() == [[1, 2], [0, 0]]
    check(mm.asarray([1], dtype="int8") * [300], np.array([300]))
    check(mm.convolve(mm.asarray([200, 255], dtype="uint8"), [1, 1]), np.array([200, 455, 255]))
    with pytest.raises(RangeError, match="300 does not fit int8"):
        mm.asarray([1], dtype="int8") * 300
    with pytest.raises(RangeError, match="200 does not fit int8"):
        mm.arange(np.int8(100), 300, 100)


def test_nothing_equals_none_and_text() -> None:
    x = mm.asarray([1, 2])
    for stranger in (None, "a", b"a"):
        check(x == stranger, np.array([False, False]))
        check(stranger != x, np.array([True, True]))
        with pytest.raises(TypeError):
            operator.lt(x, stranger)
    assert (x == object()) is False


# integers that become floating point ------------------------------------------------------------

TO_FLOATING: dict[str, Callable[[Any, Any], Any]] = {
    "divide": lambda p, x: x / x[:, 1:],
    "divide by a number": lambda p, x: x / 2,
    "mean": lambda p, x: p.mean(x),
    "std": lambda p, x: p.std(x),
    "var": lambda p, x: p.var(x),
    "times a float": lambda p, x: x * 0.5,
    **{name: lambda p, x, name=name: getattr(p, name)(x) for name in
       ("sqrt", "exp", "log1p", "sin", "tanh")},
    "hypot": lambda p, x: p.hypot(x, x),
    "atan2": lambda p, x: getattr(p, "atan2", None)(x, 2),
    "vector_norm": lambda p, x: p.linalg.vector_norm(x),
    "det": lambda p, x: p.linalg.det(x),
    "inv": lambda p, x: p.linalg.inv(x),
    "solve": lambda p, x: p.linalg.solve(x, x),
    "svdvals": lambda p, x: p.linalg.svdvals(x),
}  # fmt: skip


@pytest.mark.parametrize("function", TO_FLOATING.values(), ids=TO_FLOATING)
@pytest.mark.parametrize("name", ["bool", *INTEGERS])
def test_integers_become_floating_point_by_one_rule(
    name: str, function: Callable[[Any, Any], Any]
) -> None:
    values = np.array([[1, 1], [0, 1]] if name == "bool" else [[5, 2], [3, 4]], dtype=name)
    for default in ("float32", "float64"):
        mm.set_default_dtype(default)
        result = function(mm, mm.asarray(values))
        assert result.dtype == floating(name)
        truth = function(np, values.astype("float64"))
        np.testing.assert_allclose(result.numpy(), truth, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_spectra_of_integers(name: str) -> None:
    mm.set_default_dtype(name)
    parts = "complex128" if name == "float64" else "complex64"
    for dtype, expected in (("int16", parts), ("int32", "complex128"), ("uint8", parts)):
        x = mm.asarray(np.array([1, 5, 2, 7], dtype=dtype))
        assert mm.fft.fft(x).dtype == mm.fft.rfft(x).dtype == expected
        np.testing.assert_allclose(mm.fft.fft(x).numpy(), np.fft.fft([1, 5, 2, 7]), rtol=1e-5)
        assert mm.signal.convolve(x, x, method="fft").dtype == floating(dtype)


@given(
    values=st.lists(st.sampled_from(LARGE), min_size=1, max_size=4),
    pool=st.sampled_from(KINDS),
)
def test_large_integers_keep_their_digits(values: list[int], pool: tuple[str, int]) -> None:
    truth = np.array(values)
    with current(*pool):
        x = mm.asarray(values)
        assert x.tolist() == mm.asarray(truth).tolist() == values
        assert (x == values).tolist() == [True] * len(values)
        assert [int(n) for n in x] == values
        np.testing.assert_array_equal((x / 2).numpy(), truth / 2)
        np.testing.assert_array_equal((1 / (x | 1)).numpy(), 1 / (truth | 1))
        np.testing.assert_array_equal(mm.astype(x, float).numpy(), truth.astype(float))
        largest = float(np.abs(truth.astype(float)).max())  # sums are rounded in another order
        np.testing.assert_allclose(mm.mean(x).numpy(), np.mean(truth), rtol=0, atol=1e-15 * largest)
        check(x + 0.5, truth + 0.5, 0)
        check(mm.asarray(values, dtype="float64"), truth.astype("float64"), 0)


def test_means_of_small_integers_are_exact() -> None:
    x = np.full(100_000, 255, np.uint8)
    assert mm.mean(mm.asarray(x)).item() == 255
    assert mm.var(mm.asarray(x)).item() == 0


def test_lists_of_integers_beyond_int64_are_exact() -> None:
    values = [2**64 - 1, 0, 1]
    assert mm.asarray(values).dtype is mm.uint64
    assert mm.asarray(values).tolist() == mm.asarray(values, dtype="uint64").tolist() == values
    for beyond in ([2**63, -1], [2**64], [[-(2**63) - 1]]):
        with pytest.raises(RangeError, match="does not fit int64"):
            mm.asarray(beyond)


def test_negative_powers_of_integers_are_refused(every_pool: Any) -> None:
    x = mm.asarray([2, 3])
    check(x ** [2, 3], np.array([4, 27]))
    for wrong in (lambda: x**-1, lambda: x ** [1, -1], lambda: mm.pow(x, mm.asarray(-2))):
        with pytest.raises(RangeError, match=r"power: integers to the power -\d are no integers"):
            wrong().numpy()
    check(mm.astype(x, float) ** -1, np.array([1 / 2, 1 / 3]))
    assert (x**2.0).dtype is mm.float64


def test_numpys_scalars_keep_their_type() -> None:
    third = np.float64(1) / 3
    for array in (mm.full(2, third), mm.asarray([third, third]), mm.variable("v", third),
                  mm.constant(third), mm.linspace(third, 1, 2), mm.arange(third, 1)):  # fmt: skip
        assert array.dtype is mm.float64
        assert mm.reshape(array, (-1,))[0].item() == third
    assert mm.full(2, np.int32(5)).dtype is mm.int32
    assert mm.arange(np.int64(3)).dtype is mm.int64
    assert mm.linspace(np.int8(0), np.int8(4), 3).tolist() == [0, 2, 4]


# the default type -------------------------------------------------------------------------------

MADE: dict[str, Callable[[], mm.Array]] = {
    "asarray": lambda: mm.asarray(0.1),
    "lists": lambda: mm.asarray([[0.1, 2]]),
    "zeros": lambda: mm.zeros(2),
    "ones": lambda: mm.ones(2),
    "empty": lambda: mm.empty(2),
    "eye": lambda: mm.eye(2),
    "full": lambda: mm.full(2, 0.1),
    "linspace": lambda: mm.linspace(0, 1, 3),
    "arange": lambda: mm.arange(0.0, 1.0, 0.25),
    "normal": lambda: mm.random.normal(shape=(2,)),
    "uniform": lambda: mm.random.uniform(shape=(2,)),
    "variable": lambda: mm.variable("v", 3),
    "constant": lambda: mm.constant(3),
    "list of a variable": lambda: mm.variable("v", [3, 4]),
    "list of a parameter": lambda: mm.nn.Parameter([True, 4]),
    "range of a buffer": lambda: mm.nn.Buffer(range(3)),
    "nested lists of a constant": lambda: mm.constant([(3,), [4]]),
    "fftfreq": lambda: mm.fft.fftfreq(4),
    "small integers": lambda: mm.asarray([1, 2], dtype="int8") / 3,
    "small integers and floats": lambda: mm.asarray([1, 2], dtype="uint16") * 0.1,
    "numbers of compiled functions": lambda: mm.compile(lambda n: n * mm.ones(2))(0.1),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_python_floats_become_the_default_type(make: Callable[[], mm.Array]) -> None:
    for name in ("float32", "float64", "float32"):
        mm.set_default_dtype(name)
        result = make()
        assert result.dtype is mm.get_default_dtype() is DTYPES[name]
        defaults = mm.__array_namespace_info__().default_dtypes()
        assert defaults["real floating"] is DTYPES[name]
        assert defaults["complex floating"] is mm.asarray(1j).dtype
        assert mm.asarray(1j).dtype == ("complex128" if name == "float64" else "complex64")
        assert mm.linspace(0, 1j, 2).dtype is mm.asarray([1j]).dtype
        assert mm.asarray(3).dtype is defaults["integral"] is mm.int64
    mm.set_default_dtype(float)
    assert mm.asarray(0.1).item() == 0.1


def test_compiled_functions_and_loops_follow_the_default(every_pool: Any) -> None:
    traced = []

    @mm.compile
    def function(x: mm.Array, n: float) -> mm.Array:
        traced.append(mm.get_default_dtype().name)
        return mm.asarray([0.1, 0.2]) + n * mm.ones(2) + x * 0.5

    x = mm.asarray([1, 2], dtype="int8")
    for name in ("float32", "float64", "float32", "float64"):
        mm.set_default_dtype(name)
        expected = np.array([0.1, 0.2], dtype=name) + np.array(3 + 0.5 * np.array([1, 2]), name)
        for _ in range(3):
            check(function(x, 3.0), expected)
        loop = mm.fori_loop(0, 3, lambda i, z: z + mm.asarray([0.1, 0.2]), mm.zeros(2))
        check(loop, np.array([0.3, 0.6], dtype=name))
    assert traced == ["float32", "float64"]


@pytest.mark.parametrize("wrong", ["float16", mm.bfloat16, int, complex, "text", None, 3])
def test_the_default_is_float32_or_float64(wrong: Any) -> None:
    with pytest.raises(DTypeError, match=r"^set_default_dtype: "):
        mm.set_default_dtype(wrong)
    assert mm.get_default_dtype() is mm.float32


def test_networks_are_of_the_default_type() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 3)), random.normal(size=(40, 1))
    losses = {}
    for name in ("float32", "float64"):
        mm.set_default_dtype(name)
        network = mm.nn.NeuralNetwork(
            [mm.nn.Dense(4, "tanh"), mm.nn.Dense(1)], loss="mean_squared_error", seed=1
        )
        for samples in (x, x.astype("float32"), (x * 100).astype("int64")):
            history = network.fit(samples, y, batch_size=8)
            losses[name] = history.records[-1].loss
            assert {v.dtype.name for v in network.parameters.values()} == {name}
            assert network.predict(samples).dtype == name
        assert network.fit(x, (y * 10).astype("int64")).records


# files ------------------------------------------------------------------------------------------


def edges_of(dtype: DType) -> np.ndarray[Any, Any]:
    """The numbers that are the first to be lost."""
    if dtype.kind == "bool":
        return np.array([[True, False]])
    if dtype.is_integer:
        low, high = integer_bounds(dtype)
        return np.array([[low, high, high - 1, 1]], dtype=dtype.name)
    info = np.finfo(dtype.name)
    parts = np.array([[info.max, info.tiny, 1 + info.eps, 1 / 3]], dtype=info.dtype)
    return (parts + 1j * parts[:, ::-1]).astype(dtype.name) if dtype.kind == "complex" else parts


@pytest.mark.parametrize("name", NUMPY_TYPES)
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".csv", ".h5", ".zarr"])
def test_files_keep_what_they_hold(suffix: str, name: str, tmp_path: Path, every_pool: Any) -> None:
    if suffix in (".h5", ".zarr"):
        pytest.importorskip({".h5": "h5py", ".zarr": "zarr"}[suffix])
    truth, path = edges_of(DTYPES[name]), tmp_path / f"a{suffix}"
    if (suffix, name) in LACKING or (suffix == ".csv" and DTYPES[name].kind == "complex"):
        with pytest.raises(DTypeError, match=f"no {name}; save as .npy"):
            mm.save(path, truth if suffix == ".csv" else {"x": truth})
        return
    if suffix == ".csv" and name == "uint64":
        truth = truth[:, 1:]
    mm.save(path, {"x": truth} if suffix not in (".npy", ".csv") else truth)
    back = mm.load(path, "x") if suffix not in (".npy", ".csv") else mm.load(path)
    if suffix != ".csv":
        assert back.dtype == name
    elif name == "uint64":
        assert back.dtype is mm.uint64
    else:
        assert back.dtype is (mm.float64 if DTYPES[name].is_floating else mm.int64)
    np.testing.assert_array_equal(mm.astype(back, name).numpy(), truth)
    wide = mm.load(path, "x", dtype=complex) if suffix == ".npz" else None
    assert wide is None or wide.dtype is mm.complex128


LACKING = {(".safetensors", "complex128")}
TABLES: list[tuple[str, str, Any]] = [
    ("1,2\n3,4\n", "int64", [[1, 2], [3, 4]]),
    ("id,x\n123456789,0.5\n", "float64", [[123456789, 0.5]]),
    (f"{2**53 + 1},{-(2**63)}\n", "int64", [[2**53 + 1, -(2**63)]]),
    (f"{2**64 - 1},0\n", "uint64", [[2**64 - 1, 0]]),
    (f"{2**53},1.5\n", "float64", [[2**53, 1.5]]),
    (f"{2**60},1e3\n", "float64", [[2**60, 1000]]),
    (f"{2**80},1\n", "float64", [[2**80, 1]]),
    (f"{2**63},-1\n", "float64", [[2**63, -1]]),
    ("0.12345678901234567,1\n", "float64", [[0.12345678901234567, 1]]),
    ("nan,inf\n", "float64", [[np.nan, np.inf]]),
    (' +1 ,"2"\n', "int64", [[1, 2]]),
    ("\ufeff1\n2\n", "int64", [[1], [2]]),
    (f'"{2**53 + 1}"\n', "int64", [[2**53 + 1]]),
    ("1;2\n", "int64", [[1, 2]]),
]


@pytest.mark.parametrize(("text", "dtype", "values"), TABLES)
def test_tables_have_the_type_that_holds_their_numbers(
    text: str, dtype: str, values: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    delimiter = ";" if ";" in text else ","
    result = mm.data.read_csv(path, delimiter)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.numpy(), np.array(values, dtype=dtype))
    if delimiter == ",":
        assert mm.load(path).dtype == dtype
        assert mm.load(path, dtype=np.float32).dtype is mm.float32


@pytest.mark.parametrize(
    "text", [f"{2**53 + 1},0.5\n", f"a,b\n1,0.5\n2,-{2**53 + 1}\n", f"{2**63 + 1},-1\n", "7" * 400]
)
def test_tables_that_would_be_rounded_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    for read in (mm.load, mm.data.read_csv):
        with pytest.raises(DataError, match=r"a.csv has the integer -?\d{16}.*dtype='float64'"):
            read(path)
    if len(text) < 99:
        assert mm.load(path, dtype=float).dtype is mm.float64


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(LARGE) | st.integers(), st.sampled_from(LARGE) | st.integers()),
        min_size=1,
    )
)
def test_tables_of_integers_are_never_rounded(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "integers.csv"
    path.write_text("\n".join(f"{a},{b}" for a, b in rows))
    try:
        result = mm.load(path)
    except DataError:
        flat = [n for row in rows for n in row]
        assert max(flat) >= 2**63 or min(flat) < -(2**63)
        assert any(int(float(n)) != n for n in flat)
        return
    assert [[int(n) for n in row] for row in result.tolist()] == [list(row) for row in rows]


def _added_at(x: mm.Array, indices: mm.Array) -> mm.Array:
    total = mm.zeros(2, dtype=x.dtype)
    mm.add.at(total, indices, x)
    return total[0]


SUMS: dict[str, Callable[[mm.Array, mm.Array], mm.Array]] = {
    "sum": lambda x, i: mm.sum(x),
    "cumulative_sum": lambda x, i: mm.cumulative_sum(x)[-1],
    "accumulate": lambda x, i: mm.add.accumulate(x)[-1],
    "reduceat": lambda x, i: mm.add.reduceat(x, [0])[0],
    "product": lambda x, i: x @ mm.ones_like(x),
    "bincount": lambda x, i: mm.bincount(i, weights=x)[0],
    "at": _added_at,
    "gradient of x[i]": lambda x, i: mm.grad(lambda y: y[i] @ x)(x[:2])[0],
    "gradient of take": lambda x, i: mm.grad(lambda y: mm.take(y, i) @ x)(x[:2])[0],
    "gradient of rows": lambda x, i: mm.grad(lambda y: y[i] @ x[:2] @ x)(mm.ones((9, 2), dtype=x.dtype))[0, 0] / x[0],
    "gradient of take_along_axis": lambda x, i: mm.grad(
        lambda y: mm.take_along_axis(y, i) @ x
    )(x[:2])[0],
    "gradient of cumulative_sum": lambda x, i: mm.grad(
        lambda y: mm.cumulative_sum(y) @ mm.ones_like(y) / 8
    )(x)[0],
}  # fmt: skip


@pytest.mark.parametrize("extent", [3000, 100_000])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", SUMS)
def test_many_numbers_of_16_bits_are_added_in_float32(
    every_pool: Pool, name: str, dtype: str, extent: int
) -> None:
    """A sum in the type itself stays where the next summand is less than half of its last digit:
    at 256 or 2048 times the summand."""
    x = mm.full((extent,), 0.125, dtype=dtype)
    total = SUMS[name](x, mm.zeros(extent, dtype=mm.int64))
    assert float(total) == pytest.approx(extent / 8, rel=1e-2)


OF_THREE: dict[str, Callable[[Any, list[Any]], Any]] = {
    "concatenate": lambda lib, x: lib.concatenate(x),
    "stack": lambda lib, x: lib.stack(x),
    "choose": lambda lib, x: lib.choose([2, 0], x),
    "select": lambda lib, x: lib.select([[True, False], [False, False]], x[:2], x[2]),
    "select, a number otherwise": lambda lib, x: lib.select([[True, False]] * 3, x),
}


@given(
    kinds=st.lists(st.sampled_from([*DTYPES.values(), bool, int, float, complex]), min_size=1),
    repeated=st.integers(2, 5),
)
def test_repeated_types_do_not_change_the_common_one(kinds: list[Any], repeated: int) -> None:
    """They are one in the caches too, which do not grow with the number of arrays."""
    try:
        expected = promotion.common_dtype(*kinds)
    except DTypeError:
        return
    misses = promotion._common_dtype.cache_info().misses, promotion._promote.cache_info().misses
    assert promotion.common_dtype(*kinds * repeated) is expected
    types = [kind for kind in kinds if isinstance(kind, DType)]
    if len(types) == len(kinds):
        assert promotion.promote(*types * repeated) is expected
    after = promotion._common_dtype.cache_info().misses, promotion._promote.cache_info().misses
    assert after == misses


@pytest.mark.parametrize("name", OF_THREE)
@given(names=st.lists(st.sampled_from(NUMPY_TYPES), min_size=3, max_size=3))
def test_several_arrays_have_the_type_that_numpy_gives_them(name: str, names: list[str]) -> None:
    kinds = {DTYPES[one].kind for one in names}
    assume(kinds & {"float", "complex"} or not ("uint64" in names and "int" in kinds))
    expected = OF_THREE[name](np, [np.ones(2, one) for one in names])
    check(OF_THREE[name](mm, [mm.ones(2, dtype=one) for one in names]), expected)


def test_bfloat16_is_a_floating_point_type_of_its_own() -> None:
    for kind in (mm.floating, mm.inexact, mm.number, mm.bfloat16):
        assert mm.issubdtype(mm.bfloat16, kind)
    for kind in (mm.integer, mm.complexfloating, mm.float32, mm.float16, float, bool):
        assert not mm.issubdtype(mm.bfloat16, kind)
    for dtype in (mm.float32, mm.float16, mm.int16):
        assert not mm.issubdtype(dtype, mm.bfloat16)
    assert mm.issubdtype(mm.float32, mm.floating)
    assert mm.issubdtype(mm.float64, float)


@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_bytes_of_bfloat16_are_its_bits(shape: tuple[int, ...], order: Any, tmp_path: Path) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    x = mm.asarray(values)
    bits = values.view(torch.int16).numpy()
    assert x.tobytes(order) == bits.tobytes(order)
    assert len(bytes(x)) == x.nbytes
    x.tofile(tmp_path / "bits")
    assert (tmp_path / "bits").read_bytes() == bits.tobytes()
    x.tofile(tmp_path / "text", sep=" ")
    text = np.fromfile(tmp_path / "text", sep=" ")
    np.testing.assert_allclose(text, values.float().numpy().ravel(), rtol=1e-6)
