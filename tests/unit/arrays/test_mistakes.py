"""Mistakes raise errors at the user's line, with messages that help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from arrays import GRID, check
from engines import current
from magmath.core.foreign_keywords import KEYWORDS
from magmath.engine import session
from magmath.engine.lifetimes.live_references import referenced_elsewhere
from magmath.errors import (
    DataError,
    DTypeError,
    IndexingError,
    LayoutError,
    MagmathError,
    MemoryLimitError,
    MissingDataError,
    OptionError,
    RangeError,
    ReadOnlyError,
    ShapeError,
    TracingError,
)
from magmath.graph import apply
from magmath.ops import OPERATIONS
from magmath.runtime import Pool


def _minimized_by_array(x: mm.Array) -> object:
    return mm.optim.GradientDescent(0.1).minimize(mm.sum(x), [x])  # type: ignore[list-item]


ACCEPTING = ("savez", "savez_compressed", "can_cast", "savetxt", "isscalar", "loadtxt", "genfromtxt", "fromfile",
             "fromiter", "frombuffer", "fromstring", "einsum_path", "may_share_memory",
             "shares_memory")  # fmt: skip
"""Functions that take texts or any objects, or leave what they are given to NumPy."""


@cache
def _functions() -> dict[str, Callable[..., object]]:
    """The public functions that must be given something, but for those that start or write."""
    result = {}
    for place in (mm, mm.linalg, mm.fft, mm.signal):
        for name in getattr(place, "__all__", dir(place)):
            function = getattr(place, name)
            if (
                inspect.isfunction(function)
                and function.__module__.startswith("magmath")
                and name not in ACCEPTING
                and _wanted(function)
            ):
                result[name] = function
    return result


def _wanted(function: Callable[..., object]) -> int:
    parameters = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD for p in parameters)


ONE_NAME = {"pow": "power", "constant": "asarray", "variable": "asarray", "full_like": "full",
            "astype": "dtype", "isdtype": "dtype", "issubdtype": "dtype",
            "promote_types": "dtype", "min_scalar_type": "dtype", "finfo": "dtype", "iinfo": "dtype"}  # fmt: skip
"""Functions whose errors may begin with another word."""


@pytest.mark.parametrize("wrong", ["x", None, object()], ids=["text", "None", "object"])
@pytest.mark.parametrize("name", sorted(_functions()))
def test_what_no_function_takes_is_refused_in_its_name(name: str, wrong: object) -> None:
    function = _functions()[name]
    count = _wanted(function)
    for first in [wrong, *[mm.ones((3, 3))] * (count > 1)]:
        with pytest.raises((TypeError, ValueError, MagmathError)) as caught:
            function(first, *[wrong] * (count - 1))
        begins = (name, function.__name__, ONE_NAME.get(name, name))
        told = str(caught.value)
        if not told.startswith(begins):  # a composition: the function that raised
            word = told.partition(":")[0].rpartition(".")[2]
            assert any(hasattr(place, word) for place in (mm, mm.linalg, mm.fft)), told


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda x: mm.concat([mm.ones(1, dtype="uint64"), mm.asarray([1])]), DTypeError, "concat: types uint64 and int64"),
        (lambda x: mm.einsum("i,i", mm.ones(1, dtype="uint64"), mm.asarray([1])), DTypeError, "einsum: types uint64 and int64"),
        (lambda x: mm.asarray([1j], dtype="float32"), DTypeError, "asarray: .* has an imaginary part"),
        (lambda x: mm.std(x, axis=2), ShapeError, "std: axis 2 is out of range"),
        (lambda x: mm.sum(mm.asarray(1.0), axis=0.0), TypeError, "sum: axes are integers, was given 0.0"),
        (lambda x: mm.random.gamma(1e12 + 1), OptionError, r"gamma: shape must be from 0 to 1e\+12, was given 1000000000001"),
        (lambda x: mm.optim.Momentum(0.1, mm.inf), OptionError, "of at least 0 and less than inf, was given inf"),
        (lambda x: mm.count_nonzero(x, axis=2), ShapeError, "count_nonzero: axis 2 is out of range"),
        (lambda x: mm.argmin(x[:0], axis=0), ShapeError, "argmin: axis 0 of shape .* has extent 0"),
        (lambda x: mm.vecdot(x, mm.asarray(1.0)), ShapeError, "vecdot: needs arrays of 1 or more dimensions"),
        (lambda x: mm.vecdot(x, x, axis=0.5), TypeError, "vecdot: the axis is an integer"),
        (lambda x: mm.fft.fft(x, n=2.5), TypeError, "fft: lengths must be integers"),
        (lambda x: x[::0], ValueError, "indexing: a slice takes integers"),
        (lambda x: x["a":], TypeError, "indexing: a slice takes integers"),
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
        (lambda x: mm.Mesh("a"), LayoutError, r"Mesh: shape must be integers, such as \(2, 2\), .*'a'"),
        (lambda x: mm.Mesh(2.5), LayoutError, "Mesh: shape must be integers.* 2.5"),
        (lambda x: mm.Mesh(2, workers="ab"), LayoutError, "Mesh: workers must be integers.* 'ab'"),
        (lambda x: mm.save(3, x), TypeError, "save: the first argument is a path.*given int; .*mm.save"),
        (lambda x: mm.savez(x), TypeError, "savez: the first argument is a path.*given Array; "),
        (lambda x: mm.load(3.5), TypeError, "load: the first argument is a path.*given float; "),
        (lambda x: mm.data.read_csv("/none.csv"), MissingDataError, "data.read_csv: there is no file /none.csv; give"),
        (lambda x: mm.data.read_idx("/none"), MissingDataError, "read_idx: there is no file /none; give"),
        (lambda x: mm.MemoryManager(mm.MemoryKind.DEVICE), TypeError, r"MemoryManager: count must be an integer.*DEVICE.*MemoryManager\(1000"),
        (lambda x: mm.MemoryManager(-1), ShapeError, "MemoryManager: count must be at least 0, was given -1"),
        (lambda x: mm.nn.cross_entropy(x, mm.zeros(4)), DTypeError, r"integers .*given \(4,\) float32; .*mm\.astype"),
        (lambda x: mm.ones((2, "a")), TypeError, r"ones: a shape is .*such as \(2, 3\), .*'a'"),
        (lambda x: mm.empty(-1), ShapeError, r"empty: extents must be at least 0, was given \(-1,\); write"),
        (lambda x: mm.eye(-1), ShapeError, r"eye: extents must be at least 0, was given \(-1, -1\); write"),
        (lambda x: mm.linspace(0, 1, "a"), TypeError, "linspace: num, the number .*'a'"),
        (lambda x: mm.random.normal(shape=-2), ShapeError, "random.normal: extents must be"),
        (lambda x: mm.squeeze(x, 0), ShapeError, r"squeeze: axes \(0,\) of shape \(4, 3\) are not all"),
        (lambda x: mm.broadcast_to(x, (4, 4)), ShapeError, r"broadcast_to: .*\(4, 3\).*\(4, 4\)"),
        (lambda x: mm.max(x[:0], axis=0), ShapeError, r"max: axis of extent 0"),
        (lambda x: mm.argmax(x[:0], axis=0), ShapeError, r"argmax.*extent 0"),
        (lambda x: mm.zeros((2, -1)), ShapeError, r"zeros: extents must be at least 0.*\(2, -1\)"),
        (lambda x: mm.arange(0, 4, 0), ShapeError, r"arange: step must not be 0"),
        (lambda x: mm.cumulative_sum(x), ShapeError, r"cumulative_sum: needs `axis`"),
        (lambda x: mm.atan2(x, 1j * x), DTypeError, r"atan2: takes real floating types, was given complex64; take its real part"),
        (lambda x: mm.ones(3, dtype="int32") + mm.ones(3, dtype="uint64"), DTypeError, r"add: types int32 and uint64 have no common type.*astype"),
        (lambda x: mm.asarray("text"), DTypeError, "asarray: needs arrays, numbers .* was given .text.; convert text"),
        (lambda x: mm.asarray(None), DTypeError, "asarray: needs arrays, numbers .* given None; give an array"),
        (lambda x: mm.asarray([[1, 2], [3, None]]), DTypeError, "asarray: needs .* given None in a list; .*nan"),
        (lambda x: mm.asarray({"a": 1}), DTypeError, "asarray: needs .* given {'a': 1}; give a value of the dict"),
        (lambda x: mm.asarray(np.array(["a"])), DTypeError, "asarray: NumPy type <U1 has no counterpart"),
        (lambda x: mm.sum(None), TypeError, "sum: needs magmath or NumPy arrays, .* given None; give an array"),
        (lambda x: mm.exp({1.0}), TypeError, r"exp: needs magmath or NumPy arrays, .* given set; .*mm\.asarray"),
        (lambda x: mm.sum(x, axis="a"), TypeError, "sum: axes are integers, was given 'a'"),
        (lambda x: mm.asarray([[1, 2], [3]]), ShapeError, "asarray: nested sequences.*equal"),
        (lambda x: mm.zeros(3.5), TypeError, "a shape is an integer or a sequence.*3.5"),
        (lambda x: mm.zeros((10**7, 10**7)).numpy(), MemoryLimitError, "needs 400 TB"),
        (lambda x: mm.linspace(0, 1, -2), ShapeError, "linspace: extents must be at least 0"),
        (lambda x: mm.grad(mm.sum(x), "a"), TypeError, "grad: needs magmath arrays, was given str"),
        (lambda x: mm.clip(x, "a", 3), TypeError, "clip: the minimum must be a number.*str"),
        (lambda x: mm.clip(x, 0, {1}), TypeError, "clip: the maximum must be a number.*set"),
        (lambda x: mm.reshape(x, "ab"), TypeError, "reshape: a shape must be .* was given 'ab'"),
        (lambda x: mm.reshape(x, (-1, 5)), ShapeError, "reshape: .*give extents whose product is"),
        (lambda x: mm.squeeze(x, axis=0), ShapeError, r"squeeze: .*name such.*x\[0\]"),
        (lambda x: mm.roll(x, "a"), TypeError, "roll: shifts must be .* was given 'a'"),
        (lambda x: mm.tile(x, "a"), TypeError, "tile: repetitions must be .* was given 'a'"),
        (lambda x: mm.repeat(x, "a"), TypeError, "repeat: needs magmath or NumPy.*given str"),
        (lambda x: mm.full(3, "a"), TypeError, "full: needs a number or an array, .*'a'"),
        (lambda x: mm.arange(0, float("nan")), ShapeError, "arange: start, stop and step must be finite, .* nan"),
        (lambda x: mm.arange(-np.inf, 3.0), ShapeError, "arange: start, stop and step must be finite, .* -inf"),
        (lambda x: mm.diff(x, n=-1), MagmathError, "diff: n must be an integer of at least 0, was given -1"),
        (lambda x: mm.diff(x, n=1.5), MagmathError, "diff: n must be an integer.* 1.5"),
        (lambda x: x + None, TypeError, "unsupported operand"),
        (lambda x: x < "a", TypeError, "'<' not supported"),
        (lambda x: x * ["a"], DTypeError, "was given .a. in a list; convert text to a number"),
        (lambda x: mm.set_default_dtype("float16"), DTypeError, "set_default_dtype: .*float32 or float64, was given float16.*dtype=mm.float16"),
        (lambda x: np.dtype(mm.bfloat16), DTypeError, "NumPy has no bfloat16.*astype"),
        (lambda x: mm.arange("a"), TypeError, "arange: start, stop and step are numbers, .*'a'"),
        (lambda x: mm.einsum(3, x), TypeError, "einsum: the subscripts come first.*int"),
        (lambda x: mm.linalg.vector_norm(x, ord="a"), ValueError, "vector_norm: ord must be .*'a'"),
        (lambda x: mm.linalg.matrix_power(mm.eye(2), "a"), TypeError, "matrix_power: .*integer"),
        (lambda x: mm.fori_loop("a", 3, max, x), TypeError, "fori_loop: the bounds .* given 'a'"),
        (lambda x: mm.fori_loop(0, 2.5, max, x), TypeError, "fori_loop: the bounds .* given 2.5"),
        (lambda x: mm.fori_loop(0, 3, 3, x), TypeError, "fori_loop: the body is a function"),
        (lambda x: mm.Layout.split("a"), LayoutError, "axis of a layout must be .* given 'a'"),
        (lambda x: mm.Layout.cyclic(0, "b"), LayoutError, "blocks of Layout.cyclic .* given 'b'"),
        (lambda x: mm.Layout.grid(3), LayoutError, "grid of a layout must be a sequence.*given 3"),
        (lambda x: mm.Layout.on("a"), LayoutError, "worker of Layout.on must be .* given 'a'"),
        (lambda x: mm.Layout.blocks("ab"), LayoutError, "Layout.blocks needs pairs.*given 'ab'"),
        (lambda x: mm.variable("v", x).move("rows"), LayoutError, r"move: needs a layout such as .*given 'rows'"),
        (_minimized_by_array, TypeError, "minimize: needs a list of variables, was given a list with Array"),
        (lambda x: mm.compile(3), TypeError, "compile: needs a function of arrays, was given 3"),
        (lambda x: mm.evaluate(3), TypeError, "evaluate: needs magmath arrays, was given int"),
        (lambda x: mm.from_dlpack(3), TypeError, "from_dlpack: needs an array with __dlpack__"),
        (lambda x: mm.optim.Adam("a"), TypeError, "learning_rate must be a number of at least 0.*'a'"),
        (lambda x: mm.fft.fft(x, x), MagmathError, r"^fft: an argument that is one value .*shape \(4, 3\); give"),
        (lambda x: mm.arange(x), MagmathError, r"^arange: an argument that is one value .*\(4, 3\)"),
        (lambda x: mm.round(x, x[0]), MagmathError, r"^round: an argument that is one value .*\(3,\)"),
        (lambda x: x.sum(keepdims=x), MagmathError, "^sum: an argument that is one value"),
        (lambda x: mm.nn.huber(x, x, delta=x), MagmathError, "^huber: an argument that is one value"),
        (lambda x: max(x, x), MagmathError, r"^bool\(\): needs a 0-d array"),
        (mm.compile(lambda x: 1 if x else 2), MagmathError, r"^bool\(\): needs a 0-d array"),
        (lambda x: mm.Variable("w", [1.0]), TypeError, r"Variable: is made with mm\.variable\(.*given list; write"),
        (lambda x: mm.nn.Dense(x), MagmathError, r"Dense: units must be .* given an array of shape \(4, 3\)"),
        (lambda x: mm.zeros(2, x), DTypeError, r"dtype an array of shape \(4, 3\) is not known"),
        (lambda x: mm.random.poisson(2.0, dtype=x), DTypeError, r"dtype an array of shape \(4, 3\) is not known"),
        (lambda x: mm.delete(x, 9, 0), IndexError, "^delete: position 9 is out of range for an extent of 4; pass a position from -4 to 3"),
        (lambda x: mm.nn.NeuralNetwork([mm.nn.Dense(3)], loss="mse"), MagmathError, "loss 'mse' is not known; .*; write \"mean_squared_error\""),
        (lambda x: mm.nn.NeuralNetwork([mm.nn.Dense(3)], "mse"), TypeError, "^NeuralNetwork: takes layers by position, and by name loss"),
        (lambda x: mm.ones(3, requires_grad=True), TypeError, r"ones.*'requires_grad'; no array requires gradients: mm\.grad\(loss, x\)"),
        (lambda x: mm.array([1.0], requires_grad=True), TypeError, r"array.*'requires_grad'; no array requires gradients"),
        (lambda x: mm.linalg.solve(mm.eye(3), mm.ones(4)), ShapeError, r"solve: .* was given \(3, 3\) and \(4,\); give a right side of 3 rows"),
        (lambda x: x[mm.ones(5) > 0], IndexError, r"a mask of shape \(5,\) .* shape \(4, 3\); give a mask of shape \(4,\)"),
        (lambda x: x.__array_interface__, AttributeError, r"'__array_interface__'; write np\.asarray\(x\)"),
        (lambda x: mm.nn.LSTM(3, return_sequences=True), TypeError, "the layer returns the outputs of all times"),
        (lambda x: x.flatten(1), MagmathError, r"order is \"C\" or \"F\", was given 1; to merge axes write mm\.reshape"),
        (lambda x: mm.ravel(x, 1), MagmathError, r"^ravel: order is .* 1; to merge axes"),
        (lambda x: mm.value_and_grad(lambda v: v, [mm.variable("v", 1.0)]), TypeError, r"value_and_grad: with variables the function is called without arguments, but .*'v'; let it read"),
        (lambda x: mm.grad(mm.sum(x), {"x": x}), TypeError, "grad: needs magmath arrays, was given dict; give the values"),
        (lambda x: x.assign(x), AttributeError, r"'assign'; write x\[\.\.\.\] = value"),
        (lambda x: mm.optim.Adam(x), TypeError, r"the first argument is the learning rate, .* type Array and shape \(4, 3\); .*optimizer\.update"),
        (lambda x: mm.optim.Adam(np.ones(2)), TypeError, r"the first argument is the learning rate, .* type ndarray"),
        (lambda x: mm.optim.Adam(mm.nn.Dense(3)), TypeError, "the first argument is the learning rate, .* type Dense"),
        (lambda x: mm.concat(x, x), TypeError, r"concat: takes the arrays in one list.*\(4, 3\) as the axis; write mm\.concat\(\[x, y\], axis=0"),
        (lambda x: mm.concat(x, x, axis=0), TypeError, r"concat: takes arrays, axis.*one list, as in concat\(\[x, y\]\)"),
        (lambda x: mm.stack(x, x), TypeError, r"stack: takes the arrays in one list.*write mm\.stack"),
        (lambda x: mm.stack([1, 2], [3, 4]), TypeError, r"stack: takes the arrays in one list.*given \[3, 4\] as the axis"),
        (lambda x: mm.hstack(x, x), TypeError, r"hstack: .*the arrays are one list, as in hstack\(\[x, y\]\)"),
        (lambda x: mm.block(x, x), TypeError, r"block: .*the arrays are one list"),
        (lambda x: mm.sum(x, x), TypeError, r"sum: axes are integers, was given an array of shape \(3,\)"),
        (lambda x: mm.sum(x, x[0]), TypeError, r"sum: axes are integers, was given magmath\.Array"),
        (lambda x: mm.argmax(x, x), TypeError, r"argmax: axes are integers, was given an array of shape \(4, 3\)"),
        (lambda x: mm.zeros(3, 4), DTypeError, r"zeros: the shape is one argument, .* given 3 and 4; write mm\.zeros\(\(3, 4\)\)"),
        (lambda x: mm.empty((2, 3), np.int64(4)), DTypeError, r"empty: .* write mm\.empty\(\(2, 3, 4\)\)"),
        (lambda x: mm.full(3, 4, 5), DTypeError, "dtype 5 is not known; .*extents are one argument"),
        (lambda x: mm.asarray([1, 2], [3, 4]), DTypeError, r"dtype \[3, 4\] is not known; .*values .* are one argument"),
        (lambda x: mm.reshape(x, 3, 4), TypeError, r"reshape: the shape is one argument, a tuple, was given 3 and 4; write mm\.reshape"),
        (lambda x: mm.transpose(x, 1, 0), TypeError, r"transpose: takes a, axes by position; several axes are one tuple"),
        (lambda x: mm.where(x > 0, x), TypeError, r"where: takes a condition alone, .*write mm\.where\(condition, x, y\)"),
        (lambda x: mm.variable(x), TypeError, "variable: lacks 'value'; it takes name, value by position, and by name shape"),
        (lambda x: mm.variable(x, "w"), TypeError, r"variable: the first argument is the name, .* given Array; write mm\.variable\(\"w\", value\)"),
        (lambda x: mm.grad(mm.sum, x), TypeError, r"grad: needs variables .* given Array; .*write mm\.grad\(f\)\(x\)"),
        (lambda x: mm.grad(mm.dot, [x, x]), TypeError, r"grad: needs variables .* given Array; .*mm\.grad\(f, argnums=\(0, 1\)\)\(x, y"),
        (lambda x: mm.value_and_grad(mm.sum, np.ones(2)), TypeError, r"value_and_grad: .* given ndarray; .*mm\.value_and_grad\(f\)\(x\)"),
        (lambda x: mm.grad(lambda v: 1.0)(x), TypeError, "grad: the function must return a 0-d array, it returned float; compute it"),
        (lambda x: mm.jvp(mm.sum, x, x), TypeError, r"jvp: primals are a tuple .*shape \(4, 3\).*; write mm\.jvp\(f, \(x,\), \(dx,\)\)"),
        (lambda x: mm.nn.Dense(3, 4), MagmathError, r"Dense: takes the number of outputs, .* given 3 and 4; .*first call: write Dense\(4\)"),
    ],
)  # fmt: skip
def test_mistakes_are_told_where_they_are_made(
    make: Callable[[mm.Array], object], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        make(mm.ones((4, 3)))


def test_failing_worker_names_the_users_line(every_pool: Pool) -> None:
    session.engine().eager_computation.max_eager_bytes = 0
    x = mm.asarray(GRID)
    bad = mm.take(x, mm.asarray([0, 98]) + 1, axis=0)
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
        layouts = [mm.ones((8, 2), layout=layout).layout for layout in (
            mm.Layout.on(0), mm.Layout.split(0).over(mm.Mesh((2,))),
            mm.Layout.split(0).over(mm.Mesh((3,))), mm.Layout.split(0), mm.Layout.replicated(),
        )]  # fmt: skip
        assert [str(layout) for layout in layouts] == [
            "R on 0", "S(0) on 0,1", "S(0) on 0-2", "S(0)", "R",
        ]  # fmt: skip
    with current("inline"):
        assert str(mm.ones(3).layout) == "R"


def test_two_arrays_of_one_node_are_evaluated_one_after_the_other() -> None:
    x = mm.ones((3,)) + 1
    same = mm.reshape(x, (3,))
    mm.evaluate(x)
    assert same.tolist() == x.tolist() == [2.0, 2.0, 2.0]


def test_a_shape_in_place_of_a_number_is_an_error() -> None:
    with pytest.raises(
        ShapeError, match=r"normal: mean must be a number or an array, was given \(20, 10\)"
    ):
        mm.random.normal((20, 10))
    with pytest.raises(ShapeError, match=r"uniform: high must be a number or .*shape=\(2, 3\)"):
        mm.random.uniform(0, (3,))
    with pytest.raises(ShapeError, match=r"gamma: shape must be .*gamma\(…, size=\(2, 3\)\)"):
        mm.random.gamma((3,))
    assert mm.random.uniform(np.float32(1), 2, (3,)).shape == (3,)


def test_functions_of_pytorch_and_numpy_that_arrays_do_not_have() -> None:
    x = mm.arange(4.0)
    with pytest.raises(TypeError, match=r"pow: takes no modulus; write x\*\*y % z"):
        pow(x, 2, 3)
    with pytest.raises(TypeError, match="power: out, the argument after the operands, must be"):
        mm.pow(x, 2, 3)
    with pytest.raises(TypeError, match="linspace: num, the number of values, .* given 2.5; mm.ar"):
        mm.linspace(0, 1, 2.5)
    for owner in (mm, mm.lib.stride_tricks, x):
        with pytest.raises(AttributeError, match="write mm.lib.stride_tricks.sliding_window_view"):
            owner.as_strided(x, (2, 2), (1, 1))


def test_an_array_that_is_held_stays_where_nodes_share_their_operands() -> None:
    kept = mm.asarray(np.arange(9.0)).node
    first = apply(OPERATIONS["tanh"], kept)
    second = first.replace(first.inputs)
    assert kept in referenced_elsewhere([kept, first, second])


@pytest.mark.parametrize("around", [lambda n: n, lambda n: [[1, n], (-2, 0)]])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_variable_rounds_no_integer(around: Callable[[int], Any], sign: int) -> None:
    exact, rounded = sign * 2**24, sign * (2**24 + 1)
    with pytest.raises(RangeError, match=f"{rounded} may be rounded; pass dtype=mm.int64"):
        mm.variable("steps", around(rounded))
    for n, dtype in ((rounded, mm.int64), (exact, mm.float32)):
        v = mm.variable("steps", around(n), dtype=mm.int64 if n == rounded else None)
        assert v.dtype is dtype
        assert v.tolist() == np.asarray(around(n)).tolist()


def test_the_type_of_lists_for_a_variable_needs_numbers_of_python() -> None:
    assert mm.variable("v", [np.int8(1), 2]).dtype is mm.int64
    assert mm.constant([1, 2j]).dtype is mm.complex64
    with pytest.raises(ShapeError, match="equal lengths"):
        mm.variable("v", [[1, 2], [3]])


def _callables() -> list[Any]:
    """The classes and functions that have hints about keywords."""
    layers = [getattr(mm.nn, name) for name in ("Dense", "Conv2d", "MaxPool2d", "AdaptiveAvgPool2d",
              "BatchNorm", "LayerNorm", "GroupNorm", "Dropout", "Embedding", "ConvTranspose1d",
              "LSTM", "MultiheadAttention", "TransformerEncoderLayer", "Flatten")]  # fmt: skip
    optimizers = [mm.optim.Adam, mm.optim.RMSprop, mm.optim.Adagrad, mm.optim.Momentum]
    schedules = [getattr(mm.optim.schedules, name) for name in
                 ("Step", "Exponential", "Cosine", "OneCycle", "Plateau")]  # fmt: skip
    functions = [mm.sum, mm.mean, mm.argmax, mm.softmax, mm.concat, mm.std, mm.data.read_csv,
                 mm.nn.functional.scaled_dot_product_attention, mm.nn.cross_entropy,
                 mm.nn.huber]  # fmt: skip
    others = [mm.data.Loader, mm.train.Trainer, mm.train.EarlyStopping]
    return [*layers, *optimizers, *schedules, *functions, *others]


def test_unknown_keywords_have_hints() -> None:
    """Every name of the table leads to a parameter of something that has hints, or to a remedy."""
    unused = set(KEYWORDS)
    for called in _callables():
        own = inspect.signature(called).parameters
        for name, meanings in KEYWORDS.items():
            if name in own:
                continue
            known = [text for text in meanings if text in own or " " in text]
            remedy = "it takes" if not known else known[0]
            with pytest.raises(TypeError, match=rf"keyword argument '{name}'.*{re.escape(remedy)}"):
                called(**{name: 1})
            if known:
                unused.discard(name)
    assert not unused
    assert [*inspect.signature(mm.optim.Adam).parameters][:2] == ["learning_rate", "beta1"]
    with pytest.raises(TypeError) as caught:  # raised by what the class calls
        mm.nn.Lambda(lambda x: mm.optim.GradientDescent(lr=x))(2)
    assert "learning_rate" in str(caught.value)


def test_a_type_that_would_change() -> None:
    x, counts = mm.ones(2), mm.asarray([1, 2])
    with pytest.raises(TypeError, match=r"array is int64.*be float64; convert.*a \+= b\.astype"):
        counts += 0.5
    with pytest.raises(ValueError, match=r"has shape \(2,\), its new value would have \(3, 2\)"):
        x += mm.ones((3, 2))


def test_mistakes_of_indices_are_errors_of_magmath() -> None:
    x = mm.arange(3.0)
    for key in (5, 1.5, "a", (0, 0), mm.ones(2), mm.asarray([7]), np.ones(9, bool), (..., ...)):
        with pytest.raises(IndexingError) as caught:
            x[key]
        assert isinstance(caught.value, IndexError)
    with pytest.raises(IndexingError):
        mm.delete(x, 9)


def test_a_view_that_is_only_read_is_so_without_a_name() -> None:
    with pytest.raises(ReadOnlyError, match="only read"):
        mm.broadcast_to(mm.ones(3), (2, 3))[0] = 1


def test_a_kind_of_sorting_that_numpy_lacks() -> None:
    for function in (mm.sort, mm.argsort, np.argsort, mm.Array.sort):
        assert function(mm.arange(3), kind="stable") is not Ellipsis
        with pytest.raises(OptionError, match="kind must be one of quicksort, .* 'bogo'"):
            function(mm.arange(3), kind="bogo")
    with pytest.raises(OptionError, match="partition: kind must be one of introselect"):
        mm.partition(mm.arange(3), 1, kind="bogo")


def test_bytes_of_an_array_are_its_values() -> None:
    for values in (np.arange(3), np.array([0.5, 2.0]), np.array(0.5)):
        assert bytes(mm.asarray(values)) == bytes(values)


def test_writing_into_an_array_without_a_name() -> None:
    held = [mm.zeros(3)]
    held[0][1] = 2
    assert held[0].tolist() == [0, 2, 0]
    with pytest.raises(
        MagmathError, match=r"no name refers to the array.*write into y with one index"
    ):
        [mm.zeros(3)][0][1] = 2


def test_text_in_a_table_with_a_long_integer(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("9007199254740993;abc;0.5\n1;def;1.5\n")
    with pytest.raises(DataError, match="line 1, column 2: 'abc' is not a number"):
        mm.data.read_csv(path, delimiter=";")
    with pytest.raises(
        DataError, match=r"integer 9007199254740993 .*delimiter=';', dtype='float64'"
    ):
        mm.data.read_csv(path, delimiter=";", usecols=[0, 2])
    assert mm.data.read_csv(path, delimiter=";", usecols=[2, 0], dtype="float64").shape == (2, 2)


def write_beyond(x: mm.Array) -> None:
    x[mm.asarray([2, 7])] = 7.0
    x.numpy()


@pytest.mark.parametrize("kind", [("inline", 1), ("planned", 1), ("shared", 2)])
def test_a_failed_write_keeps_updates_that_were_read_before(kind: tuple[str, int]) -> None:
    """An update whose value was computed for another expression is not undone."""
    with current(*kind):
        a = mm.asarray([1.0, 2.0, 3.0, 4.0])
        a += mm.asarray([10.0, 20.0, 30.0, 40.0])
        assert float(a.ravel()[0]) == 11.0
        with pytest.raises(IndexError):
            write_beyond(a)
        assert a.tolist() == [11.0, 22.0, 33.0, 44.0]


def test_an_assignment_does_not_read_values_of_a_failed_run() -> None:
    with current("shared", 2):
        v, w = mm.variable("v", np.ones(4)), mm.variable("w", np.ones(4))
        x = mm.asarray(np.arange(4.0)) * 0.5 + v
        with pytest.raises(IndexError):
            w.assign(w + mm.take(x, mm.asarray([5]), axis=0)[0])
        v[3] = x[2]
        assert v.tolist() == [1.0, 1.0, 1.0, 2.0]
        assert x.tolist() == [1.0, 1.5, 2.0, 2.5]


def test_many_operands_of_a_failed_expression_can_be_read() -> None:
    with current("shared", 2):
        v = mm.variable("v", np.ones(4))
        operands = [mm.asarray(np.arange(4.0) + i) * 0.5 + v for i in range(40)]
        total = operands[0]
        for x in operands[1:]:
            total = total + x
        with pytest.raises(IndexError):
            mm.take(total, mm.asarray([9]), axis=0).numpy()
        for i, x in enumerate(operands):
            assert x.tolist() == ((np.arange(4.0) + i) * 0.5 + 1).tolist()


def test_pending_expressions_outlive_a_failed_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a failed run has computed is computed again, and then belongs to what reads it."""
    monkeypatch.setattr("magmath.engine.lifetimes.intermediate_cache.MAX_INTERMEDIATES", 8)
    with current("shared", 2):
        x = [mm.asarray(np.arange(4.0) + 10 * i) for i in range(3)]
        v = [mm.variable(name, np.ones(4)) for name in "vw"]
        x[2][0:] = x[1][:4]
        x[0][2:] = x[2][:2]
        result = [x[2] * 2.0 - v[0]]
        x[1] = x[1] * 0.5 + v[0]
        with pytest.raises(IndexError):
            write_beyond(x[0])
        x[0] = x[0] * 0.5 + v[0]
        with pytest.raises(IndexError):
            v[0].assign(v[0] + mm.take(x[0], mm.asarray([5]), axis=0)[0])
        x[2] += x[1]
        x[2] *= 0.5
        v[1][3] = x[1][0]
        v[1].assign(v[1] * 0.5 + x[1])
        v[0][2] = x[2][0]
        assert result[0].tolist() == [19.0, 21.0, 23.0, 25.0]
        assert x[0].tolist() == [1.0, 1.5, 6.0, 6.5]
        assert x[2].tolist() == [8.0, 8.75, 9.5, 10.25]
        assert v[0].tolist() == [1.0, 1.0, 8.0, 1.0]


@pytest.mark.parametrize("given", [[1.0, 2.0], np.ones(3), 4, "text"])
def test_the_class_of_arrays_does_not_convert(given: object) -> None:
    with pytest.raises(TypeError, match=r"Array: was given .*; arrays are made by mm\.asarray"):
        mm.Array(given)  # type: ignore[arg-type]


READS_VALUES: dict[str, Callable[[mm.Array], object]] = {
    "arange": lambda x: mm.arange(x[0]),
    "argwhere": mm.argwhere,
    "bincount": lambda x: mm.bincount(x, minlength=3),
    "eye": lambda x: mm.eye(x[0]),
    "fft": lambda x: mm.fft.fft(x, n=x[0]),
    "flatnonzero": mm.flatnonzero,
    "histogram": lambda x: mm.histogram(x, bins=3),
    "matrix_power": lambda x: mm.linalg.matrix_power(mm.eye(2), x[0]),
    "percentile": lambda x: mm.percentile(x, x[0]),
    "ravel_multi_index": lambda x: mm.ravel_multi_index((x // 2, x % 2), (2, 2)),
    "repeat": lambda x: mm.repeat(x, x),
    "roll": lambda x: mm.roll(x, x[0]),
    "setdiff1d": lambda x: mm.setdiff1d(x, x[:2]),
    "split": lambda x: mm.split(x, [x[0]]),
    "unique_values": mm.unique_values,
    "zeros": lambda x: mm.zeros(x[0]),
}
"""Functions for which arrays must have values, such as those that the shape of the result needs."""


@pytest.mark.parametrize("name", READS_VALUES)
@pytest.mark.parametrize(
    "transform", [mm.compile, mm.remat, lambda f: lambda x: mm.vmap(f)(x[None])]
)
def test_a_function_that_needs_values_is_named_while_a_function_is_traced(
    name: str, transform: Callable[[Any], Any]
) -> None:
    f = READS_VALUES[name]
    with pytest.raises(TracingError, match=f"^{name}: .* mm"):
        transform(lambda x: (f(x), x)[1])(mm.asarray([2, 0, 1, 2]))
