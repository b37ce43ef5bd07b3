"""NumPy's own functions with arrays of magmath, methods, and the cost and errors of both."""

from __future__ import annotations

import ast
import inspect
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse, special

import magmath as mm
from engines import current
from magmath.arrays.protocols.methods import METHODS, ArrayMethods
from magmath.errors import DTypeError, ShapeError

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]
M = np.random.default_rng(3).normal(size=(6, 4))

CALLS = {
    "ufunc": lambda x: np.sqrt(np.abs(x)),
    "renamed ufunc": lambda x: np.arctan2(np.absolute(x), np.power(x, 2)),
    "mixed": lambda x: np.add(M, x) + np.multiply(x, M),
    "operators": lambda x: M + x - (2 * M) / (x + 9),
    "numpy scalar": lambda x: np.float64(2) * x + np.int64(1),
    "product": lambda x: M.T @ x,
    "matmul": lambda x: np.matmul(x, M.T),
    "comparison": lambda x: x + 1 > M,
    "divmod": lambda x: np.stack(np.divmod(x, 0.3)),
    "reduce": lambda x: np.add.reduce(x, axis=1),
    "accumulate": lambda x: np.maximum.accumulate(x, axis=0),
    "outer": lambda x: np.subtract.outer(x, M[0]),
    "concatenate": lambda x: np.concatenate([x, M, x]),
    "stack": lambda x: np.stack([M, x], axis=1),
    "where": lambda x: np.where(x > 0, x, M),
    "mean": lambda x: np.mean(x, axis=0, keepdims=True),
    "sort": lambda x: np.sort(x, axis=0),
    "median": lambda x: np.median(x, axis=1),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, M),
    "norm": lambda x: np.linalg.norm(x, axis=1),
    "svd": lambda x: np.linalg.svd(x, compute_uv=False),
    "fft": lambda x: np.fft.fft(x, axis=0),
    "histogram": lambda x: np.histogram(x, bins=5)[0],
    "clip": lambda x: np.clip(x, -1, 1),
    "zeros_like": lambda x: np.zeros_like(x),
    "unique": lambda x: np.unique(np.round(x)),
    "pad": lambda x: np.pad(x, 1, mode="edge"),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_results_are_written_into_arrays_of_numpy(kind: tuple[str, int]) -> None:
    def updated(x: Any) -> list[np.ndarray]:
        total, part, product, taken = M.copy(), M.copy(), M.copy(), np.zeros(4)
        total += x
        total /= x * x + 1
        part[1:3] -= x[1:3]
        part[0] **= 2 * x[0] / x[0]
        product @= x[:4]
        np.multiply(x, 2, out=part, where=x > 0)
        np.add.reduce(x, axis=0, out=taken)
        np.add.at(taken, [0, 0, 3], x[0, :3])
        columns, rows, chosen = np.zeros(4), np.zeros((2, 4)), M.copy()
        np.mean(x, axis=0, out=columns)
        np.concatenate([x[:1], x[2:3]], out=rows)
        np.copyto(chosen, x[0], where=x > 0)
        np.copyto(src=x[1], dst=chosen, where=x > 1)
        np.put(chosen, [0, 5], x[0, :2])
        np.put(ind=[1, 6], v=x[0, :2], a=chosen)
        np.place(chosen, x > 1, x[1])
        np.putmask(chosen, x < -1, x[2])
        np.put_along_axis(chosen, np.zeros((6, 1), dtype=int), x[:, 3:], axis=1)
        np.fill_diagonal(chosen[:, 1:], x[0, :3])
        return [total, part, product, taken, columns, rows, chosen]

    x = np.random.default_rng(1).normal(size=M.shape)
    with current(*kind):
        for actual, expected in zip(updated(mm.asarray(x)), updated(x), strict=True):
            assert type(actual) is np.ndarray
            np.testing.assert_allclose(actual, expected, rtol=1e-14)
        whole = np.arange(3)
        with pytest.raises(TypeError, match="Cannot cast"):
            whole += mm.asarray(x[0, :3])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("name", CALLS)
def test_numpys_functions_give_arrays_of_magmath(name: str, kind: tuple[str, int]) -> None:
    expected = CALLS[name](M)
    with current(*kind):
        actual = CALLS[name](mm.asarray(M, layout=mm.Layout.cyclic(0)))
        assert isinstance(actual, mm.Array)
        np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-9, atol=1e-9)


@pytest.fixture
def x() -> Iterator[mm.Array]:
    with current("inline"):
        yield mm.asarray(M)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: np.isnat(x), r"numpy\.isnat: magmath has no such function: dates"),
        (special.j0, r"scipy\.special\.j0: magmath has no such function; .*np\.asarray\(x\)"),
        (lambda x: special.xlogy(x, 1), r"scipy\.special\.xlogy: magmath has no such function"),
        (lambda x: np.frompyfunc(abs, 1, 1)(x), r"abs.*: magmath has no such function"),
    ],
)
def test_unsupported_calls_are_errors_and_copy_nothing(call: Any, words: str, x: mm.Array) -> None:
    with pytest.raises(TypeError, match=words):
        call(x)


@pytest.mark.parametrize(
    "name",
    [
        *("cbrt", "digamma", "erf", "erfc", "exp2", "expit", "expm1", "gammaln", "i0", "log1p"),
        *("log_expit", "logit", "psi", "round"),
    ],
)
def test_functions_of_scipy_give_arrays_of_magmath(name: str) -> None:
    values = np.random.default_rng(3).uniform(0.1, 0.9, size=(3, 4))
    function = getattr(special, name)
    with current("threads", 2):
        result = function(mm.asarray(values))
        assert isinstance(result, mm.Array)
        np.testing.assert_allclose(result.numpy(), function(values), rtol=1e-13)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_sparse_matrices_of_scipy_take_arrays(kind: Any, dtype: str) -> None:
    a = kind(M * (M > 0))
    vector, matrix = (np.arange(n).reshape(shape) for n, shape in ((4, (4,)), (12, (4, 3))))
    with current("threads", 2):
        for values in (vector.astype(dtype), matrix.astype(dtype)):
            x = mm.asarray(values)
            np.testing.assert_allclose(a @ x, a @ values)
            np.testing.assert_allclose(a.dot(x), a.dot(values))
            np.testing.assert_allclose(x.T @ a.T, values.T @ a.T)
        x = mm.asarray(vector.astype(dtype))
        actual, expected = a.multiply(x), a.multiply(vector.astype(dtype))
        np.testing.assert_allclose(actual.toarray(), expected.toarray())
        with pytest.raises(TypeError, match=r"^add: .*x\.toarray\(\)"):
            a + mm.asarray(M)


def test_objects_are_broadcast_as_arrays_of_numpy(x: mm.Array) -> None:
    """As matplotlib's `bar` does."""
    row, nothing, text = np.broadcast_arrays(x[0], None, [["-"], ["/"]])
    assert isinstance(row, mm.Array)
    assert row.shape == nothing.shape == text.shape == (2, 4)
    assert nothing.tolist() == [[None] * 4] * 2
    assert text.tolist() == [["-"] * 4, ["/"] * 4]
    assert all(isinstance(y, mm.Array) for y in np.broadcast_arrays(x, 1, M[0]))


OPERATORS = (
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.matmul),
    *(operator.lt, operator.ge, operator.eq, operator.ne, operator.iadd),
)


@pytest.mark.parametrize("function", OPERATORS)
def test_operators_name_the_conversion_of_tensors(function: Any, x: mm.Array) -> None:
    tensor = torch.ones(6, 4)
    for operands in ((x, tensor), (tensor, x)):
        with pytest.raises(TypeError, match=r"given Tensor; convert it with mm\.asarray\(x\)"):
            function(*operands)


def test_conversion_is_a_copy(x: mm.Array) -> None:
    copied = np.asarray(x)
    assert isinstance(copied, np.ndarray)
    copied[0] = 0
    np.testing.assert_array_equal(x.numpy(), M)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_are_functions(name: str, x: mm.Array) -> None:
    function = getattr(mm, METHODS[name])
    assert getattr(mm.Array, name) is function
    assert getattr(x, name).__func__ is function


def test_type_checkers_see_the_signatures_of_methods() -> None:
    (block,) = [
        node.body
        for node in ast.walk(ast.parse(Path(inspect.getfile(ArrayMethods)).read_text()))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    stubs = {f.name: f for f in block if isinstance(f, ast.FunctionDef)}
    assert set(stubs) == set(METHODS)
    for name, stub in stubs.items():
        own = [a.arg for a in [*stub.args.args, *stub.args.kwonlyargs]][1:]
        theirs = list(inspect.signature(getattr(mm, METHODS[name])).parameters)[1:]
        assert own == theirs, name


def test_a_method_costs_no_more_than_its_function() -> None:
    x = mm.asarray([1.0])

    def calls(function: Any) -> int:
        """The functions that a call enters, from the second call on."""
        function()
        events: list[str] = []
        sys.setprofile(lambda frame, event, argument: events.append(event))
        try:
            function()
        finally:
            sys.setprofile(None)
        return events.count("call")

    assert calls(lambda: x.ravel()) <= calls(lambda: mm.ravel(x)) + 1


def test_out_is_a_handle_on_the_result(x: mm.Array) -> None:
    out = mm.zeros((6, 4), dtype="float64")
    alias = out
    assert mm.exp(x, out=out) is out
    np.testing.assert_allclose(alias.numpy(), np.exp(M))
    with pytest.raises(
        ShapeError, match=r"sum: out must have the shape of the result, \(4,\), was"
    ):
        mm.sum(x, axis=0, out=out)
    with pytest.raises(DTypeError, match="exp: out has type int64, the result is float64"):
        mm.exp(x, out=mm.zeros((6, 4), dtype="int64"))


def test_functions_of_numbers_alone_give_numbers_that_take_the_type_of_arrays() -> None:
    half = mm.ones(3, dtype="float16")
    assert type(mm.sqrt(2)) is float
    assert (half * mm.sqrt(2.0)).dtype == mm.float16
    assert mm.maximum(3, 4) == 4


def test_gradients_go_through_functions_of_numpy() -> None:
    x = mm.variable("x", M)
    slope = mm.grad(np.sum(np.square(x)) + x.mean(), x)
    np.testing.assert_allclose(slope.numpy(), 2 * M + 1 / M.size)


def test_compiled_functions_use_methods() -> None:
    @mm.compile
    def scaled(x: mm.Array) -> mm.Array:
        return (x - x.mean(axis=0)) / x.std(axis=0)

    np.testing.assert_allclose(scaled(mm.asarray(M)).numpy(), (M - M.mean(0)) / M.std(0))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
def test_random_numbers_by_numpys_names(kind: tuple[str, int]) -> None:
    with current(*kind):
        rng = mm.random.default_rng(1)
        assert abs(rng.normal(loc=0.0, scale=1.0, size=(2000,)).mean().item()) < 0.1
        assert rng.random((3, 4)).shape == (3, 4)
        assert rng.random().shape == ()
        assert rng.standard_normal(5).shape == (5,)
        drawn = rng.choice(5, size=4000, p=[0.1, 0.2, 0.3, 0.4, 0.0])
        share = mm.bincount(drawn, minlength=5).numpy() / 4000
        np.testing.assert_allclose(share, [0.1, 0.2, 0.3, 0.4, 0.0], atol=0.04)
        values = mm.asarray(np.arange(10) * 10)
        picked = rng.choice(values, 6, replace=False).tolist()
        assert len(set(picked)) == 6
        assert set(picked) <= set(range(0, 100, 10))
        weighted = rng.choice(10, 3, replace=False, p=[0.0] * 7 + [0.3, 0.3, 0.4]).tolist()
        assert sorted(weighted) == [7, 8, 9]
        rng.shuffle(values)
        assert sorted(values.tolist()) == list(range(0, 100, 10))
        assert mm.random.rand(2, 3).shape == mm.random.randn(2, 3).shape == (2, 3)
        assert mm.random.randint(0, 5, (7,)).min().item() >= 0
